//! Stops the pods before the services: the kubelet learns of the node's end, and gives each pod its grace period. The
//! pods that it leaves are stopped without it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_api::machine::task_event;
use corten_base::console;
use corten_base::panics::again;
use corten_kubernetes::kubelet::shutdown_grace;
use corten_logind::{Inhibitors, LONGEST_DELAY, SOCKET, bind, serve};
use corten_server::node::Node as _;
use corten_types::kubernetes_kubelet::{ID, KubeletSpec};

use super::Machine;
use super::leftover::{self, Real};

/// Time that the kubelet gets beyond the grace periods of its pods.
const MARGIN: Duration = Duration::from_secs(10);
/// Time for containers that the kubelet still kills when it lets go: its own time limits end at the same moment.
const SETTLE: Duration = Duration::from_secs(3);
/// Name of the task in the events.
const STOP_PODS: &str = "stopAllPods";

impl Machine {
    /// Opens the socket for the kubelet. A node without it still works, and stops its pods itself.
    pub(super) fn announce_ends(&self) {
        match bind(Path::new(SOCKET)) {
            Ok(listener) => {
                let (listener, inhibitors) = (Arc::new(listener), self.inhibitors.clone());
                tokio::spawn(again(move || {
                    let (listener, inhibitors) = (listener.clone(), inhibitors.clone());
                    async move { serve(&listener, 0, inhibitors).await }
                }));
            }
            Err(error) => console::warn(&format!(
                "{SOCKET}: {error}; the kubelet does not learn of the node's end, and pods get 30 s instead of their \
                 grace periods; a restart of the node tries again"
            )),
        }
    }

    /// Has the kubelet stop the pods, and then stops the rest.
    pub(super) async fn stop_pods(&self, actor: &str) {
        self.tell_task(STOP_PODS, actor, task_event::Action::Start);
        let kubelet = self.node.store().get_as::<KubeletSpec>(ID);
        let grace = kubelet.map_or(Duration::ZERO, |spec| shutdown_grace(&spec.config));
        let patience = stop(&self.inhibitors, grace).await;
        leftover::stop(&Real::new(&self.supervisor), patience).await;
        self.tell_task(STOP_PODS, actor, task_event::Action::Stop);
    }
}

/// Announces the end to the kubelet and waits until it has stopped the pods, for little longer than the pods may take.
/// Returns the time for the containers that may still be about to end.
async fn stop(inhibitors: &Inhibitors, grace: Duration) -> Duration {
    let is_delayed = inhibitors.held() > 0;
    let limit = (grace + MARGIN).min(LONGEST_DELAY);
    if is_delayed {
        console::say(&format!(
            "the kubelet stops the pods, for at most {} s",
            limit.as_secs()
        ));
    }
    match inhibitors.announce_end(limit).await {
        true if is_delayed => {
            console::say("the kubelet has stopped the pods");
            SETTLE
        }
        true => Duration::ZERO,
        false => {
            console::warn(&format!(
                "the kubelet has not stopped the pods within {} s; `cortenctl logs --previous kubelet` shows why after \
                 the next start",
                limit.as_secs()
            ));
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_logind::TakeError;
    use tokio::task::yield_now;
    use tokio::time::{Instant, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn end_waits_until_the_kubelet_has_stopped_the_pods() {
        let inhibitors = Inhibitors::default();
        let lock = inhibitors.take().unwrap();
        let its = inhibitors.clone();
        let ended = tokio::spawn(async move { stop(&its, 600 * SECOND).await });
        while !matches!(inhibitors.take(), Err(TakeError::Late)) {
            yield_now().await;
        }
        assert!(!ended.is_finished());
        drop(lock);
        timeout(60 * SECOND, ended).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn end_waits_for_a_kubelet_no_longer_than_its_pods_may_take() {
        // No more than the longest delay that the kubelet is told.
        for (grace, waits) in [(0, 10), (30, 40), (300, 310), (7200, 1200)] {
            let inhibitors = Inhibitors::default();
            let lock = inhibitors.take().unwrap();
            let begun = Instant::now();
            stop(&inhibitors, grace * SECOND).await;
            assert_eq!(begun.elapsed().as_secs(), waits);
            drop(lock);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn end_without_a_kubelet_waits_for_no_kubelet() {
        let begun = Instant::now();
        let patience = stop(&Inhibitors::default(), 30 * SECOND).await;
        assert_eq!(begun.elapsed() + patience, Duration::ZERO);
    }
}

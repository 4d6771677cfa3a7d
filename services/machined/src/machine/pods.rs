//! Stops the pods before the services: the kubelet learns of the node's end, and gives each pod its grace period.

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

/// Time that the kubelet gets beyond the grace periods of its pods.
const MARGIN: Duration = Duration::from_secs(10);
/// Name of the task in the events.
const STOP_PODS: &str = "stopAllPods";

impl Machine {
    /// Opens the socket for the kubelet. A node without it still works; only its pods get no time at its end.
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
                "{SOCKET}: {error}; pods are killed without their grace periods when the node ends"
            )),
        }
    }

    /// Has the kubelet stop the pods.
    pub(super) async fn stop_pods(&self, actor: &str) {
        self.tell_task(STOP_PODS, actor, task_event::Action::Start);
        let kubelet = self.node.store().get_as::<KubeletSpec>(ID);
        let grace = kubelet.map_or(Duration::ZERO, |spec| shutdown_grace(&spec.config));
        stop(&self.inhibitors, grace).await;
        self.tell_task(STOP_PODS, actor, task_event::Action::Stop);
    }
}

/// Announces the end to the kubelet and waits until it has stopped the pods, for little longer than the pods may take.
async fn stop(inhibitors: &Inhibitors, grace: Duration) {
    let is_delayed = inhibitors.held() > 0;
    let limit = (grace + MARGIN).min(LONGEST_DELAY);
    if is_delayed {
        console::say(&format!(
            "the kubelet stops the pods, for at most {} s",
            limit.as_secs()
        ));
    }
    match inhibitors.announce_end(limit).await {
        true if is_delayed => console::say("the kubelet has stopped the pods"),
        true => {}
        false => console::warn(&format!(
            "the kubelet has not stopped the pods within {} s; the node ends anyway",
            limit.as_secs()
        )),
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
    async fn end_without_a_kubelet_waits_for_nothing() {
        let begun = Instant::now();
        stop(&Inhibitors::default(), 30 * SECOND).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}

//! Winds the node down: stops the services in order, and reports each step to the clients that follow the node's
//! events.

use std::future::Future;
use std::time::Duration;

use corten_api::machine::task_event;
use corten_base::console;
use corten_persistence::last_stop::{Reason, Stop};
use corten_server::node::{Action, Stage};
use corten_services::supervisor::Supervisor;
use corten_sys::power::End;
use futures_util::future::join;
use tokio::time::{sleep, timeout};

use super::{ANSWER_GRACE, Fatal, Machine};
use crate::finish::Ending;

/// Timeout for all services together to stop in order; `finish` kills the rest.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// Minimum time that apid stays after a request to end the node. A client subscribes to the events of the end only
/// after the answer, and the other services may stop faster than that.
const FOLLOW: Duration = Duration::from_secs(2);
/// Name of the task whose events tell a client that follows a shutdown that it goes on without the client.
const STOP_ALL: &str = "stopAllServices";

impl Machine {
    /// Takes the node out of its cluster, stops the services in order, and returns how the machine ends.
    pub(super) async fn wind_down(&self, action: Action, who: &str, actor: &str) -> Ending {
        let (stage, end, sequence, text) = plan(&action);
        self.node.set_ending();
        self.tell_begin(sequence, actor);
        self.node.set_stage(stage);
        console::say(text);
        self.depart(&action).await;
        let mut left = Ok(());
        if action != Action::ForcedReboot {
            self.stop_pods(actor).await;
            left = self.leave(&action).await;
            if let Err(why) = &left {
                console::error(&format!("{sequence}: {why}; the node restarts"));
            }
            self.tell_task(STOP_ALL, actor, task_event::Action::Start);
            let by_api = !actor.is_empty();
            let pause = async |time: Duration| {
                if by_api {
                    sleep(time).await;
                }
            };
            let tell = async || {
                self.tell_task(STOP_ALL, actor, task_event::Action::Stop);
                // A reset wipes after this, when no client is left to hear of its end.
                let ends_here = left.is_err() || !matches!(action, Action::Reset(_));
                if ends_here {
                    self.tell_end(sequence, actor, left.as_ref().err());
                }
                pause(ANSWER_GRACE).await;
            };
            let stopped = stop_services(&self.supervisor, pause(FOLLOW), tell);
            if timeout(STOP_PATIENCE, stopped).await.is_err() {
                console::warn("some services did not stop in time");
            }
        }
        self.keep_clock().await;
        match left {
            Ok(()) => Ending {
                end,
                stop: stop(end, who),
                wipe: match action {
                    Action::Reset(reset) => reset.targets,
                    _ => Vec::new(),
                },
            },
            Err(why) => without_wipe(who, &why),
        }
    }
}

fn stop(end: End, who: &str) -> Stop {
    let reason = match end {
        End::Restart => Reason::Reboot,
        End::PowerOff => Reason::Shutdown,
    };
    Stop::now(reason, who)
}

/// The end after a failed reset. The node restarts, so that the operator can try again.
fn without_wipe(who: &str, why: &Fatal) -> Ending {
    Ending {
        end: End::Restart,
        stop: stop(End::Restart, &format!("{who}; {why}")),
        wipe: Vec::new(),
    }
}

/// The stage, the machine's end, the sequence's name in the API, and the line for the console.
fn plan(action: &Action) -> (Stage, End, &'static str, &'static str) {
    match action {
        Action::Reboot | Action::Upgrade => (
            Stage::Rebooting,
            End::Restart,
            "reboot",
            "stopping all services to restart",
        ),
        Action::ForcedReboot => (
            Stage::Rebooting,
            End::Restart,
            "reboot",
            "restarting without waiting for services",
        ),
        Action::Shutdown { .. } => (
            Stage::ShuttingDown,
            End::PowerOff,
            "shutdown",
            "stopping all services to switch off",
        ),
        Action::Reset(reset) => (
            Stage::Resetting,
            if reset.reboot {
                End::Restart
            } else {
                End::PowerOff
            },
            "reset",
            "stopping all services to reset the node",
        ),
    }
}

/// Stops the services in order. apid serves the clients that follow the end. It stays until all other services have
/// ended and `followed` completes, the time for clients to subscribe. Then `tell` reports the end, and apid stops.
async fn stop_services(
    supervisor: &Supervisor,
    followed: impl Future<Output = ()>,
    tell: impl AsyncFnOnce(),
) {
    join(supervisor.stop_others(), followed).await;
    tell().await;
    supervisor.stop_all().await;
}

#[cfg(test)]
mod tests {
    use corten_server::node::{ServiceState, ServiceView};
    use corten_services::supervisor::testing::{spec, world};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn failed_reset_restarts_the_node_without_a_wipe_and_records_why() {
        let why = Fatal("nothing is wiped: etcd refuses".to_owned());
        let ending = without_wipe("requested through the API", &why);
        assert_eq!(ending.end, End::Restart);
        assert!(ending.wipe.is_empty());
        assert_eq!(ending.stop.reason, Reason::Reboot);
        let told = &ending.stop.detail;
        assert!(told.ends_with("; nothing is wiped: etcd refuses"), "{told}");
    }

    #[tokio::test]
    async fn apid_stops_only_after_event_followers_got_the_end() {
        let world = world();
        for id in ["x", "syslogd", "apid"] {
            world.supervisor.declare(spec(id));
            world.until_up(id).await;
        }
        let state = |id: &str| {
            let views = world.supervisor.views();
            let found = views.into_iter().find(|view| view.id == id);
            found.unwrap().state
        };
        let (come, came) = oneshot::channel();
        let followed = async move { came.await.unwrap() };
        let tell = async || {
            assert_eq!(state("x"), ServiceState::Finished);
            for id in ["apid", "syslogd"] {
                assert_eq!(state(id), ServiceState::Running, "{id}");
            }
        };
        let ended = stop_services(&world.supervisor, followed, tell);
        let watch = async {
            let finished = |view: &ServiceView| view.state == ServiceState::Finished;
            world.until("x", finished).await;
            assert_eq!(state("apid"), ServiceState::Running);
            come.send(()).unwrap();
        };
        let both = timeout(Duration::from_secs(20), join(ended, watch));
        both.await.unwrap();
        for id in ["apid", "syslogd"] {
            assert_eq!(state(id), ServiceState::Finished, "{id}");
        }
    }
}

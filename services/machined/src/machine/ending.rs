//! Winds the node down: stops the services in order, and reports each step to the clients that follow the node's
//! events.

use std::future::Future;
use std::time::Duration;

use corten_api::machine::task_event;
use corten_base::console;
use corten_persistence::last_stop::{Reason, Stop};
use corten_server::node::{Action, ServiceState, ServiceView, Stage};
use corten_supervisor::supervisor::Supervisor;
use corten_sys::power::End;
use futures_util::future::join;
use tokio::time::{sleep, timeout};

use super::takeover::{Order, Takeovers};
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
    /// Takes the node out of its cluster, stops the services in order, and returns how the machine ends. A takeover ends
    /// the current wait; it shortens a reset, but changes nothing about what is wiped.
    pub(super) async fn wind_down(&self, order: Order, mut takeovers: Takeovers) -> Ending {
        self.node.set_ending();
        let mut course = Course::default();
        self.enter(&mut course, &order);
        let Order { action, actor, .. } = order;
        if let Err(order) = takeovers.unless(self.depart(&action)).await {
            self.give_way(&mut course, &order, &action).await;
        }
        if !course.at_once
            && let Err(order) = takeovers.unless(self.stop_pods(&actor)).await
        {
            self.give_way(&mut course, &order, &action).await;
        }
        let left = match course.at_once {
            true => self.leave_no_more(&action, &course.why),
            false => match takeovers.unless(self.leave(&action)).await {
                Ok(left) => left,
                Err(order) => {
                    self.give_way(&mut course, &order, &action).await;
                    self.leave_no_more(&action, &course.why)
                }
            },
        };
        while let Some(order) = takeovers.waiting() {
            self.give_way(&mut course, &order, &action).await;
        }
        // From here on, the end is short, and the node refuses a forced call as well.
        drop(takeovers);
        if let Err(why) = &left {
            console::error(&format!("reset: {why}"));
        }
        if !course.at_once {
            self.stop_services(&course, &action, left.as_ref().err())
                .await;
        }
        self.keep_clock().await;
        course.ending(action, left)
    }

    /// Reports the begin of an order's sequence to its client, and follows the order.
    fn enter(&self, course: &mut Course, order: &Order) {
        let (stage, end, sequence, text) = plan(&order.action);
        console::say(&order.why);
        self.tell_begin(sequence, &order.actor);
        self.node.set_stage(stage);
        console::say(text);
        course.end = end;
        course.at_once |= order.action == Action::ForcedReboot;
        course.why.clone_from(&order.why);
        course.told.push((sequence, order.actor.clone()));
    }

    /// Follows the order of a takeover.
    async fn give_way(&self, course: &mut Course, order: &Order, action: &Action) {
        course.is_taken = true;
        self.enter(course, order);
        if matches!(action, Action::Reset(_)) {
            self.node.set_stage(Stage::Resetting);
        }
        if !order.actor.is_empty() {
            sleep(ANSWER_GRACE).await;
        }
    }

    async fn stop_services(&self, course: &Course, action: &Action, failure: Option<&Fatal>) {
        let tell_task = |what: task_event::Action| {
            for (_, actor) in &course.told {
                self.tell_task(STOP_ALL, actor, what);
            }
        };
        tell_task(task_event::Action::Start);
        let by_api = course.told.iter().any(|(_, actor)| !actor.is_empty());
        let pause = async |time: Duration| {
            if by_api {
                sleep(time).await;
            }
        };
        let tell = async || {
            tell_task(task_event::Action::Stop);
            // A reset wipes after this, when no client is left to hear of its end.
            let ends_here = failure.is_some() || !matches!(action, Action::Reset(_));
            for (sequence, actor) in course.told.iter().filter(|_| ends_here) {
                self.tell_end(sequence, actor, failure);
            }
            pause(ANSWER_GRACE).await;
        };
        let stopped = stop_services(&self.supervisor, pause(FOLLOW), tell);
        if timeout(STOP_PATIENCE, stopped).await.is_err() {
            console::warn(&format!(
                "services that have not stopped within {} s are killed: {}; `cortenctl logs --previous` of each shows \
                 why after the next start",
                STOP_PATIENCE.as_secs(),
                stopping(&self.supervisor.views())
            ));
        }
    }
}

/// The services that stop. Those that have to stop after them still run.
fn stopping(views: &[ServiceView]) -> String {
    let stop = views
        .iter()
        .filter(|view| view.state == ServiceState::Stopping);
    let ids: Vec<&str> = stop.map(|view| view.id.as_str()).collect();
    ids.join(", ")
}

/// How the boot ends: as it was ordered, or by a later takeover.
#[derive(Debug)]
struct Course {
    end: End,
    /// Waits for nothing, neither for services.
    at_once: bool,
    /// Reason for the next boot's record.
    why: String,
    is_taken: bool,
    /// The sequences and actors of the clients that follow the end.
    told: Vec<(&'static str, String)>,
}

impl Default for Course {
    fn default() -> Course {
        Course {
            end: End::Restart,
            at_once: false,
            why: String::new(),
            is_taken: false,
            told: Vec::new(),
        }
    }
}

impl Course {
    /// How the machine ends after the action. After a failed reset the node restarts, so that the operator can try again.
    fn ending(self, action: Action, left: Result<(), Fatal>) -> Ending {
        let (end, why, wipe) = match (left, action) {
            (Ok(()), Action::Reset(reset)) => (self.end, self.why, reset.targets),
            (Ok(()), _) => (self.end, self.why, Vec::new()),
            (Err(error), _) => {
                let end = if self.is_taken {
                    self.end
                } else {
                    End::Restart
                };
                (end, format!("{}; {error}", self.why), Vec::new())
            }
        };
        let reason = match end {
            End::Restart => Reason::Reboot,
            End::PowerOff => Reason::Shutdown,
        };
        Ending {
            end,
            stop: Stop::now(reason, &why),
            wipe,
        }
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
    use corten_server::node::Reset;
    use corten_supervisor::supervisor::testing::{spec, world};
    use corten_volumes::Target;
    use tokio::sync::oneshot;

    use super::*;

    fn course(end: End, is_taken: bool) -> Course {
        Course {
            end,
            is_taken,
            why: "requested".to_owned(),
            ..Course::default()
        }
    }

    fn reset() -> Action {
        Action::Reset(Reset {
            targets: vec![Target::SystemDisk],
            graceful: true,
            reboot: false,
        })
    }

    #[test]
    fn failed_reset_restarts_the_node_without_a_wipe_and_records_why() {
        let why = || Fatal("nothing is wiped: etcd refuses".to_owned());
        let ending = course(End::PowerOff, false).ending(reset(), Err(why()));
        assert_eq!(ending.end, End::Restart);
        assert!(ending.wipe.is_empty());
        assert_eq!(ending.stop.reason, Reason::Reboot);
        let told = &ending.stop.detail;
        assert_eq!(told, "requested; nothing is wiped: etcd refuses");
        // The operator who ended the attempts says how the machine ends.
        let ending = course(End::PowerOff, true).ending(reset(), Err(why()));
        assert_eq!(ending.end, End::PowerOff);
        assert!(ending.wipe.is_empty());
    }

    #[test]
    fn takeover_changes_how_the_machine_ends_and_not_what_is_wiped() {
        for end in [End::PowerOff, End::Restart] {
            let ending = course(end, true).ending(reset(), Ok(()));
            assert_eq!(ending.end, end);
            assert_eq!(ending.wipe, [Target::SystemDisk]);
            let ending = course(end, true).ending(Action::Reboot, Ok(()));
            assert_eq!(ending.end, end);
            assert!(ending.wipe.is_empty());
        }
    }

    #[tokio::test]
    async fn service_that_stops_late_is_named_without_those_that_wait_for_it() {
        let world = world();
        for id in ["x", "apid"] {
            world.supervisor.declare(spec(id));
            world.until_up(id).await;
        }
        let mut views = world.supervisor.views();
        assert_eq!(stopping(&views), "");
        for view in views.iter_mut().filter(|view| view.id == "x") {
            view.state = ServiceState::Stopping;
        }
        assert_eq!(stopping(&views), "x");
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

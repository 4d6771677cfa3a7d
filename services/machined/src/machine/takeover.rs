//! Events that shorten the end of a boot, as in the reference: the power button, a signal or a forced call ends the current wait
//! for the pods or the cluster.

use std::io;
use std::time::Duration;

use corten_server::node::Action;
use futures_util::future::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::state::Request;

/// Time in which further presses of the power button are the same one: a machine may report it by two devices.
const BOUNCE: Duration = Duration::from_secs(2);

/// Reason of the boot's end for the next boot's record, when the caller `who` requested it (in the words of apid's
/// audit log).
pub(super) fn asked(who: &str) -> String {
    let by = if who.is_empty() { "" } else { " by " };
    format!("requested through the API{by}{who}")
}

/// A request to end the boot.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) action: Action,
    /// Reason for the next boot's record.
    pub(super) why: String,
    /// Id of the caller in events; empty without one.
    pub(super) actor: String,
}

impl Order {
    /// An order of the node itself. No API call requested it, so no client follows its events.
    pub(super) fn of_itself(action: Action, why: &str) -> Order {
        Order {
            action,
            why: why.to_owned(),
            actor: String::new(),
        }
    }
}

/// Operators at the machine or its host.
#[derive(Debug)]
pub(super) struct Operators {
    presses: UnboundedReceiver<()>,
    pressed: Option<Instant>,
    interrupt: Signal,
    terminate: Signal,
}

impl Operators {
    /// # Errors
    /// The signals cannot be received.
    pub(super) fn heed(presses: UnboundedReceiver<()>) -> io::Result<Operators> {
        Ok(Operators {
            presses,
            pressed: None,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next order.
    pub(super) async fn next(&mut self) -> Order {
        let shutdown = |why| Order::of_itself(Action::Shutdown { forced: true }, why);
        loop {
            tokio::select! {
                Some(()) = self.presses.recv() => if !self.is_bounce() {
                    return shutdown("the power button was pressed");
                },
                _ = self.terminate.recv() => return shutdown("SIGTERM was received"),
                _ = self.interrupt.recv() => {
                    return Order::of_itself(Action::Reboot, "ctrl-alt-del was pressed");
                }
            }
        }
    }

    fn is_bounce(&mut self) -> bool {
        let last = self.pressed.replace(Instant::now());
        last.is_some_and(|last| last.elapsed() < BOUNCE)
    }
}

/// All that may shorten the end of the boot.
#[derive(Debug)]
pub(super) struct Takeovers {
    pub(super) operators: Operators,
    pub(super) requests: UnboundedReceiver<Request>,
}

impl Takeovers {
    async fn next(&mut self) -> Order {
        loop {
            tokio::select! {
                order = self.operators.next() => return order,
                // The node accepts only forced actions now.
                Some(request) = self.requests.recv() => if let Request::Act(action, actor) = request {
                    return Order { action, why: asked(&actor.who), actor: actor.id };
                },
            }
        }
    }

    /// A takeover that has come already.
    pub(super) fn waiting(&mut self) -> Option<Order> {
        self.next().now_or_never()
    }

    /// Runs a step, unless a takeover ends it.
    pub(super) async fn unless<T>(&mut self, step: impl Future<Output = T>) -> Result<T, Order> {
        tokio::select! {
            biased;
            done = step => Ok(done),
            order = self.next() => Err(order),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use corten_server::node::Actor;
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::time::sleep;

    use super::*;

    fn takeovers() -> (Takeovers, UnboundedSender<()>, UnboundedSender<Request>) {
        let (press, presses) = unbounded_channel();
        let (ask, requests) = unbounded_channel();
        let operators = Operators::heed(presses).unwrap();
        (
            Takeovers {
                operators,
                requests,
            },
            press,
            ask,
        )
    }

    #[tokio::test]
    async fn power_button_or_a_forced_call_ends_the_current_wait_and_not_the_next() {
        let (mut takeovers, press, ask) = takeovers();
        press.send(()).unwrap();
        let order = takeovers.unless(pending::<()>()).await.unwrap_err();
        assert_eq!(order.action, Action::Shutdown { forced: true });
        assert_eq!(order.why, "the power button was pressed");
        let actor = Actor {
            id: "7".to_owned(),
            who: "serial=1".to_owned(),
        };
        ask.send(Request::Act(Action::ForcedReboot, actor)).unwrap();
        let order = takeovers.unless(pending::<()>()).await.unwrap_err();
        assert_eq!(order.action, Action::ForcedReboot);
        assert_eq!(order.why, "requested through the API by serial=1");
        assert_eq!(order.actor, "7");
        assert_eq!(takeovers.unless(async { 1 }).await.unwrap(), 1);
        assert!(takeovers.waiting().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_press_that_two_devices_report_is_one_order() {
        let (mut takeovers, press, _ask) = takeovers();
        press.send(()).unwrap();
        press.send(()).unwrap();
        assert!(takeovers.waiting().is_some());
        assert!(takeovers.waiting().is_none());
        sleep(BOUNCE).await;
        press.send(()).unwrap();
        assert!(takeovers.waiting().is_some());
    }

    #[tokio::test]
    async fn step_that_has_ended_is_not_taken_over() {
        let (mut takeovers, press, _ask) = takeovers();
        press.send(()).unwrap();
        assert_eq!(takeovers.unless(async { 1 }).await.unwrap(), 1);
        assert!(takeovers.waiting().is_some());
    }
}

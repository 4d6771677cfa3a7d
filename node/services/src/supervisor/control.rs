//! Services started and stopped for somebody who waits until it is done.

use tokio::sync::oneshot;

use super::policy::{Event, State};
use super::shell::Shell;
use crate::view::Control;

/// What is asked of a service, and who waits.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) control: Control,
    pub(super) done: oneshot::Sender<()>,
}

impl Shell {
    pub(super) fn control(&mut self, request: Request) {
        let event = match request.control {
            Control::Start => Event::Start,
            Control::Stop => Event::Stop,
            Control::Restart => Event::Restart,
        };
        self.happened(&request.id, event);
        self.controls.push(request);
    }

    /// Tells those whose request is fulfilled. Whoever asked for a service that is not there hears nothing; who
    /// waits no more is forgotten.
    pub(super) fn answer_controls(&mut self) {
        for request in std::mem::take(&mut self.controls) {
            if request.done.is_closed() {
                continue;
            }
            let service = self
                .services
                .iter()
                .find(|service| *service.spec.id == *request.id);
            match service {
                Some(service) if is_fulfilled(request.control, service.state) => {
                    let _ = request.done.send(());
                }
                Some(_) => self.controls.push(request),
                None => {}
            }
        }
    }
}

/// A service counts as started as soon as it does not end any more: it may wait for others for long.
fn is_fulfilled(control: Control, state: State) -> bool {
    match control {
        Control::Stop => state.is_at_rest(),
        Control::Start | Control::Restart => !matches!(state, State::Stopping { .. }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::supervisor::policy::Runs;

    #[test]
    fn who_stops_a_service_waits_for_its_end() {
        let stopping = State::Stopping {
            runs: Runs::Process(7),
            kill_at: Instant::now(),
            again: true,
        };
        for control in [Control::Stop, Control::Start, Control::Restart] {
            assert!(!is_fulfilled(control, stopping), "{control:?}");
        }
        let waiting = State::Waiting { deaths: 0 };
        assert!(is_fulfilled(Control::Restart, waiting) && is_fulfilled(Control::Start, waiting));
        assert!(!is_fulfilled(Control::Stop, waiting));
        assert!(is_fulfilled(Control::Stop, State::Finished));
    }
}

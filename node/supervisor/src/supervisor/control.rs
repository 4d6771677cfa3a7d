//! Requests to start or stop services from callers that wait for completion.

use tokio::sync::oneshot;

use super::policy::{Event, State};
use super::service::Service;
use crate::view::Control;

/// A request and the caller to notify.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) control: Control,
    pub(super) done: oneshot::Sender<()>,
}

impl Request {
    /// The event of the service.
    pub(super) fn event(&self) -> Event {
        match self.control {
            Control::Start => Event::Start,
            Control::Stop => Event::Stop,
            Control::Restart => Event::Restart,
        }
    }
}

/// Notifies callers whose request is fulfilled. A request for an unknown service, or from a caller that no longer waits,
/// is dropped.
pub(super) fn answer(requests: &mut Vec<Request>, services: &[Service]) {
    for request in std::mem::take(requests) {
        if request.done.is_closed() {
            continue;
        }
        let service = services
            .iter()
            .find(|service| *service.spec.id == *request.id);
        match service {
            Some(service) if is_fulfilled(request.control, service.state) => {
                let _ = request.done.send(());
            }
            Some(_) => requests.push(request),
            None => {}
        }
    }
}

/// A start is fulfilled as soon as the service is not stopping any more; it may still wait for dependencies for a long
/// time.
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
    fn stop_request_waits_for_the_end_of_the_service() {
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

//! Lists the services, and starts, stops and restarts them for callers.

use std::time::Duration;

use corten_api::machine as api;
use corten_supervisor::extension;
use tokio::time::timeout;
use tonic::Status;

use crate::node::{Control, Node, ServiceState, ServiceView, refused};

/// Timeout for a service to end: the longest grace period before SIGKILL, and 15 s for SIGKILL on a busy machine.
const PATIENCE: Duration = Duration::from_secs(45);

pub(super) fn list(views: &[ServiceView]) -> api::ServiceListResponse {
    let services = views.iter().map(info).collect();
    api::ServiceListResponse {
        messages: vec![api::ServiceList {
            metadata: None,
            services,
        }],
    }
}

fn info(view: &ServiceView) -> api::ServiceInfo {
    let events = view.events.iter().map(|event| api::ServiceEvent {
        msg: event.message.clone(),
        state: word(event.state).to_owned(),
        ts: Some(event.at.into()),
    });
    api::ServiceInfo {
        id: view.id.clone(),
        state: word(view.state).to_owned(),
        events: Some(api::ServiceEvents {
            events: events.collect(),
        }),
        health: Some(view.into()),
    }
}

/// Starts, stops or restarts a service; returns a confirmation.
pub(super) async fn control(node: &dyn Node, id: &str, control: Control) -> Result<String, Status> {
    let done = match control {
        Control::Start => "started",
        Control::Stop => "stopped",
        Control::Restart => "restarted",
    };
    if !node.services().iter().any(|view| view.id == id) {
        return Err(Status::not_found(format!(
            "id: there is no service {id:?}; the service list names all"
        )));
    }
    if !may_be_controlled(id, control) {
        let others = match control {
            Control::Start | Control::Restart => "the kubelet and extensions (ext-*)",
            Control::Stop => "extensions (ext-*)",
        };
        return Err(Status::failed_precondition(format!(
            "id: service {id:?} cannot be {done} through the API, because the node needs it; only {others} can"
        )));
    }
    let ended = node.control(id, control).map_err(|error| refused(&error))?;
    match timeout(PATIENCE, ended).await {
        Ok(Ok(())) => Ok(format!("Service {id:?} {done}")),
        Ok(Err(_)) => Err(Status::unavailable(
            "this boot is ending: services can no longer be controlled; call again after the next start",
        )),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "service {id:?} has not ended within {} s; `cortenctl service {id}` shows its history and `cortenctl logs \
             {id}` its output",
            PATIENCE.as_secs()
        ))),
    }
}

/// Whether a caller may control the service. Callers may restart the kubelet, and control extensions. The node depends
/// on the other services. A kubelet can be restarted but not stopped.
fn may_be_controlled(id: &str, control: Control) -> bool {
    match control {
        Control::Start | Control::Restart => id == "kubelet" || extension::is_one(id),
        Control::Stop => extension::is_one(id),
    }
}

const fn word(state: ServiceState) -> &'static str {
    match state {
        ServiceState::Initialized => "Initialized",
        ServiceState::Preparing => "Preparing",
        ServiceState::Waiting => "Waiting",
        ServiceState::Running => "Running",
        ServiceState::Stopping => "Stopping",
        ServiceState::Finished => "Finished",
        ServiceState::Failed => "Failed",
        ServiceState::Skipped => "Skipped",
        ServiceState::Starting => "Starting",
    }
}

#[cfg(test)]
mod tests {
    use corten_kubernetes::Node as Kubelet;
    use corten_supervisor::kubernetes::{etcd_service, kubelet_service, restore_service};
    use corten_supervisor::{ApiMode, Task, machined, table, trustd};

    use super::*;

    #[test]
    fn restart_of_a_service_that_needs_sigkill_is_waited_for() {
        let image = "image:1";
        let others = [
            machined(Task::new(|_| async { Ok(()) })),
            trustd(),
            etcd_service(image, Vec::new()),
            restore_service(image, Vec::new()),
            kubelet_service(&Kubelet::default(), Vec::new(), ""),
            extension::unusable("x", String::new()),
        ];
        for spec in table(ApiMode::Secure).into_iter().chain(others) {
            let needed = spec.limits.stop + Duration::from_secs(10);
            assert!(PATIENCE > needed, "{}", spec.id);
        }
    }

    #[test]
    fn callers_control_the_kubelet_and_extensions_only() {
        let allowed = |id: &str| {
            [Control::Start, Control::Stop, Control::Restart]
                .map(|control| may_be_controlled(id, control))
        };
        assert_eq!(allowed("kubelet"), [true, false, true]);
        assert_eq!(allowed("ext-iscsid"), [true, true, true]);
        for spec in table(ApiMode::Secure) {
            assert_eq!(allowed(&spec.id), [false; 3], "{}", spec.id);
        }
        assert_eq!(allowed("etcd"), [false; 3]);
    }
}

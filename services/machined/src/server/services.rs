//! The services, as the API words them.

use corten_api::machine as api;

use crate::node::{ServiceState, ServiceView};

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

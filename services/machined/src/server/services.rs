//! The services, as the API words them.

use std::time::SystemTime;

use corten_api::machine as api;
use prost_types::Timestamp;

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
        ts: Some(timestamp(event.at)),
    });
    api::ServiceInfo {
        id: view.id.clone(),
        state: word(view.state).to_owned(),
        events: Some(api::ServiceEvents {
            events: events.collect(),
        }),
        health: Some(api::ServiceHealth {
            unknown: view.healthy.is_none(),
            healthy: view.healthy == Some(true),
            last_message: view.health_message.clone(),
            last_change: Some(timestamp(view.health_changed)),
        }),
    }
}

fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp::from(at)
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

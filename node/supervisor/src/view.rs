//! Views of services for the API, and operations on them.

use std::time::SystemTime;

use corten_api::machine as api;

/// A service's state; names and numbers are those of `machine.ServiceInfo.state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the terms of the field")]
pub enum ServiceState {
    Initialized = 0,
    Preparing = 1,
    Waiting = 2,
    Running = 3,
    Stopping = 4,
    Finished = 5,
    Failed = 6,
    Skipped = 7,
    Starting = 8,
}

/// One entry of a service's history (the last 64 are kept).
#[derive(Debug, Clone)]
pub struct ServiceEvent {
    /// Human-readable message.
    pub message: String,
    /// State of the service from then on.
    pub state: ServiceState,
    /// Time of the event.
    pub at: SystemTime,
}

/// View of a service for the API.
#[derive(Debug, Clone)]
pub struct ServiceView {
    /// Id of the service; also the name of its log.
    pub id: String,
    /// State of the service.
    pub state: ServiceState,
    /// PID of its first process, while it runs.
    pub pid: Option<u32>,
    /// Whether it is healthy; `None` until the first result.
    pub healthy: Option<bool>,
    /// Message of the last failed health check; empty when healthy.
    pub health_message: String,
    /// Time of the last change of its health.
    pub health_changed: SystemTime,
    /// History, oldest event first.
    pub events: Vec<ServiceEvent>,
}

impl From<&ServiceView> for api::ServiceHealth {
    fn from(view: &ServiceView) -> api::ServiceHealth {
        api::ServiceHealth {
            unknown: view.healthy.is_none(),
            healthy: view.healthy == Some(true),
            last_message: view.health_message.clone(),
            last_change: Some(view.health_changed.into()),
        }
    }
}

/// An operation on a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Start the service.
    Start,
    /// Stop the service.
    Stop,
    /// Restart the service.
    Restart,
}

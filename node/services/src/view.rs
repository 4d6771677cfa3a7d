//! What a service is at the moment, as the API shows it, and what may be asked of it.

use std::time::SystemTime;

use corten_api::machine as api;

/// A service's state; names and numbers are those of `machine.ServiceInfo.state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the field's own and say it all")]
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
    /// What happened, for a person.
    pub message: String,
    /// The state entered.
    pub state: ServiceState,
    /// When.
    pub at: SystemTime,
}

/// A service as the API shows it.
#[derive(Debug, Clone)]
pub struct ServiceView {
    /// The service's id, also its log's name.
    pub id: String,
    /// Its state.
    pub state: ServiceState,
    /// Its first process, while it runs.
    pub pid: Option<u32>,
    /// `None` until the first health answer.
    pub healthy: Option<bool>,
    /// The last health check's message, empty when healthy.
    pub health_message: String,
    /// When health last changed.
    pub health_changed: SystemTime,
    /// Oldest first.
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

/// What may be asked of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// It shall run.
    Start,
    /// It shall not run.
    Stop,
    /// It shall run anew.
    Restart,
}

//! The supervisor's services, as resources.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use tokio::sync::watch;

use crate::node::{ServiceState, ServiceView};
use crate::resources::runtime::Service;
use crate::services::{OPTIONAL, extension};

#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) views: watch::Receiver<Vec<ServiceView>>,
}

impl Controller for Services {
    fn name(&self) -> &'static str {
        "v1alpha1.ServiceController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Service>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let views = self.views.borrow_and_update().clone();
            context.start_outputs();
            for view in views.iter().filter(|view| !is_off(view)) {
                context.put(Draft::new(&view.id, status(view)))?;
            }
            // Whoever reads this is served by it.
            let machined = Service {
                running: true,
                healthy: true,
                unknown: false,
            };
            context.put(Draft::new("machined", machined))?;
            context.remove_others::<Service>()?;
            // The supervisor is gone only when machined ends.
            if self.views.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Nobody wants it, or no longer, so that it does not run is no lack.
fn is_off(view: &ServiceView) -> bool {
    let is_optional = OPTIONAL.contains(&view.id.as_str());
    match view.state {
        ServiceState::Initialized => is_optional,
        ServiceState::Finished => is_optional || extension::is_one(&view.id),
        _ => false,
    }
}

fn status(view: &ServiceView) -> Service {
    Service {
        running: view.state == ServiceState::Running,
        healthy: view.healthy == Some(true),
        unknown: view.healthy.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn an_optional_service_is_missed_only_when_it_is_wanted() {
        let view = |id: &str, state| ServiceView {
            id: id.to_owned(),
            state,
            healthy: None,
            health_message: String::new(),
            health_changed: SystemTime::now(),
            events: Vec::new(),
        };
        assert!(is_off(&view("registryd", ServiceState::Initialized)));
        assert!(is_off(&view("registryd", ServiceState::Finished)));
        assert!(!is_off(&view("registryd", ServiceState::Waiting)));
        assert!(!is_off(&view("containerd", ServiceState::Initialized)));
        assert!(is_off(&view("ext-once", ServiceState::Finished)));
        assert!(!is_off(&view("ext-broken", ServiceState::Failed)));
    }
}

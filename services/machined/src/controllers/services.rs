//! The supervisor's services, as resources.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use tokio::sync::watch;

use crate::node::{ServiceState, ServiceView};
use crate::resources::runtime::Service;

#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) views: watch::Receiver<Vec<ServiceView>>,
}

impl Controller for Services {
    fn name(&self) -> &'static str {
        "v1alpha1.ServiceController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Service>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let views = self.views.borrow_and_update().clone();
            context.start_outputs();
            for view in views {
                context.put(Draft::new(&view.id, status(&view)))?;
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

fn status(view: &ServiceView) -> Service {
    Service {
        running: view.state == ServiceState::Running,
        healthy: view.healthy == Some(true),
        unknown: view.healthy.is_none(),
    }
}

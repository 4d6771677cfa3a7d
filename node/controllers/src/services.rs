//! Shows the supervisor's running services. A service that stops or restarts is not shown until it runs again: clients
//! wait for that.

use std::fs;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_supervisor::view::{ServiceState, ServiceView};
use corten_types::runtime::{Service, ServicePid};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct Services {
    pub(super) views: watch::Receiver<Vec<ServiceView>>,
}

impl Controller for Services {
    fn name(&self) -> &'static str {
        "v1alpha1.ServiceController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<Service>(),
            Output::exclusive::<ServicePid>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let views = self.views.borrow_and_update().clone();
            context.start_outputs();
            let is_running = |view: &&ServiceView| view.state == ServiceState::Running;
            for view in views.iter().filter(is_running) {
                context.put(Draft::new(&view.id, status(view)))?;
                if let Some(process) = view.pid.map(process) {
                    context.put(Draft::new(&view.id, process))?;
                }
            }
            context.remove_others::<Service>()?;
            context.remove_others::<ServicePid>()?;
            // The supervisor ends only with machined.
            if self.views.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn status(view: &ServiceView) -> Service {
    Service {
        running: true,
        healthy: view.healthy == Some(true),
        unknown: view.healthy.is_none(),
    }
}

fn process(pid: u32) -> ServicePid {
    // The process may have ended already.
    let namespace = fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap_or_default();
    ServicePid {
        pid,
        mount_namespace: namespace.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    fn view(id: &str, state: ServiceState) -> ServiceView {
        ServiceView {
            id: id.to_owned(),
            state,
            pid: None,
            healthy: None,
            health_message: String::new(),
            health_changed: SystemTime::now(),
            events: Vec::new(),
        }
    }

    #[tokio::test]
    async fn only_running_services_are_shown() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let pid = std::process::id();
        let running = ServiceView {
            pid: Some(pid),
            ..view("apid", ServiceState::Running)
        };
        let stopped = view("udevd", ServiceState::Failed);
        let views = watch::Sender::new(vec![running, stopped]);
        let services = Services {
            views: views.subscribe(),
        };
        drop(views);
        runtime.add(services).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        let shown = store.get_as::<ServicePid>("apid").unwrap();
        assert_eq!(shown.pid, pid);
        assert!(shown.mount_namespace.starts_with("mnt:["));
        assert!(store.get_as::<Service>("apid").is_some());
        assert!(store.get_as::<Service>("udevd").is_none());
        assert!(store.get_as::<ServicePid>("udevd").is_none());
    }
}

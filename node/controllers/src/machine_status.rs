//! Shows whether the node performs its role, and which conditions it does not meet.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_services::view::{ServiceState, ServiceView};
use corten_services::{OPTIONAL, extension};
use corten_types::network::NodeAddress;
use corten_types::runtime::{MachineStatus, Readiness, UnmetCondition};
use corten_types::stage::Stage;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct MachineStatuses {
    pub(super) stage: watch::Receiver<Stage>,
    /// Reason why the node is locked, if it is.
    pub(super) lock: watch::Receiver<Option<String>>,
    pub(super) views: watch::Receiver<Vec<ServiceView>>,
}

impl Controller for MachineStatuses {
    fn name(&self) -> &'static str {
        "runtime.MachineStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<MachineStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = self.stage.changed() => if changed.is_err() {
                    return Ok(());
                },
                changed = self.lock.changed() => if changed.is_err() {
                    return Ok(());
                },
                changed = self.views.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let stage = *self.stage.borrow_and_update();
            let lock = self.lock.borrow_and_update().clone();
            let lacking = services(&self.views.borrow_and_update());
            let mut unmet: Vec<UnmetCondition> = lock.into_iter().map(locked).collect();
            if matches!(stage, Stage::Maintenance | Stage::Running) {
                let current = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
                let reachable = current.is_some_and(|current| !current.addresses.is_empty());
                unmet.extend(lacking);
                unmet.extend(network(reachable));
            }
            let status = status(stage, unmet);
            context.put(Draft::new(MachineStatus::ID, status))?;
        }
    }
}

fn status(stage: Stage, unmet_conditions: Vec<UnmetCondition>) -> MachineStatus {
    let (stage, can_be_ready) = match stage {
        // The API has no stage for a locked node; such a node does not complete its boot.
        Stage::Booting | Stage::Locked => ("booting", false),
        Stage::Maintenance => ("maintenance", true),
        Stage::Running => ("running", true),
        Stage::Rebooting => ("rebooting", false),
        Stage::ShuttingDown => ("shutting down", false),
        Stage::Resetting => ("resetting", false),
    };
    let ready = can_be_ready && unmet_conditions.is_empty();
    MachineStatus {
        stage,
        status: Readiness {
            ready,
            unmet_conditions,
        },
    }
}

fn services(views: &[ServiceView]) -> Option<UnmetCondition> {
    let reasons: Vec<String> = views
        .iter()
        .filter(|view| !is_off(view))
        .filter_map(|view| match (view.state, view.healthy) {
            (ServiceState::Running, Some(true)) => None,
            (ServiceState::Running, _) => Some(format!("{} is not healthy", view.id)),
            _ => Some(format!("{} is not running", view.id)),
        })
        .collect();
    (!reasons.is_empty()).then(|| UnmetCondition {
        name: "services".to_owned(),
        reason: reasons.join(", "),
    })
}

/// Whether the service is intentionally off, so that it is not a failure.
fn is_off(view: &ServiceView) -> bool {
    let is_optional = OPTIONAL.contains(&view.id.as_str());
    match view.state {
        ServiceState::Initialized => is_optional,
        ServiceState::Finished => is_optional || extension::is_one(&view.id),
        _ => false,
    }
}

fn locked(reason: String) -> UnmetCondition {
    UnmetCondition {
        name: "owner".to_owned(),
        reason,
    }
}

fn network(reachable: bool) -> Option<UnmetCondition> {
    (!reachable).then(|| UnmetCondition {
        name: "network".to_owned(),
        reason: "no address yet".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    fn view(id: &str, state: ServiceState, healthy: bool) -> ServiceView {
        ServiceView {
            id: id.to_owned(),
            state,
            pid: None,
            healthy: Some(healthy),
            health_message: String::new(),
            health_changed: SystemTime::now(),
            events: Vec::new(),
        }
    }

    async fn until(store: &Store, expected: &str) {
        sample::until::<MachineStatus>(store, MachineStatus::ID, |status| {
            status.is_some_and(|status| {
                let unmet = status.status.unmet_conditions.iter();
                let reasons: Vec<_> = unmet.map(|unmet| unmet.reason.as_str()).collect();
                let ready = status.status.ready;
                format!("{} {ready} {}", status.stage, reasons.join("; ")) == expected
            })
        })
        .await;
    }

    #[tokio::test]
    async fn node_is_ready_when_no_condition_is_unmet() {
        let store = Store::new();
        let stage = watch::Sender::new(Stage::Booting);
        let mut runtime = Runtime::new(store.clone());
        let lock = watch::Sender::new(None);
        let views = watch::Sender::new(Vec::new());
        let controller = MachineStatuses {
            views: views.subscribe(),
            lock: lock.subscribe(),
            stage: stage.subscribe(),
        };
        runtime.add(controller).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        until(&store, "booting false ").await;
        let running = |id, healthy| view(id, ServiceState::Running, healthy);
        let stopped = view("trustd", ServiceState::Stopping, false);
        views.send_replace(vec![
            running("udevd", true),
            running("apid", false),
            stopped,
        ]);
        stage.send_replace(Stage::Running);
        until(
            &store,
            "running false apid is not healthy, trustd is not running; no address yet",
        )
        .await;
        views.send_replace(vec![running("udevd", true), running("apid", true)]);
        let addresses = vec!["10.0.2.15/24".to_owned()];
        let sort_algorithm = "v1";
        let current = NodeAddress {
            addresses,
            sort_algorithm,
        };
        store
            .put(Draft::new(NodeAddress::CURRENT, current), "")
            .unwrap();
        until(&store, "running true ").await;
        lock.send_replace(Some("STATE is damaged".to_owned()));
        stage.send_replace(Stage::Locked);
        until(&store, "booting false STATE is damaged").await;
        lock.send_replace(None);
        stage.send_replace(Stage::Rebooting);
        until(&store, "rebooting false ").await;
    }

    #[test]
    fn optional_service_counts_as_missing_only_when_it_is_requested() {
        assert!(is_off(&view("registryd", ServiceState::Initialized, false)));
        assert!(is_off(&view("registryd", ServiceState::Finished, false)));
        assert!(!is_off(&view("registryd", ServiceState::Waiting, false)));
        assert!(!is_off(&view(
            "containerd",
            ServiceState::Initialized,
            false
        )));
        assert!(is_off(&view("ext-once", ServiceState::Finished, false)));
        assert!(!is_off(&view("ext-broken", ServiceState::Failed, false)));
    }
}

//! Shows whether the node performs its role, and which conditions it does not meet.

use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Typed};
use corten_types::network::NodeAddress;
use corten_types::runtime::{MachineStatus, Readiness, Service, UnmetCondition};
use corten_types::stage::Stage;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct MachineStatuses {
    pub(super) stage: watch::Receiver<Stage>,
    /// Reason why the node is locked, if it is.
    pub(super) lock: watch::Receiver<Option<String>>,
}

impl Controller for MachineStatuses {
    fn name(&self) -> &'static str {
        "runtime.MachineStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Service>(Dependency::Weak),
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT),
        ]
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
            }
            let stage = *self.stage.borrow_and_update();
            let lock = self.lock.borrow_and_update().clone();
            let mut unmet: Vec<UnmetCondition> = lock.into_iter().map(locked).collect();
            if matches!(stage, Stage::Maintenance | Stage::Running) {
                let current = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
                let reachable = current.is_some_and(|current| !current.addresses.is_empty());
                unmet.extend(services(&context.list::<Service>()?));
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

fn services(services: &[Typed<Service>]) -> Option<UnmetCondition> {
    let lacks = |service: &&Typed<Service>| !service.running || !service.healthy;
    let reasons: Vec<String> = services
        .iter()
        .filter(lacks)
        .map(|service| {
            let what = if service.running {
                "healthy"
            } else {
                "running"
            };
            format!("{} is not {what}", service.id())
        })
        .collect();
    (!reasons.is_empty()).then(|| UnmetCondition {
        name: "services".to_owned(),
        reason: reasons.join(", "),
    })
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
    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    fn service(store: &Store, id: &str, healthy: bool) {
        let service = Service {
            running: true,
            healthy,
            unknown: false,
        };
        store.put(Draft::new(id, service), "").unwrap();
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
        let controller = MachineStatuses {
            lock: lock.subscribe(),
            stage: stage.subscribe(),
        };
        runtime.add(controller).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        until(&store, "booting false ").await;
        service(&store, "udevd", true);
        service(&store, "apid", false);
        stage.send_replace(Stage::Running);
        until(&store, "running false apid is not healthy; no address yet").await;
        service(&store, "apid", true);
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
}

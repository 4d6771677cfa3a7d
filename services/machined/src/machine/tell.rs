//! Publishes the node's events for the clients that follow them.

use std::convert::Infallible;

use corten_api::machine as api;
use corten_api::machine::machine_status_event::machine_status::UnmetCondition;
use corten_api::machine::machine_status_event::{self, MachineStage};
use corten_api::machine::{phase_event, sequence_event, task_event};
use corten_base::console;
use corten_base::events::Events;
use corten_resources::{Pointer, Spec, Start, Store, StoreError};
use corten_server::node::Node;
use corten_types::network::NodeAddress;
use corten_types::runtime::MachineStatus;

use super::{Fatal, Machine};

impl Machine {
    /// Publishes the begin of a sequence.
    pub(super) fn tell_begin(&self, sequence: &str, actor: &str) {
        let event = api::SequenceEvent {
            sequence: sequence.to_owned(),
            action: sequence_event::Action::Start.into(),
            error: None,
        };
        self.node.events().publish(actor, &event);
    }

    /// Publishes the end of a sequence.
    pub(super) fn tell_end(&self, sequence: &str, actor: &str, failure: Option<&Fatal>) {
        let error = failure.map(|fatal| corten_api::common::Error {
            message: fatal.to_string(),
            ..Default::default()
        });
        let event = api::SequenceEvent {
            sequence: sequence.to_owned(),
            action: sequence_event::Action::Stop.into(),
            error,
        };
        self.node.events().publish(actor, &event);
    }

    pub(super) fn tell_phase(&self, name: &str, action: phase_event::Action) {
        let event = api::PhaseEvent {
            phase: name.to_owned(),
            action: action.into(),
        };
        self.node.events().publish("", &event);
    }

    pub(super) fn tell_task(&self, name: &str, actor: &str, action: task_event::Action) {
        let event = api::TaskEvent {
            task: name.to_owned(),
            action: action.into(),
        };
        self.node.events().publish(actor, &event);
    }

    /// Publishes that a present config is unusable.
    pub(super) fn tell_bad_config(&self, error: &str) {
        let event = api::ConfigLoadErrorEvent {
            error: error.to_owned(),
        };
        self.node.events().publish("", &event);
    }
}

/// Publishes each change of the machine's status and addresses. Runs until machined ends. Both types must be registered
/// in the store already.
pub(super) async fn tell_status(store: Store, events: Events) {
    let told = tokio::try_join!(
        on_change(&store, MachineStatus::ID, |status| {
            events.publish("", &status_event(status));
        }),
        on_change(&store, NodeAddress::CURRENT, |current: &NodeAddress| {
            let event = api::AddressEvent {
                hostname: corten_sys::host::hostname(),
                addresses: current.addresses.clone(),
            };
            events.publish("", &event);
        }),
    );
    let Err(error) = told;
    console::error(&format!(
        "events: the machine's status is not reported: {error}"
    ));
}

async fn on_change<S: Spec>(
    store: &Store,
    id: &str,
    tell: impl Fn(&S),
) -> Result<Infallible, StoreError> {
    loop {
        let mut changes = store.watch(&Pointer::of::<S>(id), Start::Now)?;
        // A watch that falls behind ends. The next watch begins with the present state.
        while changes.next().await.is_some() {
            if let Some(found) = store.get_as::<S>(id) {
                tell(&found);
            }
        }
    }
}

fn status_event(status: &MachineStatus) -> api::MachineStatusEvent {
    let stage = match status.stage {
        "booting" => MachineStage::Booting,
        "maintenance" => MachineStage::Maintenance,
        "running" => MachineStage::Running,
        "rebooting" => MachineStage::Rebooting,
        "shutting down" => MachineStage::ShuttingDown,
        "resetting" => MachineStage::Resetting,
        _ => MachineStage::Unknown,
    };
    let unmet = status.status.unmet_conditions.iter();
    api::MachineStatusEvent {
        stage: stage.into(),
        status: Some(machine_status_event::MachineStatus {
            ready: status.status.ready,
            unmet_conditions: unmet
                .map(|unmet| UnmetCondition {
                    name: unmet.name.clone(),
                    reason: unmet.reason.clone(),
                })
                .collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_base::events::{From, Reader};
    use corten_resources::Draft;
    use corten_types::runtime::{Readiness, UnmetCondition};
    use prost::Message as _;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn events_report_machine_status_and_addresses() {
        let (store, events) = (Store::new(), Events::default());
        store.register::<MachineStatus>().unwrap();
        store.register::<NodeAddress>().unwrap();
        let mut reader = events.read(From::Now);
        let _telling = tokio::spawn(tell_status(store.clone(), events));

        let ready = MachineStatus {
            stage: "running",
            status: Readiness {
                ready: true,
                unmet_conditions: Vec::new(),
            },
        };
        let event = status_event(&ready);
        assert_eq!(event.stage(), MachineStage::Running);
        store.put(Draft::new(MachineStatus::ID, ready), "").unwrap();
        let told = reader.next().await.unwrap();
        assert_eq!(told.data.value, event.encode_to_vec());

        let address = NodeAddress {
            addresses: vec!["192.0.2.7/24".to_owned()],
            sort_algorithm: "v1",
        };
        let current = Draft::new(NodeAddress::CURRENT, address);
        store.put(current, "").unwrap();
        let told = reader.next().await.unwrap();
        assert!(told.data.type_url.ends_with("machine.AddressEvent"));
        let event = api::AddressEvent::decode(told.data.value.as_slice()).unwrap();
        assert_eq!(event.addresses, ["192.0.2.7/24"]);
    }

    #[tokio::test]
    async fn status_events_continue_after_the_watch_fell_behind() {
        let (store, events) = (Store::new(), Events::default());
        store.register::<MachineStatus>().unwrap();
        store.register::<NodeAddress>().unwrap();
        let mut reader = events.read(From::Now);
        let _telling = tokio::spawn(tell_status(store.clone(), events));
        let status = |reason: String| {
            let ready = false;
            let name = "network".to_owned();
            let unmet_conditions = vec![UnmetCondition { name, reason }];
            let status = Readiness {
                ready,
                unmet_conditions,
            };
            let stage = "running";
            MachineStatus { stage, status }
        };
        let put = |reason: String| {
            let draft = Draft::new(MachineStatus::ID, status(reason));
            store.put(draft, "").unwrap();
        };
        for round in 0..2 {
            let first = format!("{round}");
            put(first.clone());
            until_told(&mut reader, &status_event(&status(first))).await;
            // More changes than the store keeps, while the watch does not run.
            let last = 10_000;
            (1..=last).for_each(|number| put(format!("{round} {number}")));
            let last = status(format!("{round} {last}"));
            until_told(&mut reader, &status_event(&last)).await;
        }
    }

    async fn until_told(reader: &mut Reader, event: &api::MachineStatusEvent) {
        let told =
            async { while reader.next().await.unwrap().data.value != event.encode_to_vec() {} };
        timeout(Duration::from_secs(60), told).await.unwrap();
    }
}

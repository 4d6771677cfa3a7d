//! What happens on the node, for those who follow its events.

use corten_api::machine as api;
use corten_api::machine::machine_status_event::machine_status::UnmetCondition;
use corten_api::machine::machine_status_event::{self, MachineStage};
use corten_api::machine::{phase_event, sequence_event, task_event};
use corten_resources::{Pointer, Start, Store};

use super::{Fatal, Machine};
use crate::events::Events;
use crate::node::Node;
use crate::resources::network::NodeAddress;
use crate::resources::runtime::MachineStatus;

impl Machine {
    /// A sequence begins.
    pub(super) fn tell_begin(&self, sequence: &str, actor: &str) {
        let event = api::SequenceEvent {
            sequence: sequence.to_owned(),
            action: sequence_event::Action::Start.into(),
            error: None,
        };
        self.node.events().publish(actor, &event);
    }

    /// A sequence ended.
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

    /// A config that was there and could not be used.
    pub(super) fn tell_bad_config(&self, error: &str) {
        let event = api::ConfigLoadErrorEvent {
            error: error.to_owned(),
        };
        self.node.events().publish("", &event);
    }
}

/// Tells of each change of the machine's status and addresses; ends with machined.
pub(super) async fn tell_status(store: Store, events: Events) {
    let status = Pointer::of::<MachineStatus>(MachineStatus::ID);
    let address = Pointer::of::<NodeAddress>(NodeAddress::CURRENT);
    let (Ok(mut statuses), Ok(mut addresses)) = (
        store.watch(&status, Start::Now),
        store.watch(&address, Start::Now),
    ) else {
        return;
    };
    loop {
        tokio::select! {
            change = statuses.next() => {
                if change.is_none() {
                    return;
                }
                if let Some(status) = store.get_as::<MachineStatus>(MachineStatus::ID) {
                    events.publish("", &status_event(&status));
                }
            }
            change = addresses.next() => {
                if change.is_none() {
                    return;
                }
                if let Some(current) = store.get_as::<NodeAddress>(NodeAddress::CURRENT) {
                    let event = api::AddressEvent {
                        hostname: corten_sys::host::hostname(),
                        addresses: current.addresses.clone(),
                    };
                    events.publish("", &event);
                }
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

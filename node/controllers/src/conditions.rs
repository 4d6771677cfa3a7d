//! Reports conditions of services that resources reveal: network and time.

use corten_extension::service::NetworkPart;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::Condition;
use corten_supervisor::supervisor::Conditions;
use corten_types::clock::TimeStatus;
use corten_types::network_names::NetworkStatus;

#[derive(Debug, Clone)]
pub(super) struct ServiceConditions {
    pub(super) conditions: Conditions,
}

impl Controller for ServiceConditions {
    fn name(&self) -> &'static str {
        "runtime.ServiceConditionController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<NetworkStatus>(Dependency::Weak).with_id(NetworkStatus::ID),
            Input::of::<TimeStatus>(Dependency::Weak).with_id(TimeStatus::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let time = context.get::<TimeStatus>(TimeStatus::ID)?;
            self.tell(Condition::Time, time.is_some_and(|time| time.synced));
            let Some(status) = context.get::<NetworkStatus>(NetworkStatus::ID)? else {
                continue;
            };
            for (part, is_ready) in [
                (NetworkPart::Addresses, status.address_ready),
                (NetworkPart::Connectivity, status.connectivity_ready),
                (NetworkPart::Hostname, status.hostname_ready),
                (NetworkPart::EtcFiles, status.etc_files_ready),
            ] {
                self.tell(Condition::Network(part), is_ready);
            }
        }
    }
}

impl ServiceConditions {
    fn tell(&self, condition: Condition, holds: bool) {
        let holds = if holds {
            Ok(())
        } else {
            Err("not yet".to_owned())
        };
        self.conditions.set(condition, holds);
    }
}

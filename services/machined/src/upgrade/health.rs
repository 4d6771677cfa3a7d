//! The health of a node before an upgrade and on trial: a version stays if it does what the previous version did.

use corten_installer::Trial;
use corten_server::node::{Node, ServiceState, ServiceView, Stage};
use corten_types::runtime::{MachineStatus, UnmetCondition};
use corten_types::volume::VolumeStatus;

/// Condition of the machine's status that repeats the health of services.
const SERVICES: &str = "services";
/// Phase of a volume that can be used.
const READY: &str = "ready";
/// Kind of a volume that needs no device of its own.
const DIRECTORY: &str = "directory";

/// The health of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Current stage.
    pub stage: Stage,
    /// IDs of the healthy services.
    pub services: Vec<String>,
    /// Names of the partitions and disks that can be used.
    pub volumes: Vec<String>,
    /// Conditions of readiness that are not met.
    pub unmet: Vec<UnmetCondition>,
}

impl Health {
    /// The health of this node at this moment.
    #[must_use]
    pub fn of(node: &dyn Node) -> Health {
        let services = node.services().into_iter().filter(is_healthy);
        let volumes = node.store().list_as::<VolumeStatus>().into_iter();
        let usable = volumes.filter(|volume| volume.phase == READY && volume.kind != DIRECTORY);
        let status = node.store().get_as::<MachineStatus>(MachineStatus::ID);
        let unmet = status.map(|status| status.status.unmet_conditions.clone());
        Health {
            stage: node.stage(),
            services: services.map(|view| view.id).collect(),
            volumes: usable.map(|volume| volume.id().to_owned()).collect(),
            unmet: unmet.unwrap_or_default(),
        }
    }

    /// The record of a trial that begins now, without its entry.
    #[must_use]
    pub fn trial(self, from: String, to: String, started: u64) -> Trial {
        let unmet = self.unmet.into_iter().map(|condition| condition.name);
        Trial {
            from,
            to,
            entry: String::new(),
            stage: stage_name(self.stage).to_owned(),
            services: self.services,
            volumes: self.volumes,
            unmet: Some(unmet.collect()),
            started,
            tries: 0,
            verdict: None,
            reason: String::new(),
        }
    }

    /// Functions that worked before the trial and do not work now.
    #[must_use]
    pub fn lost(&self, trial: &Trial) -> Vec<String> {
        let is_there = matches!(self.stage, Stage::Running | Stage::Maintenance)
            && stage_name(self.stage) == trial.stage;
        let stage = (!is_there).then(|| format!("the node is not {}", trial.stage));
        let services = trial.services.iter();
        let services = services.filter(|id| !self.services.contains(id));
        let services = services.map(|id| format!("service {id} is not healthy"));
        let volumes = trial.volumes.iter();
        let volumes = volumes.filter(|name| !self.volumes.contains(name));
        let volumes = volumes.map(|name| format!("volume {name} is not ready"));
        let is_new = |condition: &&UnmetCondition| {
            let before = trial.unmet.as_ref();
            let was_met = before.is_some_and(|unmet| !unmet.contains(&condition.name));
            was_met && condition.name != SERVICES
        };
        let conditions = self.unmet.iter().filter(is_new);
        let conditions = conditions.map(|one| format!("{}: {}", one.name, one.reason));
        let lost = stage.into_iter().chain(services);
        lost.chain(volumes).chain(conditions).collect()
    }
}

/// Names of stages in the record.
fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Running => "running",
        _ => "maintenance",
    }
}

/// Whether a service is healthy.
#[must_use]
pub fn is_healthy(view: &ServiceView) -> bool {
    view.state == ServiceState::Running && view.healthy == Some(true)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn unmet(name: &str) -> UnmetCondition {
        UnmetCondition {
            name: name.to_owned(),
            reason: "it is not ready".to_owned(),
        }
    }

    fn running() -> Health {
        Health {
            stage: Stage::Running,
            services: names(&["apid", "kubelet"]),
            volumes: names(&["EPHEMERAL", "u-data"]),
            unmet: Vec::new(),
        }
    }

    fn trial(health: Health) -> Trial {
        health.trial("1".to_owned(), "2".to_owned(), 0)
    }

    #[test]
    fn only_a_running_service_that_passes_its_checks_is_healthy() {
        let view = |state, healthy| ServiceView {
            id: "kubelet".to_owned(),
            state,
            pid: None,
            healthy,
            health_message: String::new(),
            health_changed: SystemTime::UNIX_EPOCH,
            events: Vec::new(),
        };
        assert!(is_healthy(&view(ServiceState::Running, Some(true))));
        for (state, healthy) in [
            (ServiceState::Running, Some(false)),
            (ServiceState::Running, None),
            (ServiceState::Waiting, Some(true)),
        ] {
            assert!(!is_healthy(&view(state, healthy)), "{state:?} {healthy:?}");
        }
    }

    #[test]
    fn version_on_trial_must_do_what_the_previous_version_did() {
        let trial = trial(running());
        assert!(running().lost(&trial).is_empty());
        for stage in [Stage::Maintenance, Stage::Locked, Stage::Booting] {
            let health = Health { stage, ..running() };
            assert_eq!(health.lost(&trial), ["the node is not running"]);
        }
        let health = Health {
            services: names(&["apid", "another"]),
            ..running()
        };
        assert_eq!(health.lost(&trial), ["service kubelet is not healthy"]);
        let health = Health {
            volumes: names(&["EPHEMERAL"]),
            ..running()
        };
        assert_eq!(health.lost(&trial), ["volume u-data is not ready"]);
        let health = Health {
            unmet: vec![unmet("services"), unmet("nodeReady"), unmet("network")],
            ..running()
        };
        let expected = ["nodeReady: it is not ready", "network: it is not ready"];
        assert_eq!(health.lost(&trial), expected);
    }

    #[test]
    fn failures_of_the_previous_version_are_no_failures_of_the_version_on_trial() {
        let sick = Health {
            stage: Stage::Running,
            services: names(&["apid"]),
            volumes: names(&["EPHEMERAL"]),
            unmet: vec![unmet("nodeReady")],
        };
        assert!(sick.lost(&trial(sick.clone())).is_empty());
        assert!(running().lost(&trial(sick)).is_empty());
        // A record of an older version names no conditions and no volumes.
        let older = Trial {
            unmet: None,
            volumes: Vec::new(),
            ..trial(running())
        };
        let health = Health {
            volumes: Vec::new(),
            unmet: vec![unmet("nodeReady")],
            ..running()
        };
        assert!(health.lost(&older).is_empty());
    }

    #[test]
    fn node_without_an_owner_must_not_be_locked_by_a_new_version() {
        let maintenance = Health {
            stage: Stage::Maintenance,
            services: Vec::new(),
            volumes: Vec::new(),
            unmet: Vec::new(),
        };
        let trial = trial(maintenance.clone());
        assert!(maintenance.lost(&trial).is_empty());
        let locked = Health {
            stage: Stage::Locked,
            ..maintenance
        };
        assert_eq!(locked.lost(&trial), ["the node is not maintenance"]);
    }
}

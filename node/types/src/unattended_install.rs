//! Progress of an installation without an operator.

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

/// Phase of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The node writes the disk.
    Installing,
    /// The node runs from its disk.
    Installed,
    /// The disk is written; the node runs from it after its next start.
    WaitingForReboot,
    /// The last attempt has failed.
    Failed,
}

/// The installation that an `UnattendedInstallConfig` requests; id [`UnattendedInstallStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnattendedInstallStatus {
    /// Image of the installer; empty for the medium that the node was started from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Current phase.
    pub phase: Phase,
    /// Reason of a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl UnattendedInstallStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "unattended-install";
}

impl Spec for UnattendedInstallStatus {
    const DEFINITION: Definition = open(
        "UnattendedInstallStatuses.runtime.talos.dev",
        "runtime",
        &[],
        &[column("Phase", ".phase")],
    );

    type Message = wire::UnattendedInstallStatusSpec;

    fn message(&self) -> wire::UnattendedInstallStatusSpec {
        let phase = match self.phase {
            Phase::Installing => wire::UnattendedInstallPhase::Installing,
            Phase::Installed => wire::UnattendedInstallPhase::Installed,
            Phase::WaitingForReboot => wire::UnattendedInstallPhase::WaitingForReboot,
            Phase::Failed => wire::UnattendedInstallPhase::Failed,
        };
        wire::UnattendedInstallStatusSpec {
            image: self.image.clone(),
            phase: phase.into(),
            error: self.error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn phases_have_the_names_and_numbers_of_the_reference() {
        let status = UnattendedInstallStatus {
            image: String::new(),
            phase: Phase::WaitingForReboot,
            error: String::new(),
        };
        let yaml = serde_json::to_value(&status).unwrap();
        assert_eq!(yaml, json!({"phase": "waiting-for-reboot"}));
        assert_eq!(status.message().phase, 3);
    }
}

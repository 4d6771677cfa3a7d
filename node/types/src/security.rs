//! What was checked on the way to a running node.

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::names::{FIPS_STATES, SELINUX_STATES, number};
use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// What the firmware and the kernel enforce; id [`SecurityState::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityState {
    /// The firmware starts only what is signed.
    pub secure_boot: bool,
    /// `disabled`; `enabled, permissive`; `enabled, enforcing`.
    pub selinux_state: &'static str,
    /// `disabled` or `enabled`.
    pub fips_state: &'static str,
    /// Kernel, initramfs and command line were one file.
    #[serde(rename = "bootedWithUKI", skip_serializing_if = "is_default")]
    pub booted_with_uki: bool,
    /// The kernel loads only signed modules.
    #[serde(skip_serializing_if = "is_default")]
    pub module_signature_enforced: bool,
    /// The firmware trusts the published development key, which everybody has: Secure Boot protects from nobody.
    #[serde(skip_serializing_if = "is_default")]
    pub development_keys: bool,
}

impl SecurityState {
    /// There is one.
    pub const ID: &str = "securitystate";
}

impl Spec for SecurityState {
    const DEFINITION: Definition = open(
        "SecurityStates.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("SecureBoot", ".secureBoot"),
            column("UKISigningKeyFingerprint", ".ukiSigningKeyFingerprint"),
            column("PCRSigningKeyFingerprint", ".pcrSigningKeyFingerprint"),
            column("SELinuxState", ".selinuxState"),
            column("ModuleSignatureEnforced", ".moduleSignatureEnforced"),
        ],
    );

    type Message = wire::SecurityStateSpec;

    fn message(&self) -> wire::SecurityStateSpec {
        wire::SecurityStateSpec {
            secure_boot: self.secure_boot,
            se_linux_state: number(self.selinux_state, SELINUX_STATES).unwrap_or_default(),
            booted_with_uki: self.booted_with_uki,
            fips_state: number(self.fips_state, FIPS_STATES).unwrap_or_default(),
            module_signature_enforced: self.module_signature_enforced,
        }
    }
}

/// Which entry of the boot loader's menu was started; id [`BootedEntry::ID`]. There is none where the loader
/// does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootedEntry {
    /// The entry's name, such as a UKI's file.
    pub booted_entry: String,
}

impl BootedEntry {
    /// There is one.
    pub const ID: &str = "bootedentry";
}

impl Spec for BootedEntry {
    const DEFINITION: Definition = open(
        "BootedEntries.talos.dev",
        NAMESPACE,
        &[],
        &[column("Booted Entry", ".bootedEntry")],
    );

    type Message = wire::BootedEntrySpec;

    fn message(&self) -> wire::BootedEntrySpec {
        let booted_entry = self.booted_entry.clone();
        wire::BootedEntrySpec { booted_entry }
    }
}

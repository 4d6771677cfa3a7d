//! Security state of the boot.

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::names::{FIPS_STATES, SELINUX_STATES, number};
use super::{column, is_default, open};

const NAMESPACE: &str = "runtime";

/// Protections that the firmware and the kernel enforce; id [`SecurityState::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityState {
    /// Whether the firmware starts only signed images (Secure Boot).
    pub secure_boot: bool,
    /// `disabled`; `enabled, permissive`; `enabled, enforcing`.
    pub selinux_state: &'static str,
    /// `disabled` or `enabled`.
    pub fips_state: &'static str,
    /// Whether the node booted from a unified kernel image (UKI): kernel, initramfs and command line in one file.
    #[serde(rename = "bootedWithUKI", skip_serializing_if = "is_default")]
    pub booted_with_uki: bool,
    /// Whether the kernel loads only signed modules.
    #[serde(skip_serializing_if = "is_default")]
    pub module_signature_enforced: bool,
    /// Whether the firmware trusts the development key. Its private half is public, so Secure Boot then protects
    /// nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub development_keys: bool,
}

impl SecurityState {
    /// Id of the only resource of this type.
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

/// The entry of the boot loader's menu that was started; id [`BootedEntry::ID`]. It is absent if the boot loader does
/// not report the entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootedEntry {
    /// Name of the entry, such as a UKI's file name.
    pub booted_entry: String,
}

impl BootedEntry {
    /// Id of the only resource of this type.
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

//! Files in `/etc` that the node writes for programs.

use std::fmt;

use corten_api::talos::resource::definitions::files as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::open;

const NAMESPACE: &str = "files";

/// A file in `/etc`; its id is its name in that directory.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct EtcFileSpec {
    /// Complete content.
    pub contents: String,
    /// Permission bits.
    pub mode: u32,
    /// Always empty: the node sets no SELinux labels.
    pub selinux_label: &'static str,
}

impl fmt::Debug for EtcFileSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcFileSpec").finish_non_exhaustive()
    }
}

impl Spec for EtcFileSpec {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("EtcFileSpecs.files.talos.dev", NAMESPACE, &[], &[])
    };

    type Message = wire::EtcFileSpecSpec;

    fn message(&self) -> wire::EtcFileSpecSpec {
        wire::EtcFileSpecSpec {
            contents: self.contents.clone().into_bytes(),
            mode: self.mode,
            selinux_label: self.selinux_label.to_owned(),
        }
    }
}

/// Marks an [`EtcFileSpec`] as written; same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcFileStatus {
    /// Version of the [`EtcFileSpec`].
    pub spec_version: String,
}

impl Spec for EtcFileStatus {
    const DEFINITION: Definition = open("EtcFileStatuses.files.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::EtcFileStatusSpec;

    fn message(&self) -> wire::EtcFileStatusSpec {
        let spec_version = self.spec_version.clone();
        wire::EtcFileStatusSpec { spec_version }
    }
}

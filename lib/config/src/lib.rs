//! The machine config in the format of the reference: the documents that describe a node completely.
//!
//! Owns: the fields with their support ([`v1alpha1`], [`kinds`]), validation, and redaction.
//! Never: reads files, uses the network, or decides; it only interprets the text.

mod carried;
mod conflicts;
pub mod cri;
mod document;
mod forms;
mod hardened;
pub mod identity;
pub mod images;
pub mod installation;
mod kept;
pub mod kinds;
mod manifests;
mod parse;
mod pod_access;
pub mod redact;
pub mod registries;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod v1alpha1;

pub use document::{Document, HostDnsWishes, Mode};
pub use forms::IssuingCa;
pub use manifests::ExternalManifest;
pub use pod_access::{POD_ROLES, PodAccess};
pub use v1alpha1::{Cluster, Machine, MachineType};

//! The machine config: the documents that describe a node completely.
//!
//! Owns: the list of fields, validation, and redaction.
//! Never does: files, network, decisions. It only interprets the text.
//! Talks to: nothing; machined and the client link it.
//! On a laptop: `cargo test -p corten-config`.
//!
//! The format is the reference's, whose clients we serve: the document without a kind ([`v1alpha1`]) and those with one
//! ([`kinds`]). The tables there are the only place that states the support of a field or a kind:
//! - *acted on*: the node does what the field says;
//! - *held*: accepted and kept, because generated configs have it for a part that may not exist yet, such as cluster
//!   discovery or the installer;
//! - *later*: known, and refused as `not supported yet`, so that no operator relies on a setting without effect. Empty
//!   values have no effect and pass.
//!
//! Any other field is an error, with its line and column. All problems of a config are reported together. Secrets are
//! [`corten_values::Secret`], which cannot be printed. `docs/configuration.md` is generated from the same tables.

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
pub use pod_access::{POD_ROLES, PodAccess};
pub use v1alpha1::{Cluster, Machine, MachineType};

//! The machine config: one document that says all a node should be.
//!
//! Owns: the v1alpha1 schema, parsing with positions, validation, redaction.
//! Never does: files, network, decisions. It only says what is written.
//! Talks to: nobody; machined and the client link it.
//! On a laptop: `cargo test -p corten-config`.
//!
//! The format is that of the system whose clients we serve (v1alpha1). Three
//! things can be true of a field, and [`schema`] is the one place that says
//! which:
//! - *acted on*: the node does what the field says;
//! - *held*: accepted and kept, because a generated config carries it for
//!   Kubernetes, the installer or cluster discovery, which read it when the
//!   node has them: `cluster.*` (identity, secrets, images, subnets),
//!   `machine.kubelet`, `machine.install`, `machine.nodeLabels` and the
//!   Kubernetes switches of `machine.features`;
//! - *not yet*: known, and refused as `not supported yet`, so that nobody
//!   believes in a setting that does nothing. Empty values ask for nothing
//!   and pass.
//!
//! Anything else is an unknown field, with its line and column. All problems
//! of a document are reported together. Secrets are [`Secret`], which does not
//! print itself.

mod check;
mod document;
mod extract;
mod problem;
mod redact;
pub mod schema;
mod secret;
mod tree;

#[cfg(test)]
mod tests;

pub use document::{Cluster, Document, KeyPair, Machine, MachineType, Mode};
pub use problem::{Problem, Problems};
pub use secret::Secret;

/// The largest document accepted, in bytes. Generated ones are about 10 KiB;
/// inline manifests may make them much larger.
pub const MAX_SIZE: usize = 8 * 1024 * 1024;

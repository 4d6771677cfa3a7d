//! The machine config: documents that say all a node should be.
//!
//! Owns: the fields there are, parsing with positions, validation, patches,
//! redaction, what a change from one config to another means, and what platforms
//! say of the network ([`platform`]).
//! Never does: files, network, decisions. It only says what is written.
//! Talks to: nobody; machined and the client link it.
//! On a laptop: `cargo test -p corten-config`.
//!
//! The format is that of the system whose clients we serve: the document
//! without a kind ([`v1alpha1`]) and those with one ([`kinds`]). Three things
//! can be true of a field or a kind, and the tables there are the one place
//! that says which:
//! - *acted on*: the node does what the field says;
//! - *held*: accepted and kept, because a generated config carries it for
//!   Kubernetes, the installer, cluster discovery or another part that reads
//!   it when the node has it;
//! - *later*: known, and refused as `not supported yet`, so that nobody
//!   believes in a setting that does nothing. Empty values ask for nothing
//!   and pass.
//!
//! Anything else is an unknown field, with its line and column. All problems
//! of a config are reported together. Secrets are [`Secret`], which does not
//! print itself. `docs/configuration.md` is written from the same tables.

mod conflicts;
pub mod cri;
mod diff;
mod document;
mod emit;
mod forms;
mod hardened;
pub mod images;
pub mod installation;
mod json;
mod kept;
pub mod kinds;
mod patch;
mod plan;
pub mod platform;
mod problem;
mod reach;
mod read;
mod redact;
pub mod registries;
mod secret;
mod stream;
pub mod table;
mod tree;
pub mod v1alpha1;
pub mod values;

#[cfg(test)]
mod tests;

pub use diff::diff;
pub use document::{Document, HostDnsWishes, Mode};
pub use forms::IssuingCa;

pub use patch::{Patch, patch};
pub use plan::{Change, Plan, plan};
pub use problem::{Problem, Problems};
pub use read::Word;
pub use secret::Secret;
pub use v1alpha1::{Cluster, Machine, MachineType};
pub use values::KeyPair;

/// The largest config accepted, in bytes. Generated ones are about 10 KiB;
/// inline manifests may make them much larger.
pub const MAX_SIZE: usize = 8 * 1024 * 1024;

//! Changes of a machine config: patches, differences, and what a change does to a node.
//!
//! Owns: applying documents to merge and JSON patches ([`patch()`]); the difference of two configs without secrets
//! ([`diff()`]); restarts, reboots and the risk to lose the node ([`plan()`]).
//! Never does: files, network, decisions. It only compares texts.
//! Talks to: nothing; the API of the node and the client use it.
//! On a laptop: `cargo test -p corten-changes`.

mod diff;
mod patch;
mod plan;
mod reach;
#[cfg(test)]
mod tests;

pub use diff::diff;
pub use patch::{Patch, patch};
pub use plan::{Change, Plan, plan};

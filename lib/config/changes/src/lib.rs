//! Changes of a machine config: patches, differences, and the effect of a change on a node.
//!
//! Owns: merge and JSON patches ([`patch()`]), differences without secrets ([`diff()`]), restarts, risks ([`plan()`]).
//! Never: reads files, uses the network, or decides; it only compares texts.

mod diff;
mod patch;
mod plan;
mod reach;
#[cfg(test)]
mod tests;

pub use diff::diff;
pub use patch::{Patch, patch};
pub use plan::{Change, Plan, plan};

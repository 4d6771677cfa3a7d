//! YAML, read into structs with every problem and its place, and written again.
//!
//! Owns: YAML as a tree ([`tree`], [`stream`]), its problems, structs by tables of fields ([`section!`], [`choices!`]).
//! Never: reads files, uses the network, or knows a field of a config.

pub mod emit;
#[cfg(test)]
mod emit_tests;
pub mod json;
pub mod problem;
pub mod read;
pub mod scalars;
pub mod stream;
pub mod table;
pub mod tree;

/// Limit of a text in bytes. Generated configs have about 10 KiB; inline manifests may make them much larger.
pub const MAX_SIZE: usize = 8 * 1024 * 1024;

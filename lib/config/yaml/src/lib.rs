//! YAML, read into structs with every problem and its place, and written again.
//!
//! Owns: YAML as a tree with positions ([`tree`], [`stream`]); the problems of a text ([`problem`]); structs with a table
//! of their fields and the way from a tree to them ([`section!`], [`choices!`], [`read`], [`table`]); a tree as YAML and as
//! JSON ([`emit`], [`json`]).
//! Never does: files, network. It knows no field of a config.
//! Talks to: nothing. The documents of the machine config, patches and the networks of platforms are read with it.
//! On a laptop: `cargo test -p corten-yaml`.

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

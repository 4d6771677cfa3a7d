//! The licences of components: what their own files declare, as SPDX expressions, and the texts, in one file.
//!
//! Never: judges whether a licence may be used; `deny.toml` does that for crates.

pub mod debian;
pub mod exceptions;
pub mod notice;
pub mod recognise;
mod short_names;

/// Must be raised when a change of the code below changes an output for the same components.
pub const RECIPE: &str = "3";

//! YAML, as the tools around write it.

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a text. No error quotes it: it may be secret.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_saphyr::from_str(text).map_err(|error| anyhow!("not as expected{}", place(&error)))
}

/// Where an error is: ` at line 1, column 2`, or nothing. What the error quotes
/// besides may be secret.
pub(crate) fn place(error: &serde_saphyr::Error) -> String {
    error.location().map_or_else(String::new, |at| {
        format!(" at line {}, column {}", at.line(), at.column())
    })
}

/// Writes a value as machine configs are written.
pub(crate) fn render(value: &Value) -> anyhow::Result<String> {
    indented(value, 4)
}

/// Writes a value with so many blanks a level. Base64 of a certificate is one
/// long word: on one line, as tools expect.
pub(crate) fn indented(value: &Value, blanks: usize) -> anyhow::Result<String> {
    let mut options = serde_saphyr::SerializerOptions::default();
    options.indent_step = blanks;
    options.prefer_block_scalars = false;
    serde_saphyr::to_string_with_options(value, options).context("cannot write YAML")
}

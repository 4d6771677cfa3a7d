//! YAML in the style of the surrounding tools.

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses a text. No error quotes it, because it may be secret.
pub fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_saphyr::from_str(text).map_err(|error| anyhow!("unexpected content{}", place(&error)))
}

/// The place of an error: ` at line 1, column 2`, or nothing. The rest of the error may quote
/// secrets.
pub fn place(error: &serde_saphyr::Error) -> String {
    error.location().map_or_else(String::new, |at| {
        format!(" at line {}, column {}", at.line(), at.column())
    })
}

/// A value in the style of machine configs.
pub fn render(value: &Value) -> anyhow::Result<String> {
    indented(value, 4)
}

/// A value with this many blanks per level. Base64 of a certificate is one long word on one line,
/// as tools expect.
pub fn indented(value: &Value, blanks: usize) -> anyhow::Result<String> {
    let mut options = serde_saphyr::SerializerOptions::default();
    options.indent_step = blanks;
    options.prefer_block_scalars = false;
    serde_saphyr::to_string_with_options(value, options).context("cannot write YAML")
}

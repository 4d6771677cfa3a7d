//! YAML, as the tools around write it.

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a text. No error quotes it: it may be secret.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_saphyr::from_str(text).map_err(|error| match error.location() {
        Some(at) => anyhow!(
            "not as expected at line {}, column {}",
            at.line(),
            at.column()
        ),
        None => anyhow!("not as expected"),
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

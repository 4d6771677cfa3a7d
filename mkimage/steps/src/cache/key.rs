//! The key of a step: a hash over all inputs, known before the output is made.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::error::Result;

/// The key of a step's output: a SHA-256 over all inputs, as 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// All 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Collects the inputs of a step, each under a label, into its [`Key`].
#[derive(Debug, Default)]
pub struct KeyBuilder {
    hash: Sha256,
}

impl KeyBuilder {
    /// Starts from the step's name and the recipe's version of that step.
    pub fn new(step: &str) -> Self {
        Self::default().add("step", step)
    }

    /// Adds a value. Lengths are hashed too, so that different lists of inputs cannot collide.
    pub fn add(mut self, label: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [label.as_bytes(), value.as_ref()] {
            self.hash.update(part.len().to_le_bytes());
            self.hash.update(part);
        }
        self
    }

    /// Adds the output of an earlier step by its key.
    pub fn step(self, key: &Key) -> Self {
        self.add("input", key.as_str())
    }

    /// Adds a file's content.
    pub fn file(self, path: &Path) -> Result<Self> {
        let content = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(self.add(&crate::file_name(path), content))
    }

    /// Adds every file below `dir`, by relative path, in sorted order.
    pub fn tree(mut self, dir: &Path) -> Result<Self> {
        for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
            let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
            if entry.file_type().is_file() {
                let name = entry
                    .path()
                    .strip_prefix(dir)?
                    .to_string_lossy()
                    .into_owned();
                let content = fs::read(entry.path())
                    .with_context(|| format!("reading {}", entry.path().display()))?;
                self = self.add(&name, content);
            }
        }
        Ok(self)
    }

    /// The key of everything added so far.
    pub fn finish(self) -> Key {
        Key(hex::encode(self.hash.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_every_part_and_its_boundary() {
        let key = |a: &str, b: &str| KeyBuilder::new("s").add(a, b).finish();
        assert_ne!(key("a", "bc"), key("ab", "c"));
        assert_ne!(key("a", "b"), key("a", "c"));
    }

    #[test]
    fn key_has_every_digit_of_the_hash() {
        let mut hash = Sha256::new();
        for part in ["step", "s"] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let whole = hex::encode(hash.finalize());
        assert_eq!(KeyBuilder::new("s").finish().as_str(), whole);
    }
}

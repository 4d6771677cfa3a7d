//! System extensions: files laid over the root file system of a built image, or over `/usr/local` of a running node.
//!
//! Owns: manifest, version ranges, allowed content, services, unpacking (feature `archive`), and the layers of a node.
//! Never: mounts, fetches or runs anything, or writes outside of the scratch directory it is given.

#[cfg(feature = "archive")]
pub mod archive;
pub mod layers;
pub mod manifest;
mod range;
pub mod rules;
pub mod service;

pub use manifest::Manifest;

/// A problem of an extension, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}; {remedy}")]
pub struct Problem {
    /// Field or path with the problem.
    pub place: String,
    /// Description of the problem.
    pub what: String,
    /// Remedy for the author or the user of the extension.
    pub remedy: String,
}

impl Problem {
    fn new(
        place: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        Problem {
            place: place.into(),
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// Position and reason of a YAML error. The surrounding text is not quoted: it may hold a secret.
fn told(error: &serde_saphyr::Error) -> String {
    error.without_snippet().to_string()
}

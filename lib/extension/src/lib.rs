//! System extensions: files laid over the root file system of a built image, or over `/usr/local` of a running node.
//!
//! Owns: the manifest of an extension (`manifest.rs`) and its version ranges (`range.rs`); the allowed content
//! (`rules.rs`); its services (`service.rs`); unpacking an OCI archive (`archive/`, feature `archive`); the layers of a
//! node (`layers.rs`). The form is the reference's: an image with `manifest.yaml` and `rootfs/`.
//! Never does: mount, fetch or run anything; write outside of the scratch directory it is given.
//! Talks to: the files it is given. Its callers build images, unpack extensions on a node, and list the layers of a
//! node.
//! On a laptop: `cargo test -p corten-extension --features archive`.

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

//! System extensions: files laid over the root file system when an image is built, or over `/usr/local` of a node
//! that runs.
//!
//! Owns: what an extension says of itself (`manifest.rs`, and the versions it is for, `range.rs`), what it may
//! hold (`rules.rs`), the services it brings (`service.rs`), how an OCI archive becomes its files (`archive/`,
//! feature `archive`), and where a node finds what its layers say (`layers.rs`). The form is the
//! reference's: an image with `manifest.yaml` and `rootfs/`.
//! Never does: mount, fetch or run anything; write outside of the scratch directory it is given.
//! Talks to: the files it is given, for who builds images (checks, packs), who unpacks extensions on a node, and
//! who lists what a node has.
//! On a laptop: `cargo test -p corten-extension --features archive`.

#[cfg(feature = "archive")]
pub mod archive;
pub mod layers;
pub mod manifest;
mod range;
pub mod rules;
pub mod service;

pub use manifest::Manifest;

/// What is wrong with an extension, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}; {remedy}")]
pub struct Problem {
    /// The field or path.
    pub place: String,
    /// What is wrong there.
    pub what: String,
    /// What its author, or who uses it, can do.
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

/// What is wrong with a YAML text, and where. What stands around the place is not quoted: it may be a secret.
fn told(error: &serde_saphyr::Error) -> String {
    error.without_snippet().to_string()
}

//! The directories of image caches, in the layout of the reference's `image cache-create`. Never follows a link.
//!
//! `manifests/<registry>/<name>/reference/<tag>` and `manifests/<registry>/<name>/digest/<digest>` are manifests,
//! `blob/<digest>` is everything else. `names.rs` validates names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use oci_spec::distribution::ErrorCode;
use oci_spec::image::{MediaType, Sha256Digest, ToDockerV2S2 as _};
use rustix::fs::{CWD, Mode, OFlags};
use serde::Deserialize;

use crate::names::{self, Reference};
use crate::refusal::Refusal;
use crate::request::Image;
use crate::verify::{Begun, Pending, Verified, digest_of};

/// Size limit of a manifest in bytes. The spec asks a registry to accept at least this much.
const LARGEST_MANIFEST: u64 = 4 << 20;

/// One or more image caches.
#[derive(Debug)]
pub struct Cache {
    roots: Vec<PathBuf>,
    verified: Verified,
}

/// A manifest or index, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) digest: String,
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
}

/// A blob, verified or to be verified while it is sent.
#[derive(Debug)]
pub(crate) struct Blob {
    pub(crate) digest: Sha256Digest,
    pub(crate) file: Arc<File>,
    /// Length in bytes.
    pub(crate) length: u64,
    pub(crate) pending: Option<Pending>,
}

impl Cache {
    /// The caches in these directories; the first that has an object serves it. A directory may appear later.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>) -> Cache {
        Cache {
            roots,
            verified: Verified::default(),
        }
    }

    pub(crate) async fn manifest(
        &self,
        image: &Image,
        reference: &Reference,
    ) -> Result<Manifest, Refusal> {
        let paths = self.manifest_paths(image, reference);
        let wanted = reference.clone();
        let found = tokio::task::spawn_blocking(move || {
            first_good(&paths, |file| read_manifest(file, &wanted))
        });
        found
            .await
            .map_err(|error| broken(&io::Error::other(error)))?
            .ok_or_else(|| {
                let message = format!("the image cache has no manifest {reference} of this name");
                Refusal::unknown(ErrorCode::ManifestUnknown, message)
            })
    }

    fn manifest_paths(&self, image: &Image, reference: &Reference) -> Vec<PathBuf> {
        let (kind, files) = match reference {
            Reference::Tag(tag) => ("reference", vec![tag.clone()]),
            Reference::Digest(digest) => ("digest", names::files(digest).to_vec()),
        };
        let mut paths = Vec::new();
        for root in &self.roots {
            for registry in image.registry.directories() {
                let directory = root
                    .join("manifests")
                    .join(registry)
                    .join(image.name.as_str())
                    .join(kind);
                paths.extend(files.iter().map(|file| directory.join(file)));
            }
        }
        paths
    }

    /// The blob of this digest. Its content is verified first. It is verified on the way if it is sent whole and no
    /// other cache could have an intact copy.
    pub(crate) async fn blob(
        &self,
        digest: &Sha256Digest,
        is_whole: bool,
    ) -> Result<Blob, Refusal> {
        let on_the_way = is_whole && self.roots.len() == 1;
        for root in &self.roots {
            for name in names::files(digest) {
                let path = root.join("blob").join(name);
                if let Some(blob) = self.open_blob(&path, digest, on_the_way).await {
                    return Ok(blob);
                }
            }
        }
        let message = format!("the image cache has no blob sha256:{digest}");
        Err(Refusal::unknown(ErrorCode::BlobUnknown, message))
    }

    async fn open_blob(
        &self,
        path: &Path,
        digest: &Sha256Digest,
        on_the_way: bool,
    ) -> Option<Blob> {
        let file = match open(path) {
            Ok(file) => Arc::new(file),
            Err(error) => {
                complain(path, &error);
                return None;
            }
        };
        let length = file.metadata().ok()?.len();
        let blob = |pending| Blob {
            digest: digest.clone(),
            file: file.clone(),
            length,
            pending,
        };
        let begun = match self.verified.begin(&file, digest) {
            // Nothing is sent of an empty blob.
            Ok(Begun::Pending(pending)) if on_the_way && length > 0 => {
                return Some(blob(Some(pending)));
            }
            Ok(Begun::Known(known)) => Ok(known),
            Ok(Begun::Pending(_)) => self.verified.check(&file, digest).await,
            Err(error) => Err(error),
        };
        match begun {
            Ok(true) => Some(blob(None)),
            Ok(false) => {
                complain(
                    path,
                    &io::Error::other("its content does not match its digest"),
                );
                None
            }
            Err(error) => {
                complain(path, &error);
                None
            }
        }
    }
}

/// A file that is damaged in one cache may be intact in the next.
fn first_good<T>(paths: &[PathBuf], read: impl Fn(File) -> io::Result<T>) -> Option<T> {
    paths
        .iter()
        .find_map(|path| match open(path).and_then(&read) {
            Ok(found) => Some(found),
            Err(error) => {
                complain(path, &error);
                None
            }
        })
}

/// Opens a regular file without following a link and without blocking on a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // `openat` instead of `open`: the server's seccomp filter allows only one of them.
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

fn complain(path: &Path, error: &io::Error) {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    if !absent.contains(&error.kind()) {
        eprintln!("registryd: {} is not served: {error}", path.display());
    }
}

fn broken(error: &io::Error) -> Refusal {
    Refusal {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        code: ErrorCode::ManifestUnknown,
        message: format!("the image cache cannot be read: {error}"),
    }
}

/// The fields that identify the type of a manifest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
    config: Option<serde::de::IgnoredAny>,
}

fn read_manifest(file: File, wanted: &Reference) -> io::Result<Manifest> {
    let mut bytes = Vec::new();
    file.take(LARGEST_MANIFEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_MANIFEST {
        return Err(io::Error::other("it is larger than 4 MiB"));
    }
    let digest = digest_of(&bytes);
    if let Reference::Digest(wanted) = wanted
        && wanted.digest() != digest
    {
        return Err(io::Error::other("its content does not match its digest"));
    }
    let head: Head = serde_json::from_slice(&bytes)?;
    Ok(Manifest {
        media_type: media_type(&head)?,
        digest: format!("sha256:{digest}"),
        bytes: bytes.into(),
    })
}

/// The media type, one of four that a node can use. A manifest need not name its own (image-spec, manifest.md).
fn media_type(head: &Head) -> io::Result<String> {
    let (index, image) = (MediaType::ImageIndex, MediaType::ImageManifest);
    let known = [
        Ok(index.as_ref()),
        Ok(image.as_ref()),
        index.to_docker_v2s2(),
        image.to_docker_v2s2(),
    ];
    match (&head.media_type, &head.manifests, &head.config) {
        (Some(named), ..) => known
            .iter()
            .flatten()
            .find(|known| **known == named)
            .map(|known| (*known).to_owned())
            .ok_or_else(|| {
                io::Error::other(
                    "its mediaType is neither that of an image manifest nor that of an index",
                )
            }),
        (None, Some(_), None) => Ok(index.to_string()),
        (None, None, Some(_)) => Ok(image.to_string()),
        _ => Err(io::Error::other(
            "it is neither an image manifest nor an index",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn written(bytes: &[u8]) -> File {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        fs::write(&path, bytes).unwrap();
        File::open(path).unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<Manifest> {
        read_manifest(written(bytes), &Reference::parse("latest").unwrap())
    }

    #[test]
    fn manifest_type_is_declared_or_inferred() {
        let type_of = |text: &str| read(text.as_bytes()).unwrap().media_type;
        assert_eq!(
            type_of(r#"{"config":{}}"#),
            "application/vnd.oci.image.manifest.v1+json"
        );
        assert_eq!(
            type_of(r#"{"manifests":[]}"#),
            "application/vnd.oci.image.index.v1+json"
        );
        let docker = "application/vnd.docker.distribution.manifest.list.v2+json";
        assert_eq!(type_of(&format!(r#"{{"mediaType":"{docker}"}}"#)), docker);
        for bad in [
            r#"{"mediaType":"text/html\r\nX: y"}"#,
            r#"{"schemaVersion":1}"#,
            r#"{"config":{},"manifests":[]}"#,
            "[]",
            "",
        ] {
            read(bad.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn only_regular_files_of_the_cache_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        symlink("/etc/passwd", &link).unwrap();
        open(&link).unwrap_err();
        open(directory.path()).unwrap_err();
        let pipe = directory.path().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(
            open(&pipe).unwrap_err().to_string(),
            "it is not a regular file"
        );
    }

    #[test]
    fn a_huge_manifest_is_not_read() {
        let file = written(b"{}");
        file.set_len(LARGEST_MANIFEST * 4).unwrap_err();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        File::create(&path)
            .unwrap()
            .set_len(LARGEST_MANIFEST * 1000)
            .unwrap();
        let wanted = Reference::parse("latest").unwrap();
        let error = read_manifest(File::open(path).unwrap(), &wanted).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 4 MiB");
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn hostile_documents_never_panic(text in r#"\{("(mediaType|config|manifests)":("[a-z/+.]{0,9}"|[0-9]|\{\}|\[\]|null),?){0,4}\}?"#) {
            let _ = read(text.as_bytes());
        }
    }
}

//! The OCI image layout: blobs by digest, and the search from the index to the layers.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use oci_spec::image::{Arch, Descriptor, Digest, ImageIndex, ImageManifest, MediaType, OciLayout};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use sha2::{Digest as _, Sha256};

use super::Wanted;

/// Limit of the tar's members; an image has about ten.
const MOST_MEMBERS: usize = 4096;
/// Limit of an index or a manifest, in bytes.
const LARGEST_DOCUMENT: u64 = 4 << 20;
/// Limit of nested indexes.
const DEEPEST: u32 = 4;

/// Storage of an image's blobs.
#[derive(Debug)]
pub(super) enum Layout {
    /// An image layout in a tar.
    Archive {
        file: File,
        /// Position of each member's bytes, by name.
        members: HashMap<String, Span>,
    },
    /// A directory with `blobs/sha256` and without an index.
    Store(PathBuf),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    start: u64,
    length: u64,
}

/// The fields that distinguish an index from a manifest when no descriptor does (image-spec 1.1, image-index.md,
/// manifest.md).
#[derive(Debug, Deserialize)]
struct Head {
    #[serde(rename = "mediaType")]
    media_type: Option<MediaType>,
    manifests: Option<IgnoredAny>,
}

impl Layout {
    /// Opens an archive, or a directory.
    pub(super) fn open(path: &Path) -> io::Result<Layout> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Ok(Layout::Store(path.to_owned()));
        }
        Layout::archive(file)
    }

    /// Reads the positions of the tar's members.
    fn archive(file: File) -> io::Result<Layout> {
        let mut members = HashMap::new();
        let mut tar = tar::Archive::new(&file);
        for member in tar.entries_with_seek()? {
            let member = member?;
            if members.len() == MOST_MEMBERS {
                return Err(io::Error::other(format!(
                    "it has more than {MOST_MEMBERS} members"
                )));
            }
            if !member.header().entry_type().is_file() {
                continue;
            }
            let name = String::from_utf8_lossy(&member.path_bytes()).into_owned();
            let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
            let span = Span {
                start: member.raw_file_position(),
                length: member.size(),
            };
            members.insert(name, span);
        }
        if !members.contains_key("oci-layout") || !members.contains_key("index.json") {
            return Err(io::Error::other(
                "it is not an OCI archive: oci-layout or index.json is missing",
            ));
        }
        let layout = Layout::Archive { file, members };
        let marker: OciLayout = layout.document("oci-layout", None)?;
        if !marker.image_layout_version().starts_with("1.") {
            let version = marker.image_layout_version();
            return Err(io::Error::other(format!(
                "the layout version {version:?} is unknown"
            )));
        }
        Ok(layout)
    }

    /// The layers of the wanted image, lowest first.
    pub(super) fn layers(&self, wanted: Wanted<'_>) -> io::Result<Vec<Descriptor>> {
        let top = match self {
            Layout::Archive { .. } => {
                let index: ImageIndex = self.document("index.json", None)?;
                index.manifests().clone()
            }
            Layout::Store(_) => vec![self.named(wanted)?],
        };
        let mut found = Vec::new();
        self.search(&top, wanted, wanted.digest.is_none(), DEEPEST, &mut found)?;
        found.dedup_by(|a, b| a.digest() == b.digest());
        let descriptor = match found.as_slice() {
            [one] => one,
            [] => {
                let digest = wanted
                    .digest
                    .map(|digest| format!(" with the digest {digest}"));
                return Err(io::Error::other(format!(
                    "it has no image for {}{}",
                    wanted.architecture,
                    digest.unwrap_or_default()
                )));
            }
            several => {
                return Err(io::Error::other(format!(
                    "it has {} images for {}; name the digest of one, as FILE@sha256:...",
                    several.len(),
                    wanted.architecture
                )));
            }
        };
        let manifest: ImageManifest = self.described(descriptor)?;
        Ok(manifest.layers().clone())
    }

    /// A descriptor of the wanted blob, with the media type that its content states.
    fn named(&self, wanted: Wanted<'_>) -> io::Result<Descriptor> {
        let text = wanted.digest.ok_or_else(|| {
            io::Error::other("the path is a directory; name the digest of the image")
        })?;
        let digest: Digest = text
            .parse()
            .map_err(|error| io::Error::other(format!("{text:?} is not a digest: {error}")))?;
        // The blob's own length is used: the digest is what gets verified.
        let any = Descriptor::new(MediaType::ImageManifest, 0, digest.clone());
        let name = path(&any)?;
        let length = self.member(&name)?.limit();
        let head: Head = self.document(&name, None)?;
        let kind = match (head.media_type, head.manifests) {
            (Some(named), _) => named,
            (None, Some(_)) => MediaType::ImageIndex,
            (None, None) => MediaType::ImageManifest,
        };
        Ok(Descriptor::new(kind, length, digest))
    }

    /// Collects the image manifests of the architecture; `trusted`: an index above had the wanted digest.
    fn search(
        &self,
        descriptors: &[Descriptor],
        wanted: Wanted<'_>,
        trusted: bool,
        depth: u32,
        found: &mut Vec<Descriptor>,
    ) -> io::Result<()> {
        for descriptor in descriptors {
            let digest = descriptor.digest().to_string();
            let trusted = trusted || wanted.digest == Some(digest.as_str());
            match kind(descriptor.media_type()) {
                Some(Document::Index) => {
                    let Some(depth) = depth.checked_sub(1) else {
                        return Err(io::Error::other("its indexes are nested too deeply"));
                    };
                    let inner: ImageIndex = self.described(descriptor)?;
                    self.search(inner.manifests(), wanted, trusted, depth, found)?;
                }
                Some(Document::Manifest) if trusted && is_for(descriptor, wanted.architecture) => {
                    found.push(descriptor.clone());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The bytes of a layer as a tar, verified and decompressed.
    pub(super) fn layer(&self, descriptor: &Descriptor) -> io::Result<Box<dyn Read>> {
        self.verify(descriptor)?;
        let blob = BufReader::new(self.blob(descriptor)?);
        let name = descriptor.media_type().to_string();
        match descriptor.media_type() {
            MediaType::ImageLayer => Ok(Box::new(blob)),
            MediaType::ImageLayerGzip => Ok(Box::new(MultiGzDecoder::new(blob))),
            MediaType::ImageLayerZstd => Ok(Box::new(zstd::Decoder::with_buffer(blob)?)),
            _ if name == "application/vnd.docker.image.rootfs.diff.tar.gzip" => {
                Ok(Box::new(MultiGzDecoder::new(blob)))
            }
            _ => Err(io::Error::other(format!(
                "a layer has the unknown media type {name:?}"
            ))),
        }
    }

    fn described<T: DeserializeOwned>(&self, descriptor: &Descriptor) -> io::Result<T> {
        self.document(&path(descriptor)?, Some(descriptor))
    }

    /// A JSON member; with a descriptor, its size and digest are verified.
    fn document<T: DeserializeOwned>(
        &self,
        name: &str,
        descriptor: Option<&Descriptor>,
    ) -> io::Result<T> {
        let mut bytes = Vec::new();
        let mut member = self.member(name)?;
        if member.limit() > LARGEST_DOCUMENT {
            return Err(io::Error::other(format!("{name} is larger than 4 MiB")));
        }
        member.read_to_end(&mut bytes)?;
        if let Some(descriptor) = descriptor {
            compare(descriptor, bytes.len() as u64, &Sha256::digest(&bytes))?;
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::other(format!("{name} cannot be read: {error}")))
    }

    fn verify(&self, descriptor: &Descriptor) -> io::Result<()> {
        let mut hasher = Sha256::new();
        let length = io::copy(&mut self.blob(descriptor)?, &mut hasher)?;
        compare(descriptor, length, &hasher.finalize())
    }

    fn blob(&self, descriptor: &Descriptor) -> io::Result<io::Take<File>> {
        self.member(&path(descriptor)?)
    }

    /// Only one member at a time: all members share the file's position.
    fn member(&self, name: &str) -> io::Result<io::Take<File>> {
        let missing = || io::Error::other(format!("{name} is missing"));
        match self {
            Layout::Archive { file, members } => {
                let span = members.get(name).ok_or_else(missing)?;
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(span.start))?;
                Ok(file.take(span.length))
            }
            Layout::Store(directory) => {
                let file = match File::open(directory.join(name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
                    other => other?,
                };
                let length = file.metadata()?.len();
                Ok(file.take(length))
            }
        }
    }
}

enum Document {
    Index,
    Manifest,
}

fn kind(media_type: &MediaType) -> Option<Document> {
    match media_type {
        MediaType::ImageIndex => Some(Document::Index),
        MediaType::ImageManifest => Some(Document::Manifest),
        MediaType::Other(name) => match name.as_str() {
            "application/vnd.docker.distribution.manifest.list.v2+json" => Some(Document::Index),
            "application/vnd.docker.distribution.manifest.v2+json" => Some(Document::Manifest),
            _ => None,
        },
        _ => None,
    }
}

/// An image without a platform fits any. Attachments of images have the platform `unknown`.
fn is_for(descriptor: &Descriptor, architecture: &str) -> bool {
    descriptor
        .platform()
        .as_ref()
        .is_none_or(|platform| *platform.architecture() == Arch::from(architecture))
}

fn path(descriptor: &Descriptor) -> io::Result<String> {
    let digest = descriptor.as_digest_sha256().ok_or_else(|| {
        let digest = descriptor.digest();
        io::Error::other(format!("the digest {digest} is not a SHA-256 digest"))
    })?;
    Ok(format!("blobs/sha256/{digest}"))
}

fn compare(descriptor: &Descriptor, length: u64, digest: &[u8]) -> io::Result<()> {
    if descriptor.size() == length && descriptor.as_digest_sha256() == Some(&hex::encode(digest)) {
        return Ok(());
    }
    let digest = descriptor.digest();
    Err(io::Error::other(format!(
        "the content of {digest} has another digest"
    )))
}

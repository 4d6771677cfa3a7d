//! The packages of a Debian suite, read from its signed indices (Debian repository format; deb822).
//!
//! A suite's `InRelease` must have a good signature of the archive (gpgv, the host's archive keyring). It names the
//! checksum of each index (`Packages`, `Sources`), which names the checksum of each package.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;

use anyhow::Context as _;
use debversion::Version;
use sha2::{Digest as _, Sha256};

use crate::arch::Arch;
use crate::error::{Failure, Remedy as _, Result};
use crate::fetch::Fetcher;
use crate::lock::SOURCE;
use crate::tool::Tool;

/// The archive's public keys on a Debian host.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The archive section of all locked packages.
const COMPONENT: &str = "main";
/// The part of an upstream tarball's name between version and compression.
const UPSTREAM: &str = ".orig.tar.";

/// One package as an index describes it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its version.
    pub version: Version,
    /// Path of its file below the mirror's root; for a source, of the upstream tarball.
    pub path: String,
    /// The file's size in bytes.
    pub size: i64,
    /// The file's SHA-256, 64 hex digits.
    pub sha256: String,
}

/// The newest version of every package of one suite and architecture.
pub type Index = BTreeMap<String, Candidate>;

/// The index that lists the packages of an architecture; every index includes the `all` packages.
pub fn of(arch: &str) -> &str {
    if arch == "all" {
        Arch::BUILD.names().debian
    } else {
        arch
    }
}

/// Fetches and verifies the index of one suite and architecture, or of its sources.
pub fn fetch(suite: &str, arch: &str, fetcher: &Fetcher) -> Result<Index> {
    let dists = format!("dists/{suite}");
    let (mirror, release) = fetcher.text(&format!("{dists}/InRelease"))?;
    verify_signature(&release, suite)?;
    let file = match arch {
        SOURCE => format!("{COMPONENT}/source/Sources.xz"),
        _ => format!("{COMPONENT}/binary-{arch}/Packages.xz"),
    };
    let release = String::from_utf8_lossy(&release).into_owned();
    let digest = checksum_of(&release, &file).ok_or_else(|| {
        Failure::new(
            format!("{suite} has no index for {arch}"),
            "check the suite and the architecture in the lock",
        )
    })?;
    let compressed = fetcher.bytes(&mirror, &format!("{dists}/{file}"))?;
    if hex::encode(Sha256::digest(&compressed)) != digest {
        return Err(Failure::new(
            format!("the index of {suite} for {arch} differs from its signature"),
            "the mirror is being updated: try again in a few minutes",
        ));
    }
    let mut text = String::new();
    liblzma::read::XzDecoder::new(&compressed[..])
        .read_to_string(&mut text)
        .with_context(|| format!("unpacking the index of {suite}"))?;
    Ok(parse(&text))
}

fn verify_signature(release: &[u8], suite: &str) -> Result<()> {
    let file = tempfile::NamedTempFile::new().context("creating a temporary file")?;
    fs::write(file.path(), release)?;
    Tool::new("gpgv")
        .args(["--quiet", "--keyring", KEYRING])
        .arg(file.path())
        .run()
        .or_fail(
            format!("the signature of the suite {suite} is not valid"),
            "install the current debian-archive-keyring, or use another mirror",
        )
}

/// The SHA-256 that an `InRelease` names for `file`.
fn checksum_of(release: &str, file: &str) -> Option<String> {
    list(release, "SHA256")
        .find(|[_, _, name]| *name == file)
        .map(|[digest, _, _]| digest.to_owned())
}

/// The lines `DIGEST SIZE NAME` of a field that lists files.
fn list<'a>(stanza: &'a str, field: &str) -> impl Iterator<Item = [&'a str; 3]> {
    let head = format!("{field}:");
    stanza
        .lines()
        .skip_while(move |line| line.trim_end() != head)
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some([words.next()?, words.next()?, words.next()?])
        })
}

/// The newest version of each package in a `Packages` or `Sources` file; skips malformed stanzas.
pub fn parse(text: &str) -> Index {
    let mut index = Index::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            let value = |line: &str| {
                line.strip_prefix(name)?
                    .strip_prefix(": ")
                    .map(str::to_owned)
            };
            stanza.lines().find_map(value)
        };
        let candidate = || {
            let version = field("Version")?.parse().ok()?;
            let Some(directory) = field("Directory") else {
                return Some(Candidate {
                    version,
                    path: field("Filename")?,
                    size: field("Size")?.parse().ok()?,
                    sha256: field("SHA256")?,
                });
            };
            let mut files = list(stanza, "Checksums-Sha256");
            let [sha256, size, name] = files.find(|[_, _, name]| name.contains(UPSTREAM))?;
            Some(Candidate {
                version,
                path: format!("{directory}/{name}"),
                size: size.parse().ok()?,
                sha256: sha256.to_owned(),
            })
        };
        if let (Some(name), Some(candidate)) = (field("Package"), candidate()) {
            let newer = index
                .get(&name)
                .is_none_or(|known| known.version < candidate.version);
            if newer {
                index.insert(name, candidate);
            }
        }
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_wins_by_debian_order() {
        let stanza = |version: &str| {
            format!(
                "Package: a\nVersion: {version}\nFilename: pool/{version}\nSize: 1\nSHA256: x\n"
            )
        };
        let text = [stanza("1.0-9"), stanza("1.0-10"), stanza("1.0~rc1-1")].join("\n");
        assert_eq!(parse(&text)["a"].path, "pool/1.0-10");
    }

    #[test]
    fn source_package_resolves_to_the_upstream_tarball() {
        let text = "Package: a\nVersion: 1.0-2\nFiles:\n 0 7 a_1.0.orig.tar.xz\nChecksums-Sha256:\n \
                    aa 3 a_1.0-2.dsc\n bb 7 a_1.0.orig.tar.xz\n cc 9 a_1.0-2.debian.tar.xz\n\
                    Directory: pool/a\n\nPackage: native\nVersion: 1\nChecksums-Sha256:\n \
                    dd 1 native_1.tar.xz\nDirectory: pool/n\n";
        let index = parse(text);
        let a = &index["a"];
        assert_eq!(a.path, "pool/a/a_1.0.orig.tar.xz");
        assert_eq!((a.size, a.sha256.as_str()), (7, "bb"));
        assert!(!index.contains_key("native"));
    }

    #[test]
    fn a_release_names_its_indices() {
        let release =
            "Suite: x\nMD5Sum:\n 00 1 main/a\nSHA256:\n 11 1 main/b\n 22 2 main/a\nX: y\n";
        assert_eq!(checksum_of(release, "main/a").as_deref(), Some("22"));
        assert_eq!(checksum_of(release, "main/c"), None);
    }

    #[test]
    fn an_unsigned_suite_is_refused() {
        verify_signature(b"Suite: trixie\n", "trixie").unwrap_err();
    }
}

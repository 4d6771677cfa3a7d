//! `mkimage lock`: moves the locks to the newest versions of their suites. A build does the same in
//! memory for a package that the mirrors no longer have.
//!
//! A suite's `InRelease` must carry a good signature of the archive (checked by gpgv against the
//! host's archive keyring); it names the checksum of the package index, which names the checksum of
//! each package. Formats: Debian repository format (`InRelease`, `Packages`), deb822.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use debversion::Version;
use sha2::{Digest as _, Sha256};
use toml_edit::{DocumentMut, Item, Table};

use crate::arch::Arch;
use crate::deb;
use crate::error::{Failure, Remedy as _, Result};
use crate::fetch::Fetcher;
use crate::lock::{self, Lock, Package};
use crate::tool::Tool;

/// Where Debian hosts keep the archive's public keys.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Sections of an index we lock from.
const COMPONENT: &str = "main";

/// One package as an index describes it.
#[derive(Debug, Clone)]
struct Candidate {
    version: Version,
    path: String,
    size: i64,
    sha256: String,
}

/// The newest version of every package of one suite and architecture.
type Index = BTreeMap<String, Candidate>;

/// Updates `rootfs/packages.lock` and `kernel-config/source.lock`; prints what moved.
pub fn update(source: &Path, fetcher: &Fetcher) -> Result<()> {
    let mut indices = BTreeMap::new();
    let mut moved = 0;
    for name in [lock::PACKAGES, "kernel-config/source.lock"] {
        let path = source.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {name}"))?;
        let mut document: DocumentMut = text
            .parse()
            .with_context(|| format!("the lock {name} is not valid TOML"))?;
        for (_, item) in document.iter_mut() {
            let tables: Vec<&mut Table> = match item {
                Item::ArrayOfTables(array) => array.iter_mut().collect(),
                Item::Table(table) => vec![table],
                _ => continue,
            };
            for table in tables {
                moved += usize::from(update_entry(table, &mut indices, fetcher)?);
            }
        }
        let partial = path.with_extension("lock.new");
        fs::write(&partial, document.to_string())
            .and_then(|()| fs::rename(&partial, &path))
            .or_fail(format!("writing {name}"), "make the source tree writable")?;
    }
    println!("{moved} packages moved");
    Ok(())
}

/// A package that took the place of a locked one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Substitution {
    /// What the lock names.
    pub locked: Package,
    /// What took its place.
    pub used: Package,
}

/// Moves `gone`, and what else in `lock` was made from the same source, to the newest version of
/// the suite; returns what moved, which is nothing when `gone` is not in `lock`.
pub fn substitute(lock: &mut Lock, gone: &Package, fetcher: &Fetcher) -> Result<Vec<Substitution>> {
    let mut indices = BTreeMap::new();
    substitute_from(lock, gone, |suite, arch| {
        let at = (suite.to_owned(), arch.to_owned());
        if !indices.contains_key(&at) {
            indices.insert(at.clone(), fetch_index(suite, arch, fetcher)?);
        }
        Ok(indices.get(&at).cloned().unwrap_or_default())
    })
}

fn substitute_from(
    lock: &mut Lock,
    gone: &Package,
    mut index: impl FnMut(&str, &str) -> Result<Index>,
) -> Result<Vec<Substitution>> {
    let mut moved = Vec::new();
    if !lock.packages.iter().any(|p| p.sha256 == gone.sha256) {
        return Ok(moved);
    }
    for package in &mut lock.packages {
        // Packages of one source have one version, and fit each other only then.
        if package.suite != gone.suite || package.version != gone.version {
            continue;
        }
        let index = index(&package.suite, index_of(&package.arch))?;
        let newest = index
            .get(&package.name)
            .filter(|newest| newest.sha256 != package.sha256)
            .ok_or_else(|| {
                Failure::new(
                    format!(
                        "{} has no newer {} to take the place of {}, which the mirrors lack",
                        package.suite, package.name, package.version
                    ),
                    "try again later, or name another mirror in CORTEN_MIRRORS",
                )
            })?;
        let locked = package.clone();
        package.version = newest.version.to_string();
        package.path.clone_from(&newest.path);
        package.size = newest.size.unsigned_abs();
        package.sha256.clone_from(&newest.sha256);
        let used = package.clone();
        moved.push(Substitution { locked, used });
    }
    Ok(moved)
}

/// The index that lists packages of an architecture: `all` ones are in every index.
fn index_of(arch: &str) -> &str {
    if arch == "all" {
        Arch::BUILD.names().debian
    } else {
        arch
    }
}

/// Moves one `[[package]]` (or `[kernel]`) table to its suite's newest version.
fn update_entry(
    table: &mut Table,
    indices: &mut BTreeMap<(String, String), Index>,
    fetcher: &Fetcher,
) -> Result<bool> {
    let text = |table: &Table, key: &str| {
        table
            .get(key)
            .and_then(Item::as_str)
            .map(str::to_owned)
            .unwrap_or_default()
    };
    let (name, suite) = (text(table, "name"), text(table, "suite"));
    let arch = Some(text(table, "arch"))
        .filter(|a| !a.is_empty())
        .unwrap_or("all".into());
    let at = (suite.clone(), index_of(&arch).to_owned());
    if !indices.contains_key(&at) {
        indices.insert(at.clone(), fetch_index(&at.0, &at.1, fetcher)?);
    }
    let newest = indices
        .get(&at)
        .and_then(|index| index.get(&name))
        .ok_or_else(|| {
            Failure::new(
                format!("{suite} no longer has {name} for {arch}"),
                "choose another suite or package in the lock",
            )
        })?;
    if newest.version.to_string() == text(table, "version") {
        return Ok(false);
    }
    println!(
        "{name} {arch}: {} -> {}",
        text(table, "version"),
        newest.version
    );
    table["version"] = toml_edit::value(newest.version.to_string());
    table["path"] = toml_edit::value(newest.path.clone());
    table["size"] = toml_edit::value(newest.size);
    table["sha256"] = toml_edit::value(newest.sha256.clone());
    if let Some(tarball) = table
        .get("tarball")
        .and_then(Item::as_str)
        .map(str::to_owned)
    {
        let package = Package {
            name,
            version: newest.version.to_string(),
            arch,
            suite,
            path: newest.path.clone(),
            size: newest.size.unsigned_abs(),
            sha256: newest.sha256.clone(),
            purpose: "kernel".into(),
        };
        let (sha256, size) = digest_inside(&fetcher.package(&package)?, &tarball)?;
        table["tarball_sha256"] = toml_edit::value(sha256);
        table["tarball_size"] = toml_edit::value(size);
    }
    Ok(true)
}

/// The SHA-256 and size of one file inside a package.
fn digest_inside(package: &Path, file: &str) -> Result<(String, i64)> {
    let mut found = None;
    deb::for_each_entry(package, |path, _, _, content| {
        if path == file {
            let mut hash = Sha256::new();
            let size = std::io::copy(content, &mut hash)?;
            found = Some((hex::encode(hash.finalize()), i64::try_from(size)?));
        }
        Ok(())
    })?;
    found.with_context(|| format!("{} has no {file}", package.display()))
}

/// Fetches and verifies the index of one suite and architecture.
fn fetch_index(suite: &str, arch: &str, fetcher: &Fetcher) -> Result<Index> {
    let dists = format!("dists/{suite}");
    let (mirror, release) = fetcher.text(&format!("{dists}/InRelease"))?;
    verify_signature(&release, suite)?;
    let file = format!("{COMPONENT}/binary-{arch}/Packages.xz");
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
            format!("the index of {suite} for {arch} is not the one its signature names"),
            "the mirror is in the middle of an update: try again in a few minutes",
        ));
    }
    let mut text = String::new();
    liblzma::read::XzDecoder::new(&compressed[..])
        .read_to_string(&mut text)
        .with_context(|| format!("unpacking the index of {suite}"))?;
    Ok(parse_index(&text))
}

fn verify_signature(release: &[u8], suite: &str) -> Result<()> {
    let file = tempfile::NamedTempFile::new().context("creating a temporary file")?;
    fs::write(file.path(), release)?;
    Tool::new("gpgv")
        .args(["--quiet", "--keyring", KEYRING])
        .arg(file.path())
        .run()
        .or_fail(
            format!("the signature of the suite {suite} is not good"),
            "install the current debian-archive-keyring, or use another mirror",
        )
}

/// The SHA-256 that an `InRelease` names for `file`.
fn checksum_of(release: &str, file: &str) -> Option<String> {
    let section = release.split_once("\nSHA256:")?.1;
    section
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let digest = words.next()?;
            (words.nth(1)? == file).then(|| digest.to_owned())
        })
}

/// The newest version of each package in a `Packages` file; broken stanzas are passed over.
fn parse_index(text: &str) -> Index {
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
            Some(Candidate {
                version: field("Version")?.parse().ok()?,
                path: field("Filename")?,
                size: field("Size")?.parse().ok()?,
                sha256: field("SHA256")?,
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
        assert_eq!(parse_index(&text)["a"].path, "pool/1.0-10");
    }

    fn locked(name: &str, version: &str) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            arch: "amd64".into(),
            suite: "trixie".into(),
            path: format!("pool/{name}"),
            size: 1,
            sha256: format!("{name}-{version}"),
            purpose: "rootfs".into(),
        }
    }

    #[test]
    fn what_was_made_together_moves_together() {
        let mut lock = Lock {
            packages: vec![locked("a", "1"), locked("b", "1"), locked("c", "2")],
        };
        let stanza = |name: &str| {
            format!("Package: {name}\nVersion: 3\nFilename: pool/3\nSize: 7\nSHA256: {name}-3\n")
        };
        let index = parse_index(&["a", "b", "c"].map(stanza).join("\n"));
        let take = |lock: &mut Lock, gone: &Package| {
            substitute_from(lock, gone, |suite, arch| {
                assert_eq!((suite, arch), ("trixie", "amd64"));
                Ok(index.clone())
            })
        };
        let moved = take(&mut lock, &locked("a", "1")).unwrap();
        let names: Vec<_> = moved.iter().map(|m| m.used.sha256.as_str()).collect();
        assert_eq!(names, ["a-3", "b-3"]);
        assert_eq!(lock.packages[0].path, "pool/3");
        assert_eq!(lock.packages[2], locked("c", "2"));
        // The kernel is in another lock.
        assert_eq!(take(&mut lock, &locked("linux-source", "6")).unwrap(), []);
        // What the index lists and no mirror has cannot be made up for by itself.
        let newest = lock.packages[0].clone();
        let error = take(&mut lock, &newest).unwrap_err();
        assert!(error.to_string().contains("no newer a"), "{error}");
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

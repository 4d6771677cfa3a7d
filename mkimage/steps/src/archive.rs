//! `mkimage lock`: moves the locks to the newest versions of their suites. A build does the same in
//! memory for a package that the mirrors have removed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use toml_edit::{DocumentMut, Item, Table};

use crate::deb;
use crate::error::{Failure, Remedy as _, Result};
use crate::fetch::Fetcher;
use crate::index::{self, Index};
use crate::lock::{self, Lock, Package};

/// Updates `rootfs/packages.lock` and `kernel-config/source.lock`; prints each changed entry.
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

/// A package that replaces a locked one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Substitution {
    /// The package that the lock names.
    pub locked: Package,
    /// The replacement.
    pub used: Package,
}

/// Moves `gone`, and all packages in `lock` built from the same source, to the newest version of
/// the suite. Returns the replacements: none when `gone` is not in `lock`.
pub fn substitute(lock: &mut Lock, gone: &Package, fetcher: &Fetcher) -> Result<Vec<Substitution>> {
    let mut indices = BTreeMap::new();
    substitute_from(lock, gone, |suite, arch| {
        let at = (suite.to_owned(), arch.to_owned());
        if !indices.contains_key(&at) {
            indices.insert(at.clone(), index::fetch(suite, arch, fetcher)?);
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
        // Packages of one source share a version and are compatible only at that version.
        if package.suite != gone.suite || package.version != gone.version {
            continue;
        }
        let index = index(&package.suite, index::of(&package.arch))?;
        let newest = index
            .get(&package.name)
            .filter(|newest| newest.sha256 != package.sha256)
            .ok_or_else(|| {
                Failure::new(
                    format!(
                        "{} has no newer {} to replace {}, which the mirrors lack",
                        package.suite, package.name, package.version
                    ),
                    "try again later, or set another mirror in CORTEN_MIRRORS",
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
    let at = (suite.clone(), index::of(&arch).to_owned());
    if !indices.contains_key(&at) {
        indices.insert(at.clone(), index::fetch(&at.0, &at.1, fetcher)?);
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn binary_packages_of_one_source_are_updated_together() {
        let mut lock = Lock {
            packages: vec![locked("a", "1"), locked("b", "1"), locked("c", "2")],
        };
        let stanza = |name: &str| {
            format!("Package: {name}\nVersion: 3\nFilename: pool/3\nSize: 7\nSHA256: {name}-3\n")
        };
        let index = index::parse(&["a", "b", "c"].map(stanza).join("\n"));
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
        // The kernel source has a lock of its own.
        assert_eq!(take(&mut lock, &locked("linux-source", "6")).unwrap(), []);
        // A package that the index lists and no mirror serves has no replacement.
        let newest = lock.packages[0].clone();
        let error = take(&mut lock, &newest).unwrap_err();
        assert!(error.to_string().contains("no newer a"), "{error}");
    }
}

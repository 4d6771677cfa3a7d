//! The locks: the package files of a build, by SHA-256.
//!
//! A lock is TOML with one `[[package]]` table per Debian package. `mkimage lock` writes it; a
//! build only reads it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Failure, Remedy as _, Result};

/// The lock of all packages except the kernel's source, relative to the source tree.
pub const PACKAGES: &str = "rootfs/packages.lock";
/// The architecture of an upstream source from which the build compiles.
pub const SOURCE: &str = "source";

/// One locked package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// The package's name in the archive.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// Debian's architecture name: `amd64`, `arm64` or `all`; or `source` for an upstream tarball.
    pub arch: String,
    /// The suite it was taken from, such as `trixie`.
    pub suite: String,
    /// Its path below the mirror's root (`pool/…`).
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// The file's SHA-256, 64 hex digits.
    pub sha256: String,
    /// Its use in the build, such as `rootfs` or `rust`.
    #[serde(rename = "use")]
    pub purpose: String,
}

/// A lock file's content, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The locked packages.
    #[serde(rename = "package", default)]
    pub packages: Vec<Package>,
}

impl Lock {
    /// Reads and checks a lock file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).or_fail(
            format!("cannot read the lock {}", path.display()),
            "restore it from version control, or make it with `mkimage lock`",
        )?;
        let lock: Self = toml::from_str(&text).or_fail(
            format!("the lock {} is not valid", path.display()),
            "correct that line, or make the lock again with `mkimage lock`",
        )?;
        lock.check(path)?;
        Ok(lock)
    }

    /// The packages of one purpose and Debian architecture (or `all`), in lock order.
    pub fn packages<'a>(
        &'a self,
        purpose: &'a str,
        arch: &'a str,
    ) -> impl Iterator<Item = &'a Package> + 'a {
        self.packages.iter().filter(move |package| {
            package.purpose == purpose && (package.arch == arch || package.arch == "all")
        })
    }

    /// The package of that name for that architecture, whatever its purpose.
    pub fn package(&self, name: &str, arch: &str) -> Result<&Package> {
        self.packages
            .iter()
            .find(|p| p.name == name && (p.arch == arch || p.arch == "all"))
            .ok_or_else(|| {
                Failure::new(
                    format!("no lock has the package {name} for {arch}"),
                    "add it to rootfs/packages.lock with `mkimage lock`",
                )
            })
    }

    fn check(&self, path: &Path) -> Result<()> {
        for package in &self.packages {
            let wrong = if package.sha256.len() != 64 || hex::decode(&package.sha256).is_err() {
                "sha256 is not 64 hex digits"
            } else if package.path.split('/').any(|part| part == "..")
                || package.path.starts_with('/')
            {
                "path leads out of the mirror"
            } else if package.size == 0 {
                "size is 0"
            } else {
                continue;
            };
            return Err(Failure::new(
                format!("{}: package {}: {wrong}", path.display(), package.name),
                "make the lock again with `mkimage lock`",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(sha256: &str, path: &str) -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("packages.lock");
        std::fs::write(
            &file,
            format!(
                "[[package]]\nname=\"a\"\nversion=\"1\"\narch=\"all\"\nsuite=\"trixie\"\n\
                 path=\"{path}\"\nsize=1\nsha256=\"{sha256}\"\nuse=\"rootfs\"\n"
            ),
        )
        .unwrap();
        Lock::read(&file).map(drop)
    }

    #[test]
    fn broken_locks_are_refused_by_name() {
        parse(&"0".repeat(64), "pool/a.deb").unwrap();
        let error = parse("00", "pool/a.deb").unwrap_err().to_string();
        assert!(error.contains("package a: sha256"), "{error}");
        let error = parse(&"0".repeat(64), "../a.deb").unwrap_err().to_string();
        assert!(error.contains("leads out of the mirror"), "{error}");
    }
}

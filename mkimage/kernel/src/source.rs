//! The kernel's source lock, and the unpacked source tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::cache::sha256_file;
use corten_steps::deb;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::lock::Package;
use corten_steps::tool::Tool;
use corten_steps::untar;
use serde::Deserialize;

/// The source's name and size in messages.
const WHAT: &str = "the kernel's source (2 GB)";

/// `kernel-config/source.lock`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceLock {
    /// The package that holds the kernel's source.
    pub kernel: KernelSource,
    /// The package of kernel-hardening-checker.
    pub checker: Locked,
}

/// A package of an archive, by exact version and checksum; for every architecture.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    name: String,
    version: String,
    suite: String,
    path: String,
    size: u64,
    sha256: String,
}

/// The kernel's package, and the source tarball inside it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelSource {
    name: String,
    version: String,
    suite: String,
    path: String,
    size: u64,
    sha256: String,
    /// The tarball's path in the package.
    pub tarball: String,
    /// The tarball's SHA-256, also required of a file given in its place.
    pub tarball_sha256: String,
    /// The tarball's size in bytes.
    pub tarball_size: u64,
}

impl SourceLock {
    /// Reads the lock in the directory `kernel-config`.
    pub fn read(config_dir: &Path) -> Result<Self> {
        let path = config_dir.join("source.lock");
        let text = fs::read_to_string(&path).or_fail(
            format!("cannot read the kernel's source lock {}", path.display()),
            "restore it from version control",
        )?;
        toml::from_str(&text).or_fail(
            format!("the kernel's source lock {} is not valid", path.display()),
            "correct that line, or restore it from version control",
        )
    }
}

impl Locked {
    /// The package for the fetcher.
    pub fn package(&self) -> Package {
        Package {
            name: self.name.clone(),
            version: self.version.clone(),
            arch: "all".to_owned(),
            suite: self.suite.clone(),
            path: self.path.clone(),
            size: self.size,
            sha256: self.sha256.clone(),
            purpose: "kernel-checker".to_owned(),
        }
    }
}

impl KernelSource {
    /// The package for the fetcher.
    pub fn package(&self) -> Package {
        Package {
            name: self.name.clone(),
            version: self.version.clone(),
            arch: "all".to_owned(),
            suite: self.suite.clone(),
            path: self.path.clone(),
            size: self.size,
            sha256: self.sha256.clone(),
            purpose: "kernel".to_owned(),
        }
    }
}

/// The origin of the kernel's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The locked Debian package, already verified by the fetcher.
    Package(PathBuf),
    /// The user's tarball (`--kernel-source`), which must have the same checksum.
    Tarball(PathBuf),
}

impl Source {
    /// Unpacks the source files that `wanted` selects into the new directory `tree`, and applies
    /// the patches in `patches` in order of their names.
    pub fn unpack(
        &self,
        lock: &KernelSource,
        patches: &Path,
        tree: &Path,
        wanted: impl Fn(&Path) -> bool,
    ) -> Result<()> {
        match self {
            Self::Tarball(file) => {
                let sha256 = sha256_file(file).or_fail(
                    format!("reading the kernel source {}", file.display()),
                    "give --kernel-source a readable .tar.xz file",
                )?;
                if sha256 != lock.tarball_sha256 {
                    return Err(mismatch(&file.display().to_string(), &sha256, lock));
                }
                untar::unpack(WHAT, fs::File::open(file)?, tree, wanted)?;
            }
            Self::Package(file) => {
                let mut found = false;
                deb::for_each_entry(file, |path, _, _, content| {
                    if path == lock.tarball {
                        found = true;
                        untar::unpack(WHAT, content, tree, &wanted)?;
                    }
                    Ok(())
                })?;
                if !found {
                    return Err(Failure::new(
                        format!("{} does not contain {}", file.display(), lock.tarball),
                        "correct `tarball` in kernel-config/source.lock",
                    ));
                }
            }
        }
        patch(patches, tree)
    }
}

/// Whether the kernel's config tools read the file: resolving a config then needs no 1.6 GB tree.
pub fn of_config(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["Kconfig", "Makefile", "Kbuild"]
        .iter()
        .any(|kind| name.starts_with(kind))
        || path.starts_with("scripts")
        || path.strip_prefix("arch").is_ok_and(|path| {
            path.components()
                .skip(1)
                .collect::<PathBuf>()
                .starts_with("include/asm")
        })
        || path.starts_with("tools/build")
}

/// Applies every patch in `dir` to the files that exist in `tree`.
fn patch(dir: &Path, tree: &Path) -> Result<()> {
    for file in patches(dir)? {
        Tool::new("patch")
            .dir(tree)
            .args([
                "--strip=1",
                "--batch",
                "--forward",
                "--fuzz=0",
                "--no-backup-if-mismatch",
            ])
            .arg("--input")
            .arg(&file)
            .run()
            .or_fail(
                format!(
                    "the patch {} does not apply to the kernel's source",
                    file.display()
                ),
                "update it for the version in kernel-config/source.lock, or remove it",
            )?;
    }
    Ok(())
}

/// The patches in `dir`, sorted by name.
pub(super) fn patches(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(dir).max_depth(1).sort_by_file_name() {
        let path = entry
            .with_context(|| format!("listing {}", dir.display()))?
            .into_path();
        if path.extension().is_some_and(|kind| kind == "patch") {
            files.push(fs::canonicalize(&path)?);
        }
    }
    Ok(files)
}

fn mismatch(file: &str, sha256: &str, lock: &KernelSource) -> anyhow::Error {
    Failure::new(
        format!(
            "{file} has SHA-256 {sha256}, but the lock has {}",
            lock.tarball_sha256
        ),
        format!(
            "give the tarball of {} {}, or lock another version",
            lock.name, lock.version
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// A tarball of one file `f` with `content`, and its lock.
    fn tarball(dir: &Path, content: &str) -> (PathBuf, KernelSource) {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, "linux/sub/f", content.as_bytes())
            .unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&tar.into_inner().unwrap()).unwrap();
        let file = dir.join("linux.tar.xz");
        fs::write(&file, xz.finish().unwrap()).unwrap();
        let lock = KernelSource {
            name: "linux-source".to_owned(),
            version: "6".to_owned(),
            suite: String::new(),
            path: String::new(),
            size: 1,
            sha256: String::new(),
            tarball: "usr/src/linux.tar.xz".to_owned(),
            tarball_sha256: sha256_file(&file).unwrap(),
            tarball_size: 1,
        };
        (file, lock)
    }

    #[test]
    fn a_tarball_is_unpacked_and_patched() {
        let dir = tempfile::tempdir().unwrap();
        let (file, lock) = tarball(dir.path(), "old\n");
        let patches = dir.path().join("patches");
        fs::create_dir(&patches).unwrap();
        let diff = "why\n\n--- a/sub/f\n+++ b/sub/f\n@@ -1 +1 @@\n-old\n+new\n";
        fs::write(patches.join("1.patch"), diff).unwrap();
        let tree = dir.path().join("tree");
        let source = Source::Tarball(file);
        source.unpack(&lock, &patches, &tree, |_| true).unwrap();
        assert_eq!(fs::read_to_string(tree.join("sub/f")).unwrap(), "new\n");
        let error = patch(&patches, &tree).unwrap_err();
        assert!(error.to_string().contains("does not apply"), "{error}");
    }

    #[test]
    fn a_tarball_with_another_checksum_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (file, mut lock) = tarball(dir.path(), "old\n");
        lock.tarball_sha256 = "0".repeat(64);
        let source = Source::Tarball(file);
        let tree = dir.path().join("tree");
        let error = source
            .unpack(&lock, dir.path(), &tree, |_| true)
            .unwrap_err();
        assert!(
            error.to_string().contains("but the lock has 000"),
            "{error}"
        );
        assert!(!tree.exists());
    }
}

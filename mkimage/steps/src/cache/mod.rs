//! The content-addressed cache: every step's output under the digest of its content.
//!
//! An entry appears by one atomic rename, so a killed build leaves none behind. Two concurrent builds make an entry
//! once: the second waits for the first.

pub mod digest;
mod key;
mod record;
mod sign;
mod store;
pub mod trust;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Context as _;

use crate::error::{Failure, Remedy as _, Result};
use crate::report::Format;

pub use digest::sha256_file;
pub use key::{Key, KeyBuilder};
use trust::PublicKey;

/// The directory of Go modules in a cache, which Go's own tool fills.
pub const GO_MODULES: &str = "go/modules";
/// The directory of the records of finished steps in a cache.
pub const STEPS: &str = "steps";
/// The directory of the outputs of finished steps in a cache.
pub const OUTPUTS: &str = "outputs";
/// The directory of the kept trees in a cache.
pub const TREES: &str = "trees";
/// The lock that all builds share, and that a removal of entries has alone.
const BUILDS: &str = "builds";

/// The cache on disk, with its substituters: read-only caches to search before building.
///
/// ```text
/// CORTEN_CACHE/
///   fetch/<sha256>         a fetched file, verified before it gets this name and on use
///   steps/<name>-<key>     a record: the digest of the step's output, and signatures of it
///   outputs/<digest>/      an output: complete or absent; verified on use
///   work/<entry>.<pid>/    work in progress; swept when its step runs again
///   trees/<name>/          directories kept between builds (the module `tree`)
///   locks/                 one file per entry, locked while the entry is made, and one that all builds share
/// ```
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    substituters: Vec<PathBuf>,
    /// The keys whose signed steps are taken from substituters.
    trusted: Vec<PublicKey>,
    /// Caches of which only fetched files are used.
    fetched: Vec<PathBuf>,
    /// The format of warnings.
    format: Format,
    /// The outputs that this process made or verified.
    verified: Arc<Mutex<BTreeSet<String>>>,
}

impl Cache {
    /// Opens (and creates) the cache at `root`.
    pub fn open(root: &Path, substituters: Vec<PathBuf>) -> Result<Self> {
        for dir in ["fetch", STEPS, OUTPUTS, "work", TREES, "locks"] {
            fs::create_dir_all(root.join(dir)).or_fail(
                format!("creating the cache in {}", root.display()),
                "set CORTEN_CACHE to a writable directory",
            )?;
        }
        Ok(Self {
            root: fs::canonicalize(root)?,
            substituters,
            trusted: Vec::new(),
            fetched: Vec::new(),
            format: Format::Text,
            verified: Arc::default(),
        })
    }

    /// Takes finished steps from substituters if one of these keys has signed them.
    #[must_use]
    pub fn trusting(mut self, keys: Vec<PublicKey>) -> Self {
        self.trusted = keys;
        self
    }

    /// Sets the format of warnings.
    #[must_use]
    pub fn reporting(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// A cache in the new directory `root` that shares only the fetched files of this one, not its
    /// outputs. Substituters stay.
    pub fn fresh(&self, root: &Path) -> Result<Self> {
        let mut fresh = Self::open(root, self.substituters.clone())?
            .trusting(self.trusted.clone())
            .reporting(self.format);
        fresh.fetched = vec![self.root.clone()];
        let modules = Path::new(GO_MODULES);
        if self.root.join(modules).is_dir() {
            fs::create_dir_all(fresh.root.join(modules.parent().unwrap_or(modules)))?;
            std::os::unix::fs::symlink(self.root.join(modules), fresh.root.join(modules))
                .context("sharing the Go modules")?;
        }
        Ok(fresh)
    }

    /// The directory of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the step's output directory. Makes it with `build` if it is missing or does not
    /// match its digest.
    ///
    /// `build` gets the directory to fill and a scratch directory; both are dropped if it fails.
    pub fn step(
        &self,
        name: &str,
        key: &Key,
        build: impl FnOnce(&Path, &Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let entry = entry(name, key);
        let _lock = self.lock(&entry)?;
        if let Some(found) = self.finished(&entry) {
            return Ok(found);
        }
        // A new directory: tools of a killed build may still write to the old one.
        self.sweep(&entry)?;
        let work = self.work(&entry)?;
        let (out, scratch) = (work.join("out"), work.join("scratch"));
        fs::create_dir(&out)
            .and_then(|()| fs::create_dir(&scratch))
            .or_fail(
                format!("creating {}", work.display()),
                "free disk space in CORTEN_CACHE",
            )?;
        build(&out, &scratch).with_context(|| format!("step {name}"))?;
        let done = self
            .keep(&entry, &out)
            .with_context(|| format!("keeping the output of {name}"))?;
        remove_tree(&work)?;
        Ok(done)
    }

    /// A work directory for an entry; the caller holds the entry's lock.
    fn work(&self, entry: &str) -> Result<PathBuf> {
        let work = format!("{entry}.{}", std::process::id());
        let work = self.root.join("work").join(work);
        fs::create_dir_all(&work).or_fail(
            format!("creating {}", work.display()),
            "free disk space in CORTEN_CACHE",
        )?;
        Ok(work)
    }

    /// Removes the work of killed builds on an entry; the caller holds the entry's lock.
    fn sweep(&self, entry: &str) -> Result<()> {
        let work = self.root.join("work");
        for found in fs::read_dir(&work).with_context(|| format!("listing {}", work.display()))? {
            let path = found?.path();
            if path.file_stem().is_some_and(|stem| stem == entry) {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// The path of a fetched file, which may not exist.
    pub fn fetched(&self, sha256: &str) -> PathBuf {
        self.root.join("fetch").join(sha256)
    }

    /// Finds a fetched file, in the substituters too. Skips a file whose content does not match its
    /// name, so that write access to a cache does not change a build.
    pub fn find_fetched(&self, sha256: &str) -> Option<PathBuf> {
        std::iter::once(&self.root)
            .chain(&self.substituters)
            .chain(&self.fetched)
            .map(|root| root.join("fetch").join(sha256))
            .find(|path| path.is_file() && sha256_file(path).is_ok_and(|found| found == sha256))
    }

    /// A path in the work area for a download in progress.
    pub(crate) fn partial(&self, name: &str) -> PathBuf {
        self.root.join("work").join(format!("{name}.part"))
    }

    /// The file of a lock, and its path.
    fn lock_file(&self, name: &str) -> Result<(PathBuf, fs::File)> {
        let path = self.root.join("locks").join(name);
        let file = fs::File::create(&path)
            .with_context(|| format!("creating the lock {}", path.display()))?;
        Ok((path, file))
    }

    /// Waits for the lock of one entry and holds it. The kernel releases it when the process ends.
    pub fn lock(&self, entry: &str) -> Result<fs::File> {
        let (path, file) = self.lock_file(entry)?;
        file.lock()
            .with_context(|| format!("waiting for the lock {}", path.display()))?;
        Ok(file)
    }

    /// Keeps all entries of the cache for as long as the caller holds the file, because a build uses more entries than
    /// it makes. Waits for a removal of entries.
    pub fn keep_entries(&self) -> Result<fs::File> {
        let (path, file) = self.lock_file(BUILDS)?;
        file.lock_shared()
            .with_context(|| format!("waiting for the lock {}", path.display()))?;
        Ok(file)
    }

    /// Begins a removal of entries, which lasts for as long as the caller holds the file.
    ///
    /// # Errors
    /// A build uses the cache.
    pub fn remove_entries(&self) -> Result<fs::File> {
        let alone = self.try_lock(BUILDS)?;
        alone.ok_or_else(|| {
            Failure::new(
                format!("a build uses the cache {}", self.root.display()),
                "run this command again when the build has ended",
            )
        })
    }

    /// The lock of one entry; `None` while another process holds it.
    pub fn try_lock(&self, entry: &str) -> Result<Option<fs::File>> {
        let (_, file) = self.lock_file(entry)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

/// The name of a step's record.
pub fn entry(name: &str, key: &Key) -> String {
    format!("{name}-{}", key.as_str())
}

/// Removes a file or a tree, also one with read-only directories (Go's module cache makes them).
pub fn remove_tree(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    // Removes a symbolic link itself, never its target.
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.is_dir() {
        return fs::remove_file(path).with_context(|| format!("removing {}", path.display()));
    }
    for entry in walkdir::WalkDir::new(path) {
        let entry = entry.with_context(|| format!("listing {}", path.display()))?;
        if entry.file_type().is_dir() && entry.metadata()?.permissions().mode() & 0o200 == 0 {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o755))?;
        }
    }
    fs::remove_dir_all(path).with_context(|| format!("removing {}", path.display()))
}

#[cfg(test)]
mod tests;

//! The content-addressed cache: every step's output under the digest of its content, and a record of which step
//! made it under the hash of all its inputs.
//!
//! ```text
//! CORTEN_CACHE/
//!   fetch/<sha256>         a fetched file, verified before it gets this name and when it is used
//!   steps/<name>-<key>     a record: the digest of the step's output, and signatures of it
//!   outputs/<digest>/      an output: complete, or not there; held against its digest when it is used
//!   work/<entry>.<pid>/    what is being made; swept when its step runs again
//!   trees/<name>/          what stays between builds (the module `tree`)
//!   locks/                 one file per entry, held while it is being made
//! ```
//! An entry appears by one `rename`, so an interrupted or killed build leaves none behind, and two
//! builds at once make an entry once: the second waits for the first.

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

use crate::error::{Remedy as _, Result};
use crate::report::Format;
use crate::tree::TREES;

pub use digest::sha256_file;
pub use key::{Key, KeyBuilder};
use trust::PublicKey;

/// Where the Go modules are in a cache, which Go's own tool fetches.
pub const GO_MODULES: &str = "go/modules";
/// Where the records of finished steps are in a cache.
pub const STEPS: &str = "steps";
/// Where the outputs of finished steps are in a cache.
pub const OUTPUTS: &str = "outputs";

/// The cache on disk, and the read-only ones looked into before building.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    substituters: Vec<PathBuf>,
    /// Whose finished steps are taken from the substituters.
    trusted: Vec<PublicKey>,
    /// Caches of which only fetched files are taken.
    fetched: Vec<PathBuf>,
    /// How what must not be overlooked is said.
    format: Format,
    /// The outputs that this process made or has held against their digests.
    verified: Arc<Mutex<BTreeSet<String>>>,
}

impl Cache {
    /// Opens (and creates) the cache at `root`.
    pub fn open(root: &Path, substituters: Vec<PathBuf>) -> Result<Self> {
        for dir in ["fetch", STEPS, OUTPUTS, "work", TREES, "locks"] {
            fs::create_dir_all(root.join(dir)).or_fail(
                format!("creating the cache in {}", root.display()),
                "set CORTEN_CACHE to a directory you can write",
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

    /// Takes finished steps of substituters that one of these keys has signed.
    #[must_use]
    pub fn trusting(mut self, keys: Vec<PublicKey>) -> Self {
        self.trusted = keys;
        self
    }

    /// Warns in this format.
    #[must_use]
    pub fn reporting(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// A cache in the new directory `root` that shares with this one what was fetched, and nothing
    /// that was made; substituters stay.
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

    /// Where the cache is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the step's output directory, making it with `build` if it is not there yet, or no longer what it was.
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
        // A name of its own: what a killed build started may still be writing to the old one.
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

    /// A directory to work on an entry in, of which the caller holds the lock.
    fn work(&self, entry: &str) -> Result<PathBuf> {
        let work = format!("{entry}.{}", std::process::id());
        let work = self.root.join("work").join(work);
        fs::create_dir_all(&work).or_fail(
            format!("creating {}", work.display()),
            "free disk space in CORTEN_CACHE",
        )?;
        Ok(work)
    }

    /// Removes what killed builds left of an entry, of which the caller holds the lock.
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

    /// The path of a fetched file, there or not.
    pub fn fetched(&self, sha256: &str) -> PathBuf {
        self.root.join("fetch").join(sha256)
    }

    /// Looks a fetched file up in the substituters too. A file whose content is not that of its name is passed
    /// over: whoever can write to a cache does not change what is built.
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

    /// Waits for, and holds, the lock of one entry. The kernel drops it with the process.
    pub(crate) fn lock(&self, entry: &str) -> Result<fs::File> {
        let path = self.root.join("locks").join(entry);
        let file = fs::File::create(&path)
            .with_context(|| format!("creating the lock {}", path.display()))?;
        file.lock()
            .with_context(|| format!("waiting for the lock {}", path.display()))?;
        Ok(file)
    }

    /// The lock of one entry; `None` while another holds it.
    pub(crate) fn try_lock(&self, entry: &str) -> Result<Option<fs::File>> {
        let path = self.root.join("locks").join(entry);
        let file = fs::File::create(&path)
            .with_context(|| format!("creating the lock {}", path.display()))?;
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
    // Of a link it is the link that goes, wherever it leads.
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

//! The content-addressed cache: every step's output under the hash of all its inputs.
//!
//! ```text
//! CORTEN_CACHE/
//!   fetch/<sha256>         a fetched file, verified before it gets this name
//!   steps/<name>-<key>/    a step's output: complete, or not there
//!   work/<entry>.<pid>/    what is being made; swept when its step runs again
//!   trees/<name>/          what stays between builds (the module `tree`)
//!   locks/                 one file per entry, held while it is being made
//! ```
//! An entry appears by one `rename`, so an interrupted or killed build leaves none behind, and two
//! builds at once make an entry once: the second waits for the first.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::error::{Remedy as _, Result};
use crate::tree::TREES;

/// Where the Go modules are in a cache, which Go's own tool fetches.
pub const GO_MODULES: &str = "go/modules";

/// The name of a step's output: a hash over everything that determines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// 16 hex digits, enough to tell the entries of one cache apart.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Collects the inputs of a step, each under a label, into its [`Key`].
#[derive(Debug, Default)]
pub struct KeyBuilder {
    hash: Sha256,
}

impl KeyBuilder {
    /// Starts from the step's name and the recipe's version of that step.
    pub fn new(step: &str) -> Self {
        Self::default().add("step", step)
    }

    /// Adds a value. Lengths are hashed too, so that no two lists of inputs look alike.
    pub fn add(mut self, label: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [label.as_bytes(), value.as_ref()] {
            self.hash.update(part.len().to_le_bytes());
            self.hash.update(part);
        }
        self
    }

    /// Adds the output of an earlier step by its key.
    pub fn step(self, key: &Key) -> Self {
        self.add("input", key.as_str())
    }

    /// Adds a file's content.
    pub fn file(self, path: &Path) -> Result<Self> {
        let content = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(self.add(&crate::file_name(path), content))
    }

    /// Adds every file below `dir`, by relative path, in sorted order.
    pub fn tree(mut self, dir: &Path) -> Result<Self> {
        for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
            let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
            if entry.file_type().is_file() {
                let name = entry
                    .path()
                    .strip_prefix(dir)?
                    .to_string_lossy()
                    .into_owned();
                let content = fs::read(entry.path())
                    .with_context(|| format!("reading {}", entry.path().display()))?;
                self = self.add(&name, content);
            }
        }
        Ok(self)
    }

    /// The key of everything added so far.
    pub fn finish(self) -> Key {
        let mut hex = hex::encode(self.hash.finalize());
        hex.truncate(16);
        Key(hex)
    }
}

/// The cache on disk, and the read-only ones looked into before building.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    substituters: Vec<PathBuf>,
    /// Caches of which only fetched files are taken.
    fetched: Vec<PathBuf>,
}

impl Cache {
    /// Opens (and creates) the cache at `root`.
    pub fn open(root: &Path, substituters: Vec<PathBuf>) -> Result<Self> {
        for dir in ["fetch", "steps", "work", TREES, "locks"] {
            fs::create_dir_all(root.join(dir)).or_fail(
                format!("creating the cache in {}", root.display()),
                "set CORTEN_CACHE to a directory you can write",
            )?;
        }
        Ok(Self {
            root: fs::canonicalize(root)?,
            substituters,
            fetched: Vec::new(),
        })
    }

    /// A cache in the new directory `root` that shares with this one what was fetched, and nothing
    /// that was made; substituters stay.
    pub fn fresh(&self, root: &Path) -> Result<Self> {
        let mut fresh = Self::open(root, self.substituters.clone())?;
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

    /// A finished step output, here or in a substituter.
    pub fn lookup(&self, name: &str, key: &Key) -> Option<PathBuf> {
        let entry = format!("{name}-{}", key.as_str());
        std::iter::once(&self.root)
            .chain(&self.substituters)
            .map(|root| root.join("steps").join(&entry))
            .find(|path| path.is_dir())
    }

    /// Returns the step's output directory, making it with `build` if it is not there yet.
    ///
    /// `build` gets the directory to fill and a scratch directory; both are dropped if it fails.
    pub fn step(
        &self,
        name: &str,
        key: &Key,
        build: impl FnOnce(&Path, &Path) -> Result<()>,
    ) -> Result<PathBuf> {
        if let Some(found) = self.lookup(name, key) {
            return Ok(found);
        }
        let entry = format!("{name}-{}", key.as_str());
        let _lock = self.lock(&entry)?;
        if let Some(found) = self.lookup(name, key) {
            return Ok(found);
        }
        // A name of its own: what a killed build started may still be writing to the old one.
        self.sweep(&entry)?;
        let work = self
            .root
            .join("work")
            .join(format!("{entry}.{}", std::process::id()));
        let (out, scratch) = (work.join("out"), work.join("scratch"));
        fs::create_dir_all(&out)
            .and_then(|()| fs::create_dir_all(&scratch))
            .or_fail(
                format!("creating {}", work.display()),
                "free disk space in CORTEN_CACHE",
            )?;
        let built = build(&out, &scratch).with_context(|| format!("step {name}"));
        let done = self.root.join("steps").join(&entry);
        if built.is_ok() {
            fs::rename(&out, &done).with_context(|| format!("keeping the output of {name}"))?;
            remove_tree(&work)?;
        }
        built.map(|()| done)
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

/// The SHA-256 of a file, as 64 hex digits.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file
            .read(&mut buffer)
            .with_context(|| format!("reading {}", path.display()))?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            return Ok(hex::encode(hash.finalize()));
        };
        hash.update(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Vec::new()).unwrap();
        (dir, cache)
    }

    #[test]
    fn a_step_is_built_once() {
        let (_dir, cache) = cache();
        let key = KeyBuilder::new("demo").add("x", "1").finish();
        let first = cache
            .step("demo", &key, |out, _| Ok(fs::write(out.join("f"), "1")?))
            .unwrap();
        let second = cache
            .step("demo", &key, |_, _| anyhow::bail!("built again"))
            .unwrap();
        assert_eq!(first, second);
    }

    #[test]
    fn a_failed_step_leaves_no_entry() {
        let (_dir, cache) = cache();
        let key = KeyBuilder::new("demo").finish();
        cache
            .step("demo", &key, |_, _| anyhow::bail!("no"))
            .unwrap_err();
        assert_eq!(cache.lookup("demo", &key), None);
    }

    #[test]
    fn what_a_killed_build_left_is_swept() {
        let (_dir, cache) = cache();
        let key = KeyBuilder::new("demo").finish();
        let left = cache
            .root()
            .join("work")
            .join(format!("demo-{}.1", key.as_str()))
            .join("out");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("half"), "").unwrap();
        let out = cache
            .step("demo", &key, |out, _| Ok(fs::write(out.join("f"), "")?))
            .unwrap();
        assert!(!out.join("half").exists() && out.join("f").exists());
        assert!(!left.exists());
    }

    #[test]
    fn two_builds_at_once_make_an_entry_once() {
        let (_dir, cache) = cache();
        let key = KeyBuilder::new("demo").finish();
        let built = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    cache
                        .step("demo", &key, |_, _| {
                            built.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            Ok(())
                        })
                        .unwrap();
                });
            }
        });
        assert_eq!(built.into_inner(), 1);
    }

    #[test]
    fn a_fresh_cache_shares_what_was_fetched_and_nothing_made() {
        let (dir, cache) = cache();
        let empty = hex::encode(Sha256::digest(b""));
        fs::write(cache.fetched(&empty), "").unwrap();
        let key = KeyBuilder::new("demo").finish();
        cache.step("demo", &key, |_, _| Ok(())).unwrap();
        let fresh = cache.fresh(&dir.path().join("fresh")).unwrap();
        assert_eq!(fresh.find_fetched(&empty), Some(cache.fetched(&empty)));
        assert_eq!(fresh.lookup("demo", &key), None);
    }

    #[test]
    fn keys_depend_on_every_part_and_its_border() {
        let key = |a: &str, b: &str| KeyBuilder::new("s").add(a, b).finish();
        assert_ne!(key("a", "bc"), key("ab", "c"));
        assert_ne!(key("a", "b"), key("a", "c"));
    }
}

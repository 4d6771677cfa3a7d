//! Kept trees: directories that stay in the cache between builds, for incremental tools such as `make`.
//!
//! An interrupted kernel build continues, and a changed option compiles only the affected files. The results are still
//! outputs of a step with a key; `mkimage verify` builds them again from an empty tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cache::{Cache, Key, TREES, remove_tree};
use crate::error::{Remedy as _, Result};

/// The file in a tree that records its origin and, during a build, the boot id.
const ORIGIN: &str = ".origin";

/// A locked working tree; dropping it releases the lock.
#[derive(Debug)]
pub struct KeptTree {
    path: PathBuf,
    origin: Key,
    _lock: fs::File,
}

impl Cache {
    /// The tree `name`, as the last build left it. It is filled again with `fill` if its origin is not `origin`, or if
    /// the machine stopped during a build. Files that looked written may then be lost.
    pub fn tree(
        &self,
        name: &str,
        origin: &Key,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<KeptTree> {
        let tree = KeptTree {
            path: self.root().join(TREES).join(name),
            origin: origin.clone(),
            _lock: self.lock(name)?,
        };
        let worked_on = tree.worked_on()?;
        let stamp = fs::read_to_string(tree.path.join(ORIGIN)).unwrap_or_default();
        if stamp != worked_on && stamp != tree.settled() {
            remove_tree(&tree.path)?;
            fs::create_dir_all(&tree.path).or_fail(
                format!("creating {}", tree.path.display()),
                "free disk space in CORTEN_CACHE",
            )?;
            fill(&tree.path)?;
        }
        tree.stamp(&worked_on)?;
        Ok(tree)
    }
}

impl KeptTree {
    /// The directory, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the tree to disk, then records that no build works on it.
    pub fn settle(&self) -> Result<()> {
        let directory = fs::File::open(&self.path)?;
        rustix::fs::syncfs(directory)
            .with_context(|| format!("writing {} to the disk", self.path.display()))?;
        self.stamp(&self.settled())
    }

    fn stamp(&self, text: &str) -> Result<()> {
        let path = self.path.join(ORIGIN);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    fn settled(&self) -> String {
        format!("{}\n", self.origin.as_str())
    }

    fn worked_on(&self) -> Result<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .context("reading the boot ID of this machine")?;
        Ok(self.settled() + &boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::KeyBuilder;

    fn key(of: &str) -> Key {
        KeyBuilder::new(of).finish()
    }

    /// Opens the tree, and returns whether it was filled.
    fn filled(cache: &Cache, origin: &str, settle: bool) -> bool {
        let mut filled = false;
        let tree = cache.tree("demo", &key(origin), |path| {
            filled = true;
            Ok(fs::write(path.join("source"), origin)?)
        });
        let tree = tree.unwrap();
        assert_eq!(
            fs::read_to_string(tree.path().join("source")).unwrap(),
            origin
        );
        fs::write(tree.path().join(format!("made-of-{origin}")), "").unwrap();
        if settle {
            tree.settle().unwrap();
        }
        filled
    }

    #[test]
    fn source_tree_is_kept_until_its_inputs_change() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Vec::new()).unwrap();
        assert!(filled(&cache, "a", true));
        assert!(!filled(&cache, "a", false), "settled");
        assert!(!filled(&cache, "a", false), "interrupted");
        assert!(filled(&cache, "b", true));
        assert!(!dir.path().join("trees/demo/made-of-a").exists());
    }

    #[test]
    fn source_tree_in_use_at_a_crash_is_recreated() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), Vec::new()).unwrap();
        assert!(filled(&cache, "a", false));
        let stamp = dir.path().join("trees/demo").join(ORIGIN);
        let of_another_boot = format!("{}\nanother\n", key("a").as_str());
        fs::write(&stamp, of_another_boot).unwrap();
        assert!(filled(&cache, "a", false));
        fs::remove_file(&stamp).unwrap();
        assert!(filled(&cache, "a", false), "its creation was interrupted");
    }
}

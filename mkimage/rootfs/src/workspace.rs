//! A copy of the workspace at a fixed path in the cache, in which only changed files have a new date.
//!
//! Cargo detects changes by path and date, and content-addressed steps must depend on neither. A file with an old date
//! would give an old program under a new key. Each checkout would compile everything again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::error::{Remedy as _, Result};
use serde::Deserialize;

/// The file that pins the toolchain, which rustup reads.
const TOOLCHAIN: &str = "rust-toolchain.toml";

#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    members: Vec<PathBuf>,
}

/// Makes `copy` equal to the workspace at `source`: the files and directories `inputs`, and every
/// other member, because cargo reads only a complete workspace.
pub fn sync(source: &Path, copy: &Path, inputs: &[&str]) -> Result<()> {
    let mut wanted = BTreeSet::new();
    let inputs = inputs.iter().chain([&TOOLCHAIN]).map(PathBuf::from);
    for input in inputs.chain(members(source)?) {
        for path in files(&source.join(input))? {
            let path = path.strip_prefix(source)?.to_owned();
            if !wanted.contains(&path) {
                place(source, copy, &path)?;
                wanted.insert(path);
            }
        }
    }
    for path in files(copy)? {
        if !wanted.contains(path.strip_prefix(copy)?) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// The directories of the members of the workspace at `source`, relative to it.
pub fn members(source: &Path) -> Result<Vec<PathBuf>> {
    let manifest = source.join("Cargo.toml");
    let text =
        fs::read_to_string(&manifest).with_context(|| format!("reading {}", manifest.display()))?;
    let manifest: Manifest = toml::from_str(&text).or_fail(
        format!("{} names no members", manifest.display()),
        "run mkimage in the source tree, or give its path with --source",
    )?;
    Ok(manifest.workspace.members)
}

/// Every regular file below `dir`; for a file, the file itself.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(dir) {
        let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
        if entry.file_type().is_file() {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

fn place(source: &Path, copy: &Path, path: &Path) -> Result<()> {
    let from = source.join(path);
    let content = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
    let to = copy.join(path);
    if fs::read(&to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(copy))
        .and_then(|()| fs::write(&to, content))
        .or_fail(
            format!("writing {}", to.display()),
            "free disk space in CORTEN_CACHE",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_writes_changed_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let (source, copy) = (dir.path().join("source"), dir.path().join("copy"));
        let write = |path: &str, text: &str| {
            let path = source.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nmembers = [\"a\", \"deep/b\"]\n");
        write("build.rs", "");
        write("rust-toolchain.toml", "");
        write("a/src/lib.rs", "1");
        write("deep/b/src/lib.rs", "2");
        write("deep/other", "not a member's");
        sync(&source, &copy, &["Cargo.toml", "build.rs", "a"]).unwrap();
        let date = |path: &str| fs::metadata(copy.join(path)).unwrap().modified().unwrap();
        let old = std::time::UNIX_EPOCH;
        for path in ["a/src/lib.rs", "deep/b/src/lib.rs"] {
            let file = fs::File::options()
                .write(true)
                .open(copy.join(path))
                .unwrap();
            file.set_modified(old).unwrap();
        }
        write("a/src/lib.rs", "3");
        write("a/src/new.rs", "");
        fs::remove_file(source.join("deep/b/src/lib.rs")).unwrap();
        write("deep/b/src/main.rs", "2");
        sync(&source, &copy, &["Cargo.toml", "build.rs", "a"]).unwrap();
        assert_ne!(date("a/src/lib.rs"), old);
        assert!(copy.join("a/src/new.rs").exists() && copy.join("deep/b/src/main.rs").exists());
        assert!(!copy.join("deep/b/src/lib.rs").exists() && !copy.join("deep/other").exists());
        let before = date("a/src/lib.rs");
        sync(&source, &copy, &["Cargo.toml", "build.rs", "a"]).unwrap();
        assert_eq!(date("a/src/lib.rs"), before);
    }
}

//! Moves finished outputs to their final names by atomic rename.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::cache::remove_tree;
use corten_steps::error::{Remedy as _, Result};
use corten_steps::interrupt;
use corten_steps::tool::Tool;

/// Copies a finished output under its final name.
pub fn copy(from: &Path, target: &Path) -> Result<()> {
    whole(target, |partial| {
        Tool::new("cp")
            .args([
                "--recursive",
                "--sparse=always",
                "--reflink=auto",
                "--no-target-directory",
            ])
            .arg(from)
            .arg(partial)
            .run()
    })
}

/// Runs `write` with a temporary name beside `target` and renames the result to `target`. If
/// `write` fails, the partial output is removed and an older `target` stays untouched.
pub fn whole(target: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    sweep(target)?;
    let partial = sibling(target, std::process::id());
    let _tidy = interrupt::Partial::new(&partial);
    let written = write(&partial).or_fail(
        format!("writing {}", target.display()),
        "free disk space there, or set --out to another directory",
    );
    let moved = written.and_then(|()| {
        if target.is_dir() {
            remove_tree(target)?;
        }
        fs::rename(&partial, target).with_context(|| format!("writing {}", target.display()))
    });
    if moved.is_err() {
        // The first error is the one to report; the next build sweeps the remains.
        let _ = remove_tree(&partial);
    }
    moved
}

/// The temporary name of an output that the process `id` writes.
fn sibling(target: &Path, id: u32) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".part{id}"));
    PathBuf::from(name)
}

/// Removes partial outputs of killed builds beside `target`.
fn sweep(target: &Path) -> Result<()> {
    let prefix = format!(
        "{}.part",
        target.file_name().unwrap_or_default().to_string_lossy()
    );
    let directory = target.parent().unwrap_or(Path::new(""));
    let entries =
        fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(Ok(id)) = name.strip_prefix(&prefix).map(str::parse::<u32>) else {
            continue;
        };
        if Path::new("/proc").join(id.to_string()).exists() {
            continue;
        }
        remove_tree(&entry.path())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_copy_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        copy(&dir.path().join("missing"), &dir.path().join("image")).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn failed_build_keeps_the_old_output() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("image");
        fs::write(&target, "old").unwrap();
        whole(&target, |partial| {
            fs::write(partial, "ha").unwrap();
            anyhow::bail!("full")
        })
        .unwrap_err();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_of_a_killed_build_are_removed_and_a_running_builds_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("image");
        // No process has id 0; process 1 always runs.
        let (dead, alive) = (sibling(&target, 0), sibling(&target, 1));
        for path in [&dead, &alive] {
            fs::write(path, "half").unwrap();
        }
        whole(&target, |partial| Ok(fs::write(partial, "new")?)).unwrap();
        assert!(!dead.exists() && alive.exists());
        assert_eq!(fs::read(&target).unwrap(), b"new");
        for make in [
            |path: &Path| fs::create_dir_all(path.join("of/directories")),
            |path: &Path| std::os::unix::fs::symlink("nothing", path),
        ] {
            make(&dead).unwrap();
            sweep(&target).unwrap();
            fs::symlink_metadata(&dead).unwrap_err();
        }
    }
}

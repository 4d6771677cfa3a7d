//! Writes a tree as squashfs: same tree, same bytes, without root.
//!
//! Modes and owners come from the tree through pseudo-file definitions, never from the build
//! machine's file system; every time stamp is 0.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;

use crate::error::{Remedy as _, Result};
use crate::rootfs::toolchain::Locked;
use crate::rootfs::tree::{Kind, Node, Tree};

/// Compressed unit. 1 MiB is 3 % smaller, but a page fault then unpacks four times as much.
const BLOCK: &str = "256K";

/// zstd level; 22 gives the same size at this block size.
const LEVEL: &str = "19";

/// What determines the image besides the tree and the tool, for a step's key.
pub fn parameters() -> String {
    format!("zstd {LEVEL} {BLOCK}")
}

/// Writes `tree` to the file `image`; `scratch` gets a copy of every file.
pub fn write(tree: &Tree, tools: &Locked, scratch: &Path, image: &Path) -> Result<()> {
    let stage = scratch.join("stage");
    fs::create_dir_all(&stage).with_context(|| format!("creating {}", stage.display()))?;
    let mut pseudo = String::new();
    for (path, node) in tree.nodes() {
        place(&stage.join(path), node)?;
        if !matches!(node.kind, Kind::Link(_)) {
            let path = quoted(path);
            pseudo.push_str(&format!(
                "{path} m {:o} {} {}\n",
                node.mode, node.uid, node.gid
            ));
        }
    }
    let definitions = scratch.join("modes");
    fs::write(&definitions, pseudo)
        .with_context(|| format!("writing {}", definitions.display()))?;
    tools
        .tool("usr/bin/mksquashfs")
        .arg(&stage)
        .arg(image)
        .args([
            "-noappend",
            "-no-progress",
            "-quiet",
            "-no-xattrs",
            "-no-exports",
        ])
        .args([
            "-root-mode",
            "755",
            "-all-root",
            "-all-time",
            "0",
            "-mkfs-time",
            "0",
        ])
        .args(["-comp", "zstd", "-Xcompression-level", LEVEL, "-b", BLOCK])
        .arg("-pf")
        .arg(&definitions)
        .run()
        .or_fail(
            format!("cannot write {}", image.display()),
            "free disk space in CORTEN_CACHE",
        )
}

/// A path as pseudo-file definitions have it: firmware files have spaces in their names.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._+,:@=~-".contains(c);
    if path.chars().all(plain) {
        return path.to_owned();
    }
    let escaped = path.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

fn place(path: &Path, node: &Node) -> Result<()> {
    match &node.kind {
        Kind::Directory => fs::create_dir(path),
        Kind::Link(target) => symlink(target, path),
        Kind::File(from) => fs::copy(from, path).map(drop),
    }
    .with_context(|| format!("placing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unusual_paths_are_quoted() {
        assert_eq!(quoted("usr/lib/a-b_1.so"), "usr/lib/a-b_1.so");
        assert_eq!(quoted("fw/a b\"c\\.bin"), "\"fw/a b\\\"c\\\\.bin\"");
    }
}

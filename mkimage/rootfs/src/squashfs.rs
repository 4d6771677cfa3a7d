//! Writes a tree as squashfs: same tree, same bytes, without root.
//!
//! Modes and owners come from the tree through pseudo-file definitions, never from the build
//! machine's file system. Every time stamp is 0.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::error::{Remedy as _, Result};
use corten_steps::toolchain::Locked;

use crate::tree::{Kind, Node, Tree};

/// The compression block, the format's maximum: 256 KiB would make the image 1.4 MB larger. A page
/// fault decompresses a whole block into the page cache, which takes about a millisecond.
const BLOCK: &str = "1M";

/// The compression level of zstd.
#[derive(Debug, Clone, Copy)]
pub enum Effort {
    /// For shipped images; level 22 gives the same size.
    Full,
    /// For development, in a tenth of the time.
    Quick,
}

impl Effort {
    fn level(self) -> &'static str {
        match self {
            Self::Full => "19",
            Self::Quick => "1",
        }
    }

    /// The parameters that determine the image besides tree and tool, for a step's key.
    pub fn parameters(self) -> String {
        format!("zstd {} {BLOCK}", self.level())
    }
}

/// Writes `tree` to the file `image`; `scratch` gets a copy of every file.
pub fn write(
    tree: &Tree,
    effort: Effort,
    tools: &Locked,
    scratch: &Path,
    image: &Path,
) -> Result<()> {
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
        .args([
            "-comp",
            "zstd",
            "-Xcompression-level",
            effort.level(),
            "-b",
            BLOCK,
        ])
        .arg("-pf")
        .arg(&definitions)
        .run()
        .or_fail(
            format!("cannot write {}", image.display()),
            "free disk space in CORTEN_CACHE",
        )
}

/// A path in the syntax of pseudo-file definitions: names of firmware files contain spaces.
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

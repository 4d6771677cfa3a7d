//! Merges layers in memory (image-spec 1.1, layer.md).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::PathBuf;

use tar::EntryType;

/// Limit of all contents together, in bytes. An initramfs could not hold more.
const MOST_BYTES: u64 = 2 << 30;
/// Limit of the number of paths, including those of lower layers.
const MOST_PATHS: usize = 200_000;
/// Longest path and longest link target, in bytes.
const LONGEST: usize = 4096;
/// Prefix of a name that deletes that name of a lower layer.
const WHITEOUT: &str = ".wh.";
/// Name that deletes everything of lower layers in its directory.
const OPAQUE: &str = ".wh..wh..opq";

/// The content of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Directory,
    Link(String),
    File(PathBuf),
    /// A file type that no extension may have; the text names it.
    Special(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) mode: u32,
    pub(super) content: Content,
}

/// The merged paths of the image, without a leading `/`. Paths are never looked up on a disk, so a link in the archive
/// cannot redirect a write.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
    scratch: PathBuf,
    written: usize,
    room: u64,
}

impl Tree {
    pub(super) fn new(scratch: PathBuf) -> Tree {
        Tree {
            nodes: BTreeMap::new(),
            scratch,
            written: 0,
            room: MOST_BYTES,
        }
    }

    pub(super) fn into_nodes(self) -> BTreeMap<String, Node> {
        self.nodes
    }

    /// Applies one more layer, a tar.
    pub(super) fn apply(&mut self, layer: impl Read) -> io::Result<()> {
        let mut tar = tar::Archive::new(layer);
        for entry in tar.entries()? {
            let mut entry = entry?;
            if matches!(
                entry.header().entry_type(),
                EntryType::XGlobalHeader | EntryType::XHeader
            ) {
                continue;
            }
            let path = path(&entry.path_bytes())?;
            // The root directory itself.
            if path.is_empty() {
                continue;
            }
            if self.nodes.len() >= MOST_PATHS {
                return Err(io::Error::other(format!(
                    "it has more than {MOST_PATHS} paths"
                )));
            }
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
            if name == OPAQUE {
                self.remove_below(parent);
            } else if let Some(gone) = name.strip_prefix(WHITEOUT) {
                let gone = if parent.is_empty() {
                    gone.to_owned()
                } else {
                    format!("{parent}/{gone}")
                };
                self.remove(&gone);
            } else {
                let content = self.content(&mut entry, &path)?;
                let mode = entry.header().mode()? & 0o7777;
                self.place(path, Node { mode, content })?;
            }
        }
        Ok(())
    }

    fn content(&mut self, entry: &mut tar::Entry<'_, impl Read>, at: &str) -> io::Result<Content> {
        match entry.header().entry_type() {
            EntryType::Directory => Ok(Content::Directory),
            EntryType::Symlink => Ok(Content::Link(target(entry, at)?)),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.keep(entry, at).map(Content::File)
            }
            // A hard link.
            EntryType::Link => {
                let target = path(target(entry, at)?.as_bytes())?;
                match self.nodes.get(&target).map(|node| &node.content) {
                    Some(Content::File(content)) => Ok(Content::File(content.clone())),
                    _ => Err(wrong(at, "it is a hard link to a missing file")),
                }
            }
            EntryType::Char | EntryType::Block => Ok(Content::Special("a device")),
            EntryType::Fifo => Ok(Content::Special("a pipe")),
            _ => Ok(Content::Special("of an unknown file type")),
        }
    }

    /// Writes a file's bytes to the next numbered file.
    fn keep(&mut self, entry: &mut impl Read, at: &str) -> io::Result<PathBuf> {
        let kept = self.scratch.join(self.written.to_string());
        self.written += 1;
        let mut file = File::create_new(&kept)?;
        let length = io::copy(&mut entry.take(self.room), &mut file)?;
        file.flush()?;
        self.room = self.room.saturating_sub(length);
        if self.room == 0 {
            return Err(wrong(at, "the files are larger than 2 GiB in total"));
        }
        Ok(kept)
    }

    /// Puts a node at its path and creates missing parent directories.
    fn place(&mut self, path: String, node: Node) -> io::Result<()> {
        for (end, _) in path.match_indices('/') {
            let parent = path.get(..end).unwrap_or_default();
            let made = self.nodes.entry(parent.to_owned()).or_insert(Node {
                mode: 0o755,
                content: Content::Directory,
            });
            if made.content != Content::Directory {
                return Err(wrong(&path, "its parent is not a directory"));
            }
        }
        // A directory that replaces a directory keeps its entries.
        if node.content != Content::Directory {
            self.remove(&path);
        } else if self
            .nodes
            .get(&path)
            .is_some_and(|old| old.content != Content::Directory)
        {
            self.nodes.remove(&path);
        }
        self.nodes.insert(path, node);
        Ok(())
    }

    fn remove(&mut self, path: &str) {
        self.remove_below(path);
        self.nodes.remove(path);
    }

    fn remove_below(&mut self, directory: &str) {
        if directory.is_empty() {
            return self.nodes.clear();
        }
        let first = format!("{directory}/");
        let below: Vec<String> = self
            .nodes
            .range(first.clone()..)
            .map(|(path, _)| path.clone())
            .take_while(|path| path.starts_with(&first))
            .collect();
        for path in below {
            self.nodes.remove(&path);
        }
    }
}

fn target(entry: &tar::Entry<'_, impl Read>, at: &str) -> io::Result<String> {
    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
    String::from_utf8(target).map_err(|_| wrong(at, "its target is not UTF-8"))
}

/// Normalizes a path of the tar: plain parts separated by one `/`.
fn path(bytes: &[u8]) -> io::Result<String> {
    let text = std::str::from_utf8(bytes).unwrap_or("\0");
    if text.len() > LONGEST || text.contains('\0') {
        let shown = String::from_utf8_lossy(bytes);
        return Err(wrong(&shown, "the path is too long or is not UTF-8"));
    }
    let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = parts.collect();
    if parts.contains(&"..") {
        return Err(wrong(text, "the path contains .."));
    }
    Ok(parts.join("/"))
}

fn wrong(path: &str, what: &str) -> io::Error {
    let shown: String = path.chars().take(200).collect();
    io::Error::other(format!("{shown:?}: {what}"))
}

//! Groups and their files, read from an archive.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Component;

use anyhow::ensure;

/// The largest file kept, in bytes: the list of a group's processes.
const MAX_FILE: u64 = 256 * 1024;
/// Maximum number of files, and maximum size of all of them in bytes.
const MAX_FILES: usize = 200_000;
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// A group's files by name.
pub(super) type Group = BTreeMap<String, String>;

/// Maximum number of groups; a node with 500 pods has about 2,000.
const MAX_GROUPS: usize = 5_000;
/// Maximum depth of nested groups.
const MAX_DEPTH: usize = 32;

/// Groups by the parts of their path, which is empty for the root.
#[derive(Debug, Default)]
pub(super) struct Tree {
    groups: BTreeMap<Vec<String>, Group>,
}

impl Tree {
    /// Reads an archive, which may be hostile: no file is written.
    ///
    /// # Errors
    /// The archive is damaged or too large.
    pub(super) fn read(archive: impl Read) -> anyhow::Result<Tree> {
        let mut tree = Tree::default();
        let (mut files, mut bytes) = (0_usize, 0_usize);
        for entry in tar::Archive::new(archive).entries()? {
            let entry = entry?;
            let path = entry.path()?.into_owned();
            let parts = path.components().filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            });
            let mut parts: Vec<String> = parts.collect();
            ensure!(
                parts.len() <= MAX_DEPTH && tree.groups.len() <= MAX_GROUPS,
                "it has too many cgroups, or too deep ones"
            );
            if entry.header().entry_type().is_dir() {
                tree.groups.entry(parts).or_default();
                continue;
            }
            let Some(name) = parts.pop() else { continue };
            let mut content = Vec::new();
            entry.take(MAX_FILE).read_to_end(&mut content)?;
            files += 1;
            bytes = bytes.saturating_add(content.len());
            ensure!(
                files <= MAX_FILES && bytes <= MAX_BYTES,
                "its files exceed the limit in number or size"
            );
            let text = String::from_utf8_lossy(&content).into_owned();
            tree.groups.entry(parts).or_default().insert(name, text);
        }
        ensure!(!tree.groups.is_empty(), "there are no cgroups in it");
        Ok(tree)
    }

    /// The root's files, with the usage of all groups together.
    pub(super) fn root(&self) -> Option<&Group> {
        self.groups.get(&Vec::new())
    }

    /// Every group with its path below the root; the root's own path is empty.
    pub(super) fn groups(&self) -> impl Iterator<Item = (String, &Group)> {
        let groups = self.groups.iter();
        groups.map(|(path, group)| (path.join("/"), group))
    }

    /// Every group with its name, drawn as a tree.
    pub(super) fn rows(&self) -> Vec<(String, &Group)> {
        let paths: Vec<&Vec<String>> = self.groups.keys().collect();
        let mut rows = Vec::new();
        for (index, (path, group)) in self.groups.iter().enumerate() {
            let Some(name) = path.last() else {
                rows.push((".".to_owned(), group));
                continue;
            };
            let mut text = String::new();
            for depth in 1..path.len() {
                text.push_str(if more(&paths, index, path, depth) {
                    "│  "
                } else {
                    "   "
                });
            }
            let last = !more(&paths, index, path, path.len());
            text.push_str(if last { "└──" } else { "├──" });
            text.push_str(name);
            rows.push((text, group));
        }
        rows
    }
}

/// Whether another group at `depth` follows after `index`. Paths are sorted, so that the groups of
/// one parent are adjacent.
fn more(paths: &[&Vec<String>], index: usize, path: &[String], depth: usize) -> bool {
    let parent = path.get(..depth - 1).unwrap_or_default();
    let own = path.get(..depth).unwrap_or_default();
    paths
        .iter()
        .skip(index + 1)
        .take_while(|other| other.starts_with(parent))
        .any(|other| other.len() >= depth && !other.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            builder
                .append_data(&mut header, name, text.as_bytes())
                .unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn groups_are_a_tree() {
        let bytes = archive(&[
            ("cgroup.procs", ""),
            ("init/cgroup.procs", "1\n"),
            ("system/apid/cgroup.procs", "7\n"),
            ("system/cgroup.procs", ""),
            ("system/udevd/cgroup.procs", "8\n"),
            ("x/a/b/pids.max", "max\n"),
        ]);
        let tree = Tree::read(&*bytes).unwrap();
        let names: Vec<String> = tree.rows().into_iter().map(|(name, _)| name).collect();
        let expected = [
            ".",
            "├──init",
            "├──system",
            "│  ├──apid",
            "│  └──udevd",
            "      └──b",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_damaged_or_empty_archive_is_an_error() {
        Tree::read(&b"noise"[..]).unwrap_err();
        let error = Tree::read(&*archive(&[])).unwrap_err().to_string();
        assert!(error.contains("no cgroups"), "{error}");
    }
}

//! The image's files in memory: path, kind, mode, owner, and the location of the content.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::deb;
use corten_steps::error::{Failure, Result};

use crate::certs;
use crate::manifest::{Content, Entry, Generated, Manifest, Source};

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Link(String),
    /// A regular file with the content of this file on the build machine.
    File(PathBuf),
}

/// One path of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its kind and content.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Every path of the image without its leading `/`, in order, parents before children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

/// The sources of the manifest's content.
#[derive(Debug)]
pub struct Sources<'a> {
    /// The repository.
    pub repo: &'a Path,
    /// Files of the locked packages, by package name.
    pub packages: &'a BTreeMap<String, PathBuf>,
    /// Output of the Go build.
    pub go: &'a Path,
    /// Output of the cargo build.
    pub cargo: &'a Path,
    /// Output of the build of libkmod.
    pub c: &'a Path,
    /// The kernel's modules: a directory with `<release>/`; `None` for an image without modules.
    pub modules: Option<&'a Path>,
    /// The image's architecture.
    pub arch: Arch,
    /// The version of the image.
    pub version: &'a str,
    /// The bill of materials.
    pub bill: &'a str,
    /// The licence texts of the components.
    pub licences: &'a str,
}

impl Tree {
    /// The nodes in path order.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The node at a path without a leading `/`; does not follow links.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Adds a node; an existing path is an error.
    pub fn insert(&mut self, path: String, node: Node) -> Result<()> {
        if self.nodes.contains_key(&path) {
            return Err(Failure::new(
                format!("/{path} is in the manifest twice"),
                "give it one entry in rootfs/manifest.toml",
            ));
        }
        self.nodes.insert(path, node);
        Ok(())
    }

    /// The path that `path` leads to in the image after following every link; `None` for a dangling
    /// link.
    pub fn resolve(&self, path: &str) -> Option<String> {
        let mut done: Vec<String> = Vec::new();
        let mut open: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(part) = open.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => drop(done.pop()),
                _ => done.push(part),
            }
            if let Some(Node {
                kind: Kind::Link(target),
                ..
            }) = self.nodes.get(&done.join("/"))
            {
                links += 1;
                if links > 40 {
                    return None;
                }
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                open.extend(target.split('/').rev().map(str::to_owned));
            }
        }
        let path = done.join("/");
        (path.is_empty() || self.nodes.contains_key(&path)).then_some(path)
    }
}

/// Assembles the tree; generated files and files of packages are written below `scratch`.
pub fn assemble(manifest: &Manifest, sources: &Sources<'_>, scratch: &Path) -> Result<Tree> {
    let unpacked = unpack(manifest, sources, scratch)?;
    let mut tree = Tree::default();
    for entry in manifest.entries() {
        let kind = match &entry.content {
            Content::Directory => Kind::Directory,
            Content::Link(target) => Kind::Link(target.clone()),
            Content::File(source) => Kind::File(file(entry, source, sources, &unpacked, scratch)?),
            Content::Modules => {
                insert(&mut tree, entry, Kind::Directory)?;
                if let Some(modules) = sources.modules {
                    add_modules(&mut tree, &entry.path, modules)?;
                }
                continue;
            }
        };
        insert(&mut tree, entry, kind)?;
    }
    Ok(tree)
}

fn insert(tree: &mut Tree, entry: &Entry, kind: Kind) -> Result<()> {
    let node = Node {
        kind,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
    };
    tree.insert(entry.path.clone(), node)
}

/// The location of a file entry's content.
fn file(
    entry: &Entry,
    source: &Source,
    sources: &Sources<'_>,
    unpacked: &BTreeMap<(String, String), PathBuf>,
    scratch: &Path,
) -> Result<PathBuf> {
    let path = match source {
        Source::Deb { package, path } => unpacked
            .get(&(package.clone(), path.clone()))
            .cloned()
            .unwrap_or_default(),
        Source::Go(name) => sources.go.join(name),
        Source::Cargo(name) => sources.cargo.join(name),
        Source::C(name) => sources.c.join(name),
        Source::Repo(path) => sources.repo.join(path),
        Source::Generated(what) => {
            let path = scratch.join(entry.path.replace('/', "-"));
            let write = |text: &str| {
                fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
            };
            match what {
                Generated::OsRelease => write(&os_release(sources.version))?,
                Generated::Bill => write(sources.bill)?,
                Generated::Licences => write(sources.licences)?,
                Generated::CaBundle => {
                    certs::write(package(sources.packages, "ca-certificates")?, &path)?;
                }
            }
            path
        }
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::new(
        format!(
            "/{} of the image: there is no file {}",
            entry.path,
            path.display()
        ),
        "correct its `from` in rootfs/manifest.toml",
    ))
}

/// os-release(5); also a section of the UKI.
pub fn os_release(version: &str) -> String {
    format!(
        "NAME=\"Corten\"\nID=corten\nVERSION_ID=\"{version}\"\n\
         PRETTY_NAME=\"Corten {version}\"\nIMAGE_ID=corten\nIMAGE_VERSION=\"{version}\"\n"
    )
}

fn package<'a>(packages: &'a BTreeMap<String, PathBuf>, name: &str) -> Result<&'a PathBuf> {
    packages.get(name).ok_or_else(|| {
        Failure::new(
            format!("rootfs/manifest.toml uses a file of {name}, which is not locked"),
            "add the package to rootfs/packages.lock for the use \"rootfs\"",
        )
    })
}

/// Unpacks exactly the files that the manifest names, and records their paths on disk.
fn unpack(
    manifest: &Manifest,
    sources: &Sources<'_>,
    scratch: &Path,
) -> Result<BTreeMap<(String, String), PathBuf>> {
    let mut wanted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in manifest.entries() {
        if let Content::File(Source::Deb { package, path }) = &entry.content {
            wanted.entry(package).or_default().push(path);
        }
    }
    let mut found = BTreeMap::new();
    for (name, paths) in wanted {
        let file = package(sources.packages, name)?;
        let mut links = Tree::default();
        deb::for_each_entry(file, |path, kind, mode, _| {
            let kind = match kind {
                deb::Kind::Directory => Kind::Directory,
                deb::Kind::Symlink(target) => Kind::Link(target.clone()),
                deb::Kind::File | deb::Kind::Hardlink(_) => Kind::File(PathBuf::new()),
            };
            let node = Node {
                kind,
                mode,
                uid: 0,
                gid: 0,
            };
            if path.is_empty() {
                Ok(())
            } else {
                links.insert(path.to_owned(), node)
            }
        })?;
        let root = scratch.join("packages").join(name);
        let mut real = Vec::new();
        for path in paths {
            let target = links.resolve(path).ok_or_else(|| {
                Failure::new(
                    format!("the locked package {name} has no file {path}"),
                    "correct rootfs/manifest.toml or lock another version",
                )
            })?;
            found.insert((name.to_owned(), path.to_owned()), root.join(&target));
            real.push(target);
        }
        deb::unpack(file, &root, |path| real.iter().any(|wanted| wanted == path))?;
    }
    Ok(found)
}

/// Adds `<release>/…` of the kernel's modules: plain files and directories only.
fn add_modules(tree: &mut Tree, at: &str, modules: &Path) -> Result<()> {
    for entry in walkdir::WalkDir::new(modules)
        .min_depth(1)
        .sort_by_file_name()
    {
        let entry = entry.with_context(|| format!("listing {}", modules.display()))?;
        let below = entry
            .path()
            .strip_prefix(modules)?
            .to_string_lossy()
            .into_owned();
        let (kind, mode) = if entry.file_type().is_dir() {
            (Kind::Directory, 0o755)
        } else if entry.file_type().is_file() {
            (Kind::File(entry.path().to_owned()), 0o644)
        } else {
            return Err(Failure::new(
                format!(
                    "{} is neither a file nor a directory",
                    entry.path().display()
                ),
                "the kernel step must install modules without its build and source links",
            ));
        };
        tree.insert(
            format!("{at}/{below}"),
            Node {
                kind,
                mode,
                uid: 0,
                gid: 0,
            },
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(to: &str) -> Node {
        Node {
            kind: Kind::Link(to.into()),
            mode: 0o777,
            uid: 0,
            gid: 0,
        }
    }

    fn directory() -> Node {
        Node {
            kind: Kind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
        }
    }

    #[test]
    fn links_are_followed_inside_the_image() {
        let mut tree = Tree::default();
        for (path, node) in [
            ("bin", link("usr/bin")),
            ("usr", directory()),
            ("usr/bin", directory()),
            ("usr/bin/a", link("../lib/b")),
            ("usr/lib", directory()),
            ("usr/lib/b", directory()),
            ("usr/up", link("/../usr/lib")),
            ("loop", link("loop")),
        ] {
            tree.insert(path.into(), node).unwrap();
        }
        assert_eq!(tree.resolve("bin/a").as_deref(), Some("usr/lib/b"));
        assert_eq!(tree.resolve("usr/up/b").as_deref(), Some("usr/lib/b"));
        assert_eq!(tree.resolve("loop"), None);
        assert_eq!(tree.resolve("bin/none"), None);
        assert!(tree.insert("bin".into(), directory()).is_err());
    }

    #[test]
    fn modules_come_without_links_out_of_the_image() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("6.12/kernel")).unwrap();
        fs::write(dir.path().join("6.12/kernel/a.ko"), "").unwrap();
        let mut tree = Tree::default();
        add_modules(&mut tree, "usr/lib/modules", dir.path()).unwrap();
        assert_eq!(
            tree.get("usr/lib/modules/6.12/kernel/a.ko").unwrap().mode,
            0o644
        );
        std::os::unix::fs::symlink("/", dir.path().join("6.12/build")).unwrap();
        let error = add_modules(&mut Tree::default(), "m", dir.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("6.12/build is neither"), "{error}");
    }
}

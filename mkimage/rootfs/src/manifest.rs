//! `rootfs/manifest.toml`: the content of the image, entry by entry.

use std::collections::BTreeMap;
use std::path::Path;

use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Remedy as _, Result};
use serde::Deserialize;

/// The source of a file's content; written `kind:rest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `deb:PACKAGE:PATH`: a file of a locked package; links inside the package are followed.
    Deb {
        /// The package's name in `packages.lock`.
        package: String,
        /// The path in the package, without a leading `/`.
        path: String,
    },
    /// `go:NAME`: a program built from the pinned Go modules.
    Go(String),
    /// `cargo:NAME`: a program of this workspace.
    Cargo(String),
    /// `c:NAME`: a library built from its C sources, see [`libkmod`](super::libkmod).
    C(String),
    /// `repo:PATH`: a file of this repository.
    Repo(String),
    /// `generated:NAME`: made by the builder, see [`Generated`].
    Generated(Generated),
}

/// Content that the builder generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generated {
    /// `os-release`: the version of this build.
    OsRelease,
    /// `ca-bundle`: every certificate of the CA package in one file.
    CaBundle,
    /// `bill`: the bill of materials, which the node's API serves.
    Bill,
    /// `licences`: the licence texts of all components in one file.
    Licences,
}

/// The content of one path of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Link(String),
    /// A regular file.
    File(Source),
    /// The kernel's modules: a whole directory, filled from the kernel's build.
    Modules,
}

/// One path with its owner and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path without a leading `/`; unique in the image.
    pub path: String,
    /// Its kind and content.
    pub content: Content,
    /// Permission bits; 0777 for links, as the kernel shows them.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The manifest for one architecture: entries by path, parents included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    entries: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "entry", default)]
    entries: Vec<RawEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    path: String,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    link: Option<String>,
    #[serde(default)]
    modules: bool,
    #[serde(default)]
    arch: Option<Arch>,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
}

impl Manifest {
    /// Reads and checks the manifest file for `arch`.
    pub fn read(path: &Path, arch: Arch) -> Result<Self> {
        let text = std::fs::read_to_string(path).or_fail(
            format!("cannot read the file manifest {}", path.display()),
            "restore it from version control",
        )?;
        Self::parse(&text, arch).or_fail(
            format!("the file manifest {} is not valid", path.display()),
            "correct this entry",
        )
    }

    /// Parses a manifest; `{gnu}` in it stands for the GNU triplet of `arch`.
    ///
    /// Refuses duplicate paths, paths outside the image, set-id, sticky and world-writable modes,
    /// unknown sources, and entries below a path that is no directory.
    pub fn parse(text: &str, arch: Arch) -> Result<Self> {
        let text = text.replace("{gnu}", arch.names().gnu);
        let raw: Raw = toml::from_str(&text)?;
        let mut entries = BTreeMap::new();
        for entry in raw.entries {
            if entry.arch.is_some_and(|only| only != arch) {
                continue;
            }
            let given = entry.path.clone();
            let entry = convert(entry).map_err(|why| invalid(&given, &why))?;
            if entries.insert(entry.path.clone(), entry).is_some() {
                return Err(invalid(&given, "is in the manifest twice"));
            }
        }
        let manifest = Self { entries };
        manifest.check_parents()?;
        Ok(manifest)
    }

    /// The entries in path order, parents before children.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The entry of a path without a leading `/`.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    fn check_parents(&self) -> Result<()> {
        for path in self.entries.keys() {
            if let Some((parent, _)) = path.rsplit_once('/')
                && self.entries.get(parent).map(|entry| &entry.content) != Some(&Content::Directory)
            {
                return Err(invalid(
                    path,
                    &format!("has no directory entry {parent:?} above it"),
                ));
            }
        }
        Ok(())
    }
}

fn convert(raw: RawEntry) -> std::result::Result<Entry, String> {
    let path = raw
        .path
        .strip_prefix('/')
        .ok_or("does not start with /")?
        .to_owned();
    check_path(&path)?;
    let (content, usual) = match (raw.from, raw.link, raw.modules) {
        (None, None, false) => (Content::Directory, 0o755),
        (Some(from), None, false) => (Content::File(source(&from)?), 0o644),
        (None, Some(target), false) => (Content::Link(target), 0o777),
        (None, None, true) => (Content::Modules, 0o755),
        _ => return Err("has more than one of from, link and modules".to_owned()),
    };
    let mode = match (&content, raw.mode) {
        (_, None) => usual,
        (Content::Link(_), Some(_)) => return Err("is a link, and a link has no mode".to_owned()),
        (_, Some(mode)) => {
            u32::from_str_radix(&mode, 8).map_err(|_| format!("has mode {mode:?}, not octal"))?
        }
    };
    if !matches!(content, Content::Link(_)) {
        check_mode(mode)?;
    }
    Ok(Entry {
        path,
        content,
        mode,
        uid: raw.uid,
        gid: raw.gid,
    })
}

fn check_mode(mode: u32) -> std::result::Result<(), String> {
    match mode {
        m if m & !0o7777 != 0 => Err(format!("has mode {m:o}, which is not a valid mode")),
        m if m & 0o6000 != 0 => Err(format!("has mode {m:o}: set-user-ID or set-group-ID")),
        m if m & 0o1000 != 0 => Err(format!(
            "has mode {m:o}: the image is read-only, no sticky bit"
        )),
        m if m & 0o002 != 0 => Err(format!("has mode {m:o}: writable for everyone")),
        _ => Ok(()),
    }
}

fn check_path(path: &str) -> std::result::Result<(), String> {
    if path
        .split('/')
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        return Err("has an empty, . or .. component".to_owned());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !path.chars().all(plain) {
        return Err("has a character other than letters, digits and /._-+".to_owned());
    }
    Ok(())
}

fn source(text: &str) -> std::result::Result<Source, String> {
    let (kind, rest) = text
        .split_once(':')
        .ok_or_else(|| format!("comes from {text:?}, not kind:name"))?;
    Ok(match kind {
        "deb" => {
            let (package, path) = rest
                .split_once(':')
                .ok_or_else(|| format!("comes from {text:?}, not deb:package:path"))?;
            check_path(path)?;
            Source::Deb {
                package: package.to_owned(),
                path: path.to_owned(),
            }
        }
        "go" => Source::Go(rest.to_owned()),
        "cargo" => Source::Cargo(rest.to_owned()),
        "c" => Source::C(rest.to_owned()),
        "repo" => {
            check_path(rest)?;
            Source::Repo(rest.to_owned())
        }
        "generated" => Source::Generated(match rest {
            "os-release" => Generated::OsRelease,
            "ca-bundle" => Generated::CaBundle,
            "bill" => Generated::Bill,
            "licences" => Generated::Licences,
            _ => {
                return Err(format!(
                    "comes from {text:?}, which the builder cannot generate"
                ));
            }
        }),
        _ => {
            return Err(format!(
                "comes from {text:?}: the kinds are deb, go, cargo, repo, generated"
            ));
        }
    })
}

fn invalid(path: &str, why: &str) -> anyhow::Error {
    Failure::new(format!("{path} {why}"), "correct rootfs/manifest.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!("{:#}", Manifest::parse(text, Arch::X86_64).unwrap_err())
    }

    fn entry(rest: &str) -> String {
        error(&format!("[[entry]]\npath = \"/a\"\n{rest}"))
    }

    #[test]
    fn forbidden_manifest_entries_are_refused() {
        assert!(entry("mode = \"4755\"").contains("set-user-ID"));
        assert!(entry("mode = \"1777\"").contains("sticky"));
        assert!(entry("mode = \"0777\"").contains("writable for everyone"));
        assert!(entry("mode = \"rwx\"").contains("not octal"));
        assert!(entry("from = \"http:x\"").contains("the kinds are"));
        assert!(entry("from = \"generated:x\"").contains("cannot generate"));
        assert!(entry("from = \"deb:x\"").contains("deb:package:path"));
        assert!(entry("from = \"repo:../x\"").contains(".."));
        assert!(entry("from = \"go:x\"\nlink = \"y\"").contains("more than one"));
        assert!(entry("colour = 1").contains("colour"));
        assert!(error("[[entry]]\npath = \"/a/../b\"").contains(".."));
        assert!(error("[[entry]]\npath = \"/a b\"").contains("character"));
        assert!(error("[[entry]]\npath = \"a\"").contains("start with /"));
        assert!(error("[[entry]]\npath = \"/a\"\n[[entry]]\npath = \"/a\"").contains("twice"));
        assert!(error("[[entry]]\npath = \"/a/b\"").contains("no directory entry \"a\""));
        let below_link = "[[entry]]\npath = \"/a\"\nlink = \"b\"\n[[entry]]\npath = \"/a/b\"";
        assert!(error(below_link).contains("no directory entry \"a\""));
    }

    #[test]
    fn manifest_entry_can_be_limited_to_one_architecture() {
        let text = "[[entry]]\npath = \"/a\"\narch = \"arm64\"\n[[entry]]\npath = \"/{gnu}\"\n";
        let paths = |arch| {
            let manifest = Manifest::parse(text, arch).unwrap();
            manifest
                .entries()
                .map(|e| e.path.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(paths(Arch::X86_64), ["x86_64-linux-gnu"]);
        assert_eq!(paths(Arch::Arm64), ["a", "aarch64-linux-gnu"]);
    }
}

//! Links in `/dev`. Several devices may claim one name, for example two disks cloned from one image have one label.
//!
//! All claims are stored in `/run/udev/links/<name>/<id>`, so that another claimant gets the link when its holder
//! disappears.

use crate::database::gone;
use crate::encode::file_name;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The links below one `/dev`.
#[derive(Debug)]
pub struct Links {
    dev: PathBuf,
    claims: PathBuf,
    /// Serializes claims: a claim reads all claims of its name, and of two concurrent claims both could lose.
    turn: Mutex<()>,
}

/// One device's claim on a name.
#[derive(Debug, PartialEq, Eq)]
struct Claim {
    id: String,
    priority: i32,
    node: String,
}

impl Links {
    /// `dev` holds the links and `run` the claims, normally `/dev` and `/run/udev`.
    pub fn new(dev: &Path, run: &Path) -> Self {
        Self {
            dev: dev.to_owned(),
            claims: run.join("links"),
            turn: Mutex::default(),
        }
    }

    /// Records that device `id` claims `link` as a link to `node`.
    ///
    /// # Errors
    /// Those of the file system. A file that is not a link at the name is an error.
    pub fn claim(&self, link: &str, id: &str, node: &str, priority: i32) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = self.claims.join(file_name(link));
        fs::create_dir_all(&directory)?;
        // The claim is the target of a symbolic link: it is created atomically and needs no content.
        let (path, claim) = (directory.join(id), format!("{priority}:{node}"));
        if fs::read_link(&path).ok().as_deref() != Some(Path::new(&claim)) {
            replace(&path, Path::new(&claim))?;
        }
        self.settle(link, &directory)
    }

    /// Withdraws the claim of device `id` on `link`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn release(&self, link: &str, id: &str) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = self.claims.join(file_name(link));
        gone(fs::remove_file(directory.join(id)))?;
        self.settle(link, &directory)
    }

    /// Points the link to the winning claim, or removes it when no claim is left.
    fn settle(&self, link: &str, directory: &Path) -> io::Result<()> {
        let path = self.dev.join(link);
        let current = fs::read_link(&path).ok();
        let mut claims = read(directory);
        // The highest priority wins; among equals the current holder, then the lowest id.
        claims.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.id.cmp(&b.id)));
        let Some(best) = claims.first() else {
            gone(fs::remove_dir(directory))?;
            return if current.is_some() {
                self.remove(&path)
            } else {
                Ok(())
            };
        };
        let equal = || {
            claims
                .iter()
                .take_while(|claim| claim.priority == best.priority)
        };
        let holder = equal().find(|c| current.as_deref() == Some(&target(link, &c.node)));
        if holder.is_some() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        if current.is_none() && path.symlink_metadata().is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a device node has that name",
            ));
        }
        replace(&path, &target(link, &best.node))
    }

    /// Removes a link and the parent directories it leaves empty.
    fn remove(&self, path: &Path) -> io::Result<()> {
        gone(fs::remove_file(path))?;
        let mut directory = path.parent();
        while let Some(empty) = directory.filter(|d| *d != self.dev && d.starts_with(&self.dev)) {
            if fs::remove_dir(empty).is_err() {
                break;
            }
            directory = empty.parent();
        }
        Ok(())
    }
}

fn read(directory: &Path) -> Vec<Claim> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let claim = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let (priority, node) = target.to_str()?.split_once(':')?;
        let id = entry
            .file_name()
            .into_string()
            .ok()
            .filter(|id| !id.starts_with('.'))?;
        Some(Claim {
            id,
            priority: priority.parse().ok()?,
            node: node.to_owned(),
        })
    };
    entries.filter_map(claim).collect()
}

/// Content of the link: the relative path from its directory to the node.
fn target(link: &str, node: &str) -> PathBuf {
    let link: Vec<Component<'_>> = Path::new(link).components().collect();
    let node: Vec<Component<'_>> = Path::new(node).components().collect();
    let parents = link.len().saturating_sub(1);
    let shared = link
        .iter()
        .take(parents)
        .zip(&node)
        .take_while(|(a, b)| a == b)
        .count();
    let mut target: PathBuf = (shared..parents).map(|_| Component::ParentDir).collect();
    target.extend(node.iter().skip(shared));
    target
}

/// Creates a link; replaces an existing name atomically.
fn replace(path: &Path, target: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".#{name}"));
    gone(fs::remove_file(&temporary))?;
    symlink(target, &temporary)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::{Links, target};
    use std::fs;
    use std::path::{Path, PathBuf};

    #[test]
    fn link_targets_are_relative() {
        assert_eq!(target("disk/by-id/a", "vda"), Path::new("../../vda"));
        assert_eq!(target("char/10:200", "net/tun"), Path::new("../net/tun"));
        assert_eq!(target("mapper/x", "mapper/y"), Path::new("y"));
        assert_eq!(target("rtc", "rtc0"), Path::new("rtc0"));
    }

    #[test]
    fn released_link_passes_to_the_next_claimant() {
        let (dev, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let links = Links::new(dev.path(), run.path());
        let name = "disk/by-label/data";
        let now = || fs::read_link(dev.path().join(name)).ok();
        let to = |node: &str| Some(PathBuf::from(format!("../../{node}")));
        links.claim(name, "b8:16", "sdb", 0).unwrap();
        links.claim(name, "b8:0", "sda", 0).unwrap();
        assert_eq!(
            now(),
            to("sdb"),
            "at equal priority the first device keeps the link"
        );
        links.claim(name, "b253:0", "dm-0", 100).unwrap();
        assert_eq!(now(), to("dm-0"));
        links.release(name, "b253:0").unwrap();
        assert_eq!(now(), to("sda"));
        links.release(name, "b8:0").unwrap();
        assert_eq!(now(), to("sdb"));
        links.release(name, "b8:16").unwrap();
        assert_eq!(now(), None);
        assert!(!dev.path().join("disk").exists(), "empty directories go");
        assert_eq!(fs::read_dir(run.path().join("links")).unwrap().count(), 0);
        links.release(name, "b8:16").unwrap();
    }

    #[test]
    fn device_node_is_never_replaced_by_a_link() {
        let (dev, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dev.path().join("null"), "").unwrap();
        let links = Links::new(dev.path(), run.path());
        assert!(links.claim("null", "b8:0", "sda", 0).is_err());
        assert!(dev.path().join("null").is_file());
    }
}

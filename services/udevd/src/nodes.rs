//! Entries of `/dev` that belong to no present device: standard links, and nodes whose open loads a module.

use crate::plan::Permission;
use crate::rules;
use rustix::fs::{CWD, FileType, Gid, Mode, Uid, chmod, chown, makedev, mknodat};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use tracing::warn;

/// Links to the caller's own file descriptors, and to the kernel's memory.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
];

/// A node of `modules.devname`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticNode {
    name: String,
    block: bool,
    major: u32,
    minor: u32,
}

/// Creates the missing links of [`LINKS`].
pub fn standard_links(dev: &Path) {
    for (name, target) in LINKS {
        match symlink(target, dev.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                warn!("cannot link {name}: {error}");
            }
            _ => {}
        }
    }
}

/// Creates the missing nodes that the running kernel's modules announce: `/dev/fuse`, `/dev/net/tun`, ... devtmpfs has
/// a node only after its module is loaded. `told` are the permissions from rule files.
pub fn static_nodes(dev: &Path, told: &[rules::StaticNode]) {
    let file = crate::modules::directory().join("modules.devname");
    let Ok(text) = fs::read_to_string(file) else {
        return;
    };
    for node in parse(&text) {
        // The last rule line that names the node wins.
        let told = told.iter().rev().find(|told| told.name == node.name);
        let permission = told.map_or_else(
            || Permission {
                mode: crate::defaults::static_mode(&node.name),
                uid: 0,
                gid: 0,
            },
            |told| told.permission,
        );
        if let Err(error) = make(dev, &node, permission) {
            warn!("cannot create {}: {error}", node.name);
        }
    }
}

fn make(dev: &Path, node: &StaticNode, permission: Permission) -> io::Result<()> {
    let path = dev.join(&node.name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let kind = if node.block {
        FileType::BlockDevice
    } else {
        FileType::CharacterDevice
    };
    let Permission { mode, uid, gid } = permission;
    let mode = Mode::from_raw_mode(mode);
    match mknodat(CWD, &path, kind, mode, makedev(node.major, node.minor)) {
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        done => done?,
    }
    chown(&path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    // The umask cleared bits in mknod.
    Ok(chmod(&path, mode)?)
}

/// Parses lines `module name c10:229`.
fn parse(text: &str) -> Vec<StaticNode> {
    let node = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (name, number) = (words.next()?, words.next()?);
        let (kind, numbers) = number.split_at_checked(1)?;
        let (major, minor) = numbers.split_once(':')?;
        Some(StaticNode {
            name: Some(name)
                .filter(|name| crate::event::is_plain_path(name))?
                .to_owned(),
            block: match kind {
                "b" => true,
                "c" => false,
                _ => return None,
            },
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    };
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(node)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{StaticNode, parse};

    #[test]
    fn static_device_nodes_are_read() {
        let text = "# Device nodes\nfuse fuse c10:229\ntun net/tun c10:200\nx ../y c1:1\nfloppy fd0 b2:0\nz\n";
        let node = |name: &str, block, major, minor| StaticNode {
            name: name.into(),
            block,
            major,
            minor,
        };
        assert_eq!(
            parse(text),
            [
                node("fuse", false, 10, 229),
                node("net/tun", false, 10, 200),
                node("fd0", true, 2, 0)
            ]
        );
    }
}

//! The allowed content of an extension: the places that the reference allows, without anything that would weaken a
//! node.

use crate::Problem;

/// Directories where an extension may put files, without their leading `/`.
pub const DIRECTORIES: [&str; 8] = [
    "etc/cri/conf.d",
    "etc/vulkan",
    "usr/lib/firmware",
    "usr/lib/modules",
    "usr/lib/udev/rules.d",
    "usr/local",
    "usr/share/egl",
    "usr/share/glvnd",
];

/// Single files that an extension may have, without their leading `/`.
pub const FILES: [&str; 9] = [
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "usr/bin/ldconfig",
    "usr/bin/nvidia-cdi-hook",
    "usr/bin/nvidia-ctk",
    "usr/bin/nvidia-modprobe",
    "usr/bin/nvidia-pcc",
    "usr/bin/nvidia-smi",
    "usr/bin/nvme",
];

/// Dynamic loaders. The reference allows them because it has none. This image has one that matches its C library;
/// replacing it would keep all programs from starting.
const LOADERS: [&str; 5] = [
    "lib64",
    "lib64/ld-linux-x86-64.so.2",
    "usr/lib64",
    "usr/lib64/ld-linux-x86-64.so.2",
    "usr/lib/ld-linux-aarch64.so.1",
];

/// Suffixes of compressed modules (kmod); the image's libkmod cannot unpack them.
const COMPRESSED: [&str; 3] = [".ko.gz", ".ko.xz", ".ko.zst"];

/// The only directory that takes effect on a running node. Modules, firmware, udev rules and containerd's config parts
/// are read at start only.
const LATE: &str = "usr/local";

/// Longest path in bytes.
const LONGEST: usize = 4096;
const SET_ID: u32 = 0o6000;
const EVERYBODY_WRITES: u32 = 0o002;

/// The type of a path of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link with this target.
    Link(&'a str),
}

/// Checks one path of the root file system (without its leading `/`) with its permission bits.
///
/// # Errors
/// The problem of the path.
pub fn check(path: &str, kind: Kind<'_>, mode: u32) -> Result<(), Problem> {
    let problem = |what: &str, remedy: &str| Problem::new(format!("/{path}"), what, remedy);
    let named = |part: &str| !matches!(part, "" | "." | "..");
    if path.len() > LONGEST || path.contains(char::is_control) || !path.split('/').all(named) {
        let remedy = "use names of printable characters without . and .. parts";
        return Err(Problem::new(
            format!("{path:?}"),
            "it is not a valid path",
            remedy,
        ));
    }
    if LOADERS.contains(&path) {
        return Err(problem(
            "the image has its own dynamic loader",
            "remove it, and put the C library below /usr/local",
        ));
    }
    let allowed = match kind {
        Kind::Directory => {
            let above = |place: &&str| path != *place && is_within(place, path);
            DIRECTORIES.iter().any(|place| is_within(path, place))
                || DIRECTORIES.iter().chain(&FILES).any(above)
        }
        Kind::File | Kind::Link(_) => {
            let below = |place: &&str| path != *place && is_within(path, place);
            FILES.contains(&path) || DIRECTORIES.iter().any(below)
        }
    };
    if !allowed {
        return Err(problem(
            "an extension may not add files there",
            "put it below /usr/local; docs/building.md lists the other places",
        ));
    }
    if let Kind::Link(target) = kind {
        return if leaves_the_root(path, target) {
            let what = format!("the link to {target:?} leads out of the root");
            Err(problem(
                &what,
                "use a target within the extension or the node",
            ))
        } else {
            Ok(())
        };
    }
    let is_compressed = COMPRESSED.iter().any(|ending| path.ends_with(ending));
    if is_within(path, "usr/lib/modules") && is_compressed {
        return Err(problem(
            "the node does not load compressed modules",
            "decompress it: the whole extension is compressed",
        ));
    }
    if mode & SET_ID != 0 {
        return Err(problem(
            "it is set-user-id or set-group-id",
            "clear the bit",
        ));
    }
    if mode & EVERYBODY_WRITES != 0 {
        return Err(problem("it is world-writable", "clear the bit"));
    }
    Ok(())
}

/// Checks that a path that passed [`check`] may also be added while the node runs.
///
/// # Errors
/// The path takes effect only at boot.
pub fn check_late(path: &str) -> Result<(), Problem> {
    if is_within(path, LATE) || is_within(LATE, path) {
        return Ok(());
    }
    Err(Problem::new(
        format!("/{path}"),
        "a running node does not use this file",
        "build the extension into the image: mkimage build --extension",
    ))
}

/// Whether `path` is `place` or below it.
fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a link's target leads above the root, or is invalid.
fn leaves_the_root(path: &str, target: &str) -> bool {
    if target.is_empty() || target.len() > LONGEST || target.contains(char::is_control) {
        return true;
    }
    let mut depth = if target.starts_with('/') {
        0
    } else {
        path.split('/').count() - 1
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str, kind: Kind<'_>, mode: u32) -> String {
        check(path, kind, mode).unwrap_err().to_string()
    }

    #[test]
    fn extension_files_are_allowed_in_their_directories_only() {
        for good in [
            "usr/local/bin/tool",
            "usr/lib/firmware/brcm/a b.txt",
            "usr/lib/modules/6.12.1/extra/a.ko",
            "usr/bin/nvme",
            "etc/cri/conf.d/10-x.part",
        ] {
            check(good, Kind::File, 0o644).unwrap();
        }
        for bad in [
            "usr/bin/init",
            "usr/localx/a",
            "usr/local",
            "etc/passwd",
            "usr/lib/corten/config.yaml",
            "usr/bin/nvme/x",
        ] {
            assert!(
                refused(bad, Kind::File, 0o644).contains("add files there"),
                "{bad}"
            );
        }
        check("usr/lib", Kind::Directory, 0o755).unwrap();
        check("usr/local/share/x", Kind::Directory, 0o755).unwrap();
        assert!(refused("opt", Kind::Directory, 0o755).contains("add files there"));
        assert!(refused("usr/bin/nvme", Kind::Directory, 0o755).contains("add files there"));
        assert!(refused("lib64/ld-linux-x86-64.so.2", Kind::File, 0o755).contains("loader"));
    }

    #[test]
    fn running_node_takes_only_files_that_are_not_read_at_boot() {
        for good in ["usr", "usr/local", "usr/local/bin/tool"] {
            check_late(good).unwrap();
        }
        for bad in [
            "usr/lib",
            "usr/lib/modules/6.12.1/a.ko",
            "etc",
            "usr/localx",
        ] {
            let said = check_late(bad).unwrap_err().to_string();
            assert!(said.contains("mkimage build --extension"), "{said}");
        }
    }

    #[test]
    fn compressed_modules_are_refused() {
        for bad in ["a.ko.xz", "a.ko.zst", "extra/a.ko.gz"] {
            let path = format!("usr/lib/modules/6.12.1/{bad}");
            assert!(refused(&path, Kind::File, 0o644).contains("decompress it"));
        }
        check("usr/local/share/a.ko.xz", Kind::File, 0o644).unwrap();
    }

    #[test]
    fn set_id_bits_and_world_writable_modes_are_refused() {
        assert!(refused("usr/local/a", Kind::File, 0o4755).contains("set-user-id"));
        assert!(refused("usr/local/a", Kind::File, 0o2755).contains("set-user-id"));
        assert!(refused("usr/local/a", Kind::Directory, 0o1777).contains("world-writable"));
        check("usr/local/a", Kind::Link("b"), 0o777).unwrap();
    }

    #[test]
    fn links_out_of_the_root_are_refused() {
        for good in ["b", "../lib/b", "/usr/local/b", "../../../etc/x", "/"] {
            check("usr/local/bin/a", Kind::Link(good), 0o777).unwrap();
        }
        for bad in ["../../../../x", "/..", "", "a\0b"] {
            let said = refused("usr/local/bin/a", Kind::Link(bad), 0o777);
            assert!(said.contains("leads out of the root"), "{said}");
        }
    }

    #[test]
    fn malformed_paths_are_refused() {
        for bad in [
            "",
            "/usr/local/a",
            "usr/local/../a",
            "usr/local//a",
            "usr/local/a\nb",
            "usr/local/.",
        ] {
            assert!(
                refused(bad, Kind::File, 0o644).contains("not a valid path"),
                "{bad:?}"
            );
        }
    }
}

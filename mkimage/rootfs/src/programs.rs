//! The programs an image may have, by `rootfs/executables.txt`, and the names no program may have.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use corten_steps::arch::Arch;
use corten_steps::error::Result;

/// Maximum number of programs in an image.
pub const MOST_EXECUTABLES: usize = 20;

/// Forbidden names, which a version may follow.
const INTERPRETERS: &str = "\
    sh ash bash dash zsh ksh fish busybox toybox python perl lua ruby node tclsh awk gawk mawk sed env \
    apt apt-get dpkg rpm dnf opkg apk sudo su login ssh sshd systemctl gdb strace";

/// The listed programs: one path a line, followed by an architecture if the program is for only
/// one; `#` starts a comment.
///
/// # Errors
/// A line names an unknown architecture or has more words.
pub fn allowed(text: &str, arch: Arch) -> Result<BTreeSet<&str>> {
    let mut allowed = BTreeSet::new();
    for line in text.lines() {
        let words = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = words.split_whitespace().collect();
        let here = match words.as_slice() {
            [] => continue,
            [_] => true,
            [_, only] => only.parse::<Arch>().with_context(|| line.to_owned())? == arch,
            _ => bail!("{line}: more fields than a path and an architecture"),
        };
        allowed.extend(words.first().filter(|_| here));
    }
    Ok(allowed)
}

/// Whether a path has the name of a shell or interpreter, with or without a version: `python3.13`
/// is `python`, `shutdown` is not `sh`.
pub fn is_interpreter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    let mut all = INTERPRETERS.split_whitespace();
    all.any(|known| name.strip_prefix(known).is_some_and(is_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_programs_is_within_its_limit() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rootfs/executables.txt");
        let text = std::fs::read_to_string(path).unwrap();
        for arch in Arch::ALL {
            let count = allowed(&text, arch).unwrap().len();
            assert!((1..=MOST_EXECUTABLES).contains(&count), "{count} programs");
        }
    }

    #[test]
    fn program_list_accepts_every_name_of_an_architecture() {
        let text = "/a # x\n\n/b arm64 # y\n/c x86_64\n/d aarch64\n/e amd64\n";
        let here = |arch| Vec::from_iter(allowed(text, arch).unwrap());
        assert_eq!(here(Arch::Arm64), ["/a", "/b", "/d"]);
        assert_eq!(here(Arch::X86_64), ["/a", "/c", "/e"]);
        allowed("/a armv7 # x", Arch::Arm64).unwrap_err();
        allowed("/a arm64 x86_64", Arch::Arm64).unwrap_err();
    }

    #[test]
    fn interpreters_are_recognised_by_name() {
        for name in ["/bin/sh", "/usr/bin/python3.13", "/usr/bin/perl5", "bash"] {
            assert!(is_interpreter(name), "{name}");
        }
        for name in [
            "/usr/bin/shutdown",
            "containerd-shim-runc-v2",
            "/usr/share/shells",
        ] {
            assert!(!is_interpreter(name), "{name}");
        }
    }
}

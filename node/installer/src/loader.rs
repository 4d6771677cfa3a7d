//! Selects the entry that the boot loader starts, in systemd-boot's order (`boot_entry_compare` of its `boot.c`; Boot
//! Loader Specification, "Sorting"). All our entries have the same sort key. GRUB starts the same entry
//! ([`crate::grub`]).

use std::cmp::Ordering;

use uapi_version::strverscmp;

use crate::Entry;

/// The boot loader that started the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// systemd-boot, of a machine with UEFI. It counts the starts of an entry by renaming its file.
    SystemdBoot,
    /// GRUB, of a machine with BIOS. It counts them in a block.
    Grub,
}

/// An entry, and the version of its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Boot entry.
    pub entry: Entry,
    /// `IMAGE_VERSION` of the image's os-release.
    pub version: String,
}

/// The entry that the boot loader starts by default.
#[must_use]
pub fn first(installed: &[Installed]) -> Option<&Installed> {
    installed.iter().min_by(|a, b| compare(a, b))
}

/// Order of the boot menu: the boot loader starts the first entry.
fn compare(a: &Installed, b: &Installed) -> Ordering {
    let left = |one: &Installed| one.entry.counter.map(|counter| counter.left);
    let done = |one: &Installed| one.entry.counter.map(|counter| counter.done);
    let is_bad = a.entry.is_bad().cmp(&b.entry.is_bad());
    is_bad
        .then_with(|| by_version(a, b))
        .then_with(|| match (left(a), left(b)) {
            (Some(a), Some(b)) => b.cmp(&a),
            _ => Ordering::Equal,
        })
        .then_with(|| match (done(a), done(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        })
}

/// Order of the entries without regard to their counters: the newest first.
pub(crate) fn by_version(a: &Installed, b: &Installed) -> Ordering {
    strverscmp(&b.version, &a.version).then_with(|| strverscmp(&b.entry.id(), &a.entry.id()))
}

/// Whether a version is older than another one (UAPI Version Format Specification).
#[must_use]
pub fn is_older(version: &str, than: &str) -> bool {
    strverscmp(version, than) == Ordering::Less
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_of(entries: &[(&str, &str)]) -> String {
        let installed = entries.iter().map(|(name, version)| Installed {
            entry: Entry::parse(name).unwrap(),
            version: (*version).to_owned(),
        });
        let installed: Vec<Installed> = installed.collect();
        first(&installed).unwrap().entry.to_string()
    }

    #[test]
    fn newest_entry_that_is_not_bad_is_started() {
        let (old, new) = (("corten-1.9.0.efi", "1.9.0"), "1.10.0");
        for (name, started) in [
            ("corten-1.10.0.efi", "corten-1.10.0.efi"),
            ("corten-1.10.0+3.efi", "corten-1.10.0+3.efi"),
            ("corten-1.10.0+1-2.efi", "corten-1.10.0+1-2.efi"),
            ("corten-1.10.0+0-3.efi", "corten-1.9.0.efi"),
        ] {
            assert_eq!(first_of(&[old, (name, new)]), started);
            assert_eq!(first_of(&[(name, new), old]), started);
        }
        assert!(is_older(old.1, new) && !is_older(new, old.1) && !is_older(new, new));
        // A release is newer than its candidates (UAPI Version Format Specification).
        let candidate = ("corten-1.10.0~rc1.efi", "1.10.0~rc1");
        let release = ("corten-1.10.0.efi", new);
        assert_eq!(first_of(&[candidate, release]), release.0);
        // If all entries are bad, the order is as if none was.
        let bad = [
            ("corten-1.9.0+0-3.efi", "1.9.0"),
            ("corten-1.10.0+0.efi", new),
        ];
        assert_eq!(first_of(&bad), "corten-1.10.0+0.efi");
    }
}

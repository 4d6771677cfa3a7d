//! Facts about the current boot from the boot loader's EFI variables (systemd: Boot Loader Interface).

use std::fs;
use std::path::Path;

use crate::mounts;

/// Length of the attributes in front of a variable's data (Documentation/filesystems/efivarfs.rst).
const ATTRIBUTES: usize = 4;
/// Vendor GUID of the boot loader's variables.
const VENDOR: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// The text of a boot loader variable below this sysfs; `None` if it is not set, or without EFI.
#[must_use]
pub fn variable(sysfs: &Path, name: &str) -> Option<String> {
    let variables = sysfs.join("firmware/efi/efivars");
    let value = fs::read(variables.join(format!("{name}-{VENDOR}"))).ok()?;
    let units = value.get(ATTRIBUTES..)?.chunks_exact(2);
    let units = units.filter_map(|unit| Some(u16::from_le_bytes(unit.try_into().ok()?)));
    let text: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    String::from_utf16(&text).ok()
}

/// The boot entry that was started, without its boot counter; `None` if the boot loader has no entries.
#[must_use]
pub fn booted() -> Option<String> {
    mounts::mount_early(mounts::EFI_VARIABLES);
    variable(Path::new("/sys"), "LoaderEntrySelected")
}

/// Whether the boot loader counts the starts of that entry.
#[must_use]
pub fn is_counted() -> bool {
    variable(Path::new("/sys"), "LoaderBootCountPath").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efi_variable_is_read_up_to_its_nul_and_a_malformed_one_is_ignored() {
        let sysfs = tempfile::tempdir().unwrap();
        let variables = sysfs.path().join("firmware/efi/efivars");
        fs::create_dir_all(&variables).unwrap();
        let set = |bytes: &[u8]| fs::write(variables.join(format!("X-{VENDOR}")), bytes).unwrap();
        assert_eq!(variable(sysfs.path(), "X"), None);
        set(b"\x06\0\0\0a\0b\0\0\0c\0");
        assert_eq!(variable(sysfs.path(), "X").as_deref(), Some("ab"));
        for broken in [&b"\x06\0"[..], b"\x06\0\0\0\0\xd8\0\0"] {
            set(broken);
            assert_eq!(variable(sysfs.path(), "X"), None);
        }
    }
}

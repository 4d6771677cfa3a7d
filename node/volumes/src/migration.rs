//! Migration of the node's own volumes from the clear to encryption.
//!
//! Owns the check of configs that ask for it, and the files of STATE while STATE is made anew: they stay in memory.

use std::io;
use std::path::Path;

use corten_base::mount_table::{self, Mount};
use corten_config::Document;
use corten_config::kinds::SystemVolume;
use corten_yaml::read::Word as _;

use super::attach::{mount_on, unmount};
use super::carried::Carried;
use super::{EPHEMERAL, Opened, STATE, Volume};

/// Checks that the next config can use the node's own volumes that are in the clear now.
///
/// # Errors
/// The text names the volume and the permitted settings.
pub fn check_in_clear(opened: &Opened, next: &Document) -> Result<(), String> {
    check(&mount_table::now(), opened, next)
}

fn check(mounts: &[Mount], opened: &Opened, next: &Document) -> Result<(), String> {
    for (which, volume) in [
        (SystemVolume::State, STATE),
        (SystemVolume::Ephemeral, EPHEMERAL),
    ] {
        let Some(wanted) = next.encryption(which) else {
            continue;
        };
        let is_encrypted = opened.iter().any(|(one, _)| *one == which);
        let is_there = mounts
            .iter()
            .any(|mount| mount.target == volume.target && mount.kind == "xfs");
        if is_there && !is_encrypted && !wanted.migrates() {
            return Err(format!(
                "the encryption of {}: the volume is not encrypted, and the next boot would refuse it; remove its \
                 encryption, or set `migration: wipe` in it to create the volume again at the next boot; its data is \
                 lost, except the files of STATE",
                which.word()
            ));
        }
    }
    Ok(())
}

/// Reads the files of a clear volume; mounts it only for that.
pub(super) fn take(volume: &Volume<'_>, device: &Path) -> Result<Carried, String> {
    let shown = device.display();
    let cannot = |error: io::Error| {
        format!("{shown} cannot be migrated: its files cannot be read: {error}; reset it instead")
    };
    mount_on(volume, device).map_err(cannot)?;
    let taken = Carried::take(Path::new(volume.target));
    unmount(Path::new(volume.target)).map_err(cannot)?;
    taken.map_err(cannot)
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_config::kinds::{Encryption, Migration};

    use super::*;

    fn config(migration: &str) -> Document {
        let one = format!("{{provider: luks2, keys: [{{nodeID: {{}}}}]{migration}}}");
        let machine = format!("systemDiskEncryption: {{ephemeral: {one}}}");
        sample::config(&machine, "")
    }

    #[test]
    fn config_that_the_next_boot_would_refuse_is_refused() {
        let table = "/dev/vda4 /system/state xfs rw 0 0\n/dev/vda5 /var xfs rw 0 0\n";
        let mounts = mount_table::parse(table);
        let none = Opened::new();
        let refused = check(&mounts, &none, &config("")).unwrap_err();
        assert!(
            refused.starts_with("the encryption of EPHEMERAL: "),
            "{refused}"
        );
        assert!(refused.contains("migration: wipe"), "{refused}");
        let migrates = config(", migration: wipe");
        let wanted = migrates.encryption(SystemVolume::Ephemeral).unwrap();
        assert_eq!(wanted.migration, Migration::Wipe);
        check(&mounts, &none, &migrates).unwrap();
        check(&mounts, &none, &sample::config("", "")).unwrap();
        // The volume is encrypted, or in memory.
        let opened = vec![(SystemVolume::Ephemeral, Encryption::default())];
        check(&mounts, &opened, &config("")).unwrap();
        let memory = mount_table::parse("tmpfs /var tmpfs rw 0 0\n");
        check(&memory, &none, &config("")).unwrap();
    }
}

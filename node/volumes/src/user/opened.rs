//! Tracks which keys open encrypted user volumes: those in their slots, not those a config merely asks for. `keys.rs`
//! does the same for the node's own volumes. Tracks as well which user volumes are used in the clear, as `migration.rs`
//! finds out for the node's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corten_config::Document;
use corten_config::kinds::Encryption;

use super::{UserVolume, wanted};
use crate::keys::check_kept;

/// The volumes opened in this boot.
#[derive(Debug, Clone, Default)]
pub struct OpenedVolumes(Arc<Mutex<Opened>>);

#[derive(Debug, Default)]
struct Opened {
    /// Encrypted volumes by id, with those keys of the config that are in their slots.
    by: BTreeMap<String, Encryption>,
    /// Attached volumes that are not encrypted, by [`UserVolume::key`].
    clear: BTreeSet<String>,
}

impl OpenedVolumes {
    /// Records the encryption with which a volume was opened.
    pub(super) fn remember(&self, volume: &str, by: Encryption) {
        self.lock().by.insert(volume.to_owned(), by);
    }

    /// Records that a volume is attached and not encrypted.
    pub(super) fn remember_clear(&self, volume: &UserVolume) {
        self.lock().clear.insert(volume.key());
    }

    /// Records that a volume is no longer attached.
    pub(super) fn forget_clear(&self, volume: &UserVolume) {
        self.lock().clear.remove(&volume.key());
    }

    /// Forgets volumes that the config no longer has.
    pub(super) fn forget_others(&self, wanted: &[UserVolume]) {
        self.lock()
            .by
            .retain(|volume, _| wanted.iter().any(|one| one.id == *volume));
    }

    /// Checks that the next config can open all encrypted volumes, and use those that are in the clear. It must keep one
    /// key of each; that key then sets the other slots. For a volume that was not opened yet, the config `before` is the
    /// only evidence.
    ///
    /// # Errors
    /// The text names the volume.
    pub fn check(&self, before: Option<&Document>, next: &Document) -> Result<(), String> {
        let before = before.map(wanted).unwrap_or_default();
        let opened = self.lock();
        for volume in wanted(next) {
            let id = &volume.id;
            let next = volume.encryption();
            let is_clear = opened.clear.contains(&volume.key());
            if is_clear && next.is_some_and(|next| !next.migrates()) {
                return Err(format!(
                    "the encryption of {id}: the volume is not encrypted, and the node would refuse it; remove its \
                     encryption, or set `migration: wipe` in it to create the volume again as soon as nothing uses it; \
                     its data is lost"
                ));
            }
            if let Some(by) = opened.by.get(id) {
                check_kept(id, by, next)?;
                continue;
            }
            let same = before.iter().find(|other| other.id == *id);
            // A volume made in the clear before the config asked for encryption is used in the clear.
            if let (Some(by), Some(_)) = (same.and_then(UserVolume::encryption), next) {
                check_kept(id, by, next)?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    const DATA: &str =
        "UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: '!system_disk'}}";
    const BOTH: &str = "{static: {passphrase: a}}, {slot: 1, nodeID: {}}";

    fn with(keys: &str) -> Document {
        let encryption = format!("encryption: {{provider: luks2, keys: [{keys}]}}");
        sample::kind(&format!("{DATA}\n{encryption}"))
    }

    fn keys(keys: &str) -> Encryption {
        wanted(&with(keys))[0].encryption().unwrap().clone()
    }

    #[test]
    fn config_must_keep_a_key_of_an_unopened_volume() {
        let (none, before) = (OpenedVolumes::default(), with(BOTH));
        let check = |next: &Document| none.check(Some(&before), next);
        check(&before).unwrap();
        check(&with("{slot: 1, nodeID: {}}")).unwrap();
        let why = check(&with("{slot: 2, nodeID: {}}")).unwrap_err();
        assert!(why.contains("u-data must keep one of its keys"), "{why}");
        check(&sample::kind(DATA)).unwrap();
        check(&sample::kind(
            "SysctlConfig\nparams: {vm.max_map_count: '262144'}",
        ))
        .unwrap();
        none.check(None, &with("{slot: 2, nodeID: {}}")).unwrap();
    }

    #[test]
    fn config_must_keep_a_key_that_is_in_its_slot() {
        let (opened, before) = (OpenedVolumes::default(), with(BOTH));
        // Only the first key is in its slot.
        opened.remember("u-data", keys("{static: {passphrase: a}}"));
        let check = |next: &Document| opened.check(Some(&before), next);
        check(&with("{static: {passphrase: a}}, {slot: 2, nodeID: {}}")).unwrap();
        let why = check(&with("{slot: 1, nodeID: {}}")).unwrap_err();
        assert!(why.contains("u-data must keep one of its keys"), "{why}");
        check(&sample::kind(DATA)).unwrap_err();

        opened.remember("u-data", keys(BOTH));
        check(&with("{slot: 1, nodeID: {}}")).unwrap();
        opened.forget_others(&wanted(&before));
        check(&sample::kind(DATA)).unwrap_err();
        opened.forget_others(&[]);
        check(&sample::kind(DATA)).unwrap();
    }

    #[test]
    fn attached_clear_volume_is_encrypted_only_by_migration() {
        let (opened, before) = (OpenedVolumes::default(), sample::kind(DATA));
        let data = &wanted(&before)[0];
        let check = |next: &Document| opened.check(Some(&before), next);
        let encrypted = with("{nodeID: {}}");
        check(&encrypted).unwrap();
        opened.remember_clear(data);
        check(&before).unwrap();
        let why = check(&encrypted).unwrap_err();
        assert!(why.starts_with("the encryption of u-data: "), "{why}");
        assert!(why.contains("migration: wipe"), "{why}");
        let migration = "encryption: {provider: luks2, keys: [{nodeID: {}}], migration: wipe}";
        check(&sample::kind(&format!("{DATA}\n{migration}"))).unwrap();
        // A whole disk of this name is another volume.
        let encryption = "encryption: {provider: luks2, keys: [{nodeID: {}}]}";
        let whole = format!("{DATA}\nvolumeType: disk\n{encryption}");
        check(&sample::kind(&whole)).unwrap();
        opened.forget_clear(data);
        check(&encrypted).unwrap();
    }
}

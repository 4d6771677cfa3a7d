//! Keys of a config and the LUKS key slots they open.

use std::fs::File;

use corten_base::console;
use corten_config::kinds::{Encryption, EncryptionKey};
use corten_luks::{Cost, Luks, VolumeKey};
use zeroize::Zeroizing;

/// The encryption reduced to the keys of these slots.
pub(super) fn with_slots(wanted: &Encryption, slots: &[u8]) -> Encryption {
    let mut known = wanted.clone();
    known.keys.retain(|key| slots.contains(&key.slot));
    known
}

/// A passphrase and its slot.
pub(super) struct Key {
    pub(super) slot: u8,
    /// Kind of the key in the config.
    pub(super) kind: &'static str,
    pub(super) passphrase: Zeroizing<Vec<u8>>,
}

/// Keys of a config on this machine.
pub(super) struct Keys {
    pub(super) usable: Vec<Key>,
    /// Slots whose key is unavailable on this machine; they are left alone.
    pub(super) left: Vec<u8>,
    pub(super) complaints: Vec<String>,
}

impl Keys {
    /// Resolves the keys of a config; `machine` is the UUID from the firmware.
    pub(super) fn of(volume: &str, wanted: &Encryption, machine: &str) -> Keys {
        let mut keys = Keys {
            usable: Vec::new(),
            left: Vec::new(),
            complaints: Vec::new(),
        };
        for key in &wanted.keys {
            let slot = key.slot;
            match passphrase(volume, key, machine) {
                Ok((kind, passphrase)) => keys.usable.push(Key {
                    slot,
                    kind,
                    passphrase,
                }),
                Err(why) => {
                    keys.left.push(slot);
                    keys.complaints
                        .push(format!("the key of slot {slot}: {why}"));
                }
            }
        }
        keys.usable.sort_by_key(|key| key.slot);
        keys
    }

    pub(super) fn complain(&self, volume: &str) {
        for complaint in &self.complaints {
            console::warn(&format!("{volume}: {complaint}"));
        }
    }

    /// Slots of the usable keys.
    pub(super) fn slots(&self) -> Vec<u8> {
        self.usable.iter().map(|key| key.slot).collect()
    }

    /// Returns the volume's key and the slot that held it. The error lists the attempts.
    pub(super) fn find(&self, luks: &Luks, device: &File) -> Result<(VolumeKey, u8), String> {
        let mut tried = self.complaints.clone();
        for key in &self.usable {
            let Key { slot, kind, .. } = key;
            match luks.unlock(device, *slot, &key.passphrase) {
                Ok(Some(found)) => return Ok((found, *slot)),
                Ok(None) if luks.slots().contains(slot) => {
                    tried.push(format!("{kind} is not the key of slot {slot}"));
                }
                Ok(None) => tried.push(format!("slot {slot} ({kind}) is empty")),
                Err(error) => tried.push(format!("slot {slot} ({kind}): {error}")),
            }
        }
        Err(format!(
            "is encrypted, and no key of its config opens it: {}; add a key that opens it",
            tried.join(", ")
        ))
    }

    /// Sets the slots as in the config and returns those known to hold the config's keys: on failure, only the opener.
    /// The volume is open in either case.
    pub(super) fn settle(
        &self,
        volume: &str,
        luks: &mut Luks,
        device: &File,
        key: &VolumeKey,
        opener: u8,
        cost: Cost,
    ) -> Vec<u8> {
        match self.sync(luks, device, key, opener, cost) {
            Ok(()) => self.slots(),
            Err(error) => {
                console::warn(&format!("{volume}: its key slots are unchanged: {error}"));
                vec![opener]
            }
        }
    }

    /// Adds, replaces and removes keys until the slots match the config. `opener` is known to hold its key.
    pub(super) fn sync(
        &self,
        luks: &mut Luks,
        device: &File,
        key: &VolumeKey,
        opener: u8,
        cost: Cost,
    ) -> Result<(), corten_luks::LuksError> {
        // First repair the header: the older copy may still use the area in which a new key goes.
        if !luks.is_whole() {
            luks.write(device)?;
        }
        let mut changed = false;
        for Key {
            slot, passphrase, ..
        } in self.usable.iter().filter(|key| key.slot != opener)
        {
            if luks.unlock(device, *slot, passphrase)?.is_none() {
                luks.set_key(device, *slot, key, passphrase, cost)?;
                changed = true;
            }
        }
        let wanted =
            |slot: &u8| self.usable.iter().any(|key| key.slot == *slot) || self.left.contains(slot);
        for slot in luks.slots() {
            if !wanted(&slot) {
                luks.remove_key(slot)?;
                changed = true;
            }
        }
        if changed { luks.write(device) } else { Ok(()) }
    }
}

/// Kind and passphrase of a key. The machine's key has the reference's form: UUID and name of the volume.
fn passphrase(
    volume: &str,
    key: &EncryptionKey,
    machine: &str,
) -> Result<(&'static str, Zeroizing<Vec<u8>>), String> {
    if let Some(fixed) = &key.fixed {
        let text = fixed.passphrase.expose().as_bytes();
        return Ok(("static", Zeroizing::new(text.to_vec())));
    }
    let uuid = machine.trim().to_lowercase();
    let same = |one: char| uuid.chars().filter(|other| *other == one).count();
    let most = uuid.chars().map(same).max().unwrap_or_default();
    if uuid::Uuid::parse_str(&uuid).is_err() || most > uuid.len() / 2 {
        let text = "nodeID needs a unique UUID from the firmware of the machine; use static";
        return Err(text.to_owned());
    }
    Ok((
        "nodeID",
        Zeroizing::new(format!("{uuid}{volume}").into_bytes()),
    ))
}

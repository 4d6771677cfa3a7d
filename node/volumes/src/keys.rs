//! Checks that a config change leaves the next boot a key to each encrypted volume.

use std::path::Path;

use corten_config::Document;
use corten_config::kinds::{Encryption, SystemVolume};
use corten_yaml::read::Word as _;

use super::disk::{self, Content};
use super::{Failure, STATE, encryption};

/// Encrypted volumes opened in this boot, with those keys of the config that are in their slots.
pub type Opened = Vec<(SystemVolume, Encryption)>;

/// Checks that the next boot can open the currently open volumes by the next config. The config must keep one key of
/// each volume; that key then sets the other slots.
///
/// # Errors
/// The text names the volume.
pub fn check_keys(opened: &Opened, next: &Document) -> Result<(), String> {
    for (volume, before) in opened {
        let next = next.encryption(*volume);
        // STATE's keys are in META.
        if *volume == SystemVolume::State && next.is_none() {
            continue;
        }
        check_kept(volume.word(), before, next)?;
    }
    Ok(())
}

/// Checks that META may describe STATE's encryption by `next`, or by nothing. If STATE is encrypted, one key must open
/// it: a key that opened it in this boot, or else one that is tried here. A trial is slow.
///
/// # Errors
/// The text gives the reason.
pub fn check_state_keys(opened: &Opened, next: Option<&Encryption>) -> Result<(), String> {
    let state = opened.iter().find(|(one, _)| *one == SystemVolume::State);
    match state {
        Some((volume, before)) => check_kept(volume.word(), before, next),
        None => check_closed_state(next),
    }
}

/// Same as [`check_state_keys`], for a value to be written to META.
///
/// # Errors
/// The value is malformed, or must not be written; the text gives the reason.
pub fn check_state_value(opened: &Opened, value: Option<&[u8]>) -> Result<(), String> {
    let next = value.map(Encryption::from_meta).transpose();
    let next = next.map_err(|problems| format!("the value is invalid: {problems}"))?;
    check_state_keys(opened, next.as_ref())
}

/// Checks that these partitions may be wiped while the others stay.
///
/// # Errors
/// META without STATE, while META has the keys of STATE.
pub fn check_wiped(opened: &Opened, wiped: &[&str]) -> Result<(), String> {
    let needs_meta = opened.iter().any(|(one, _)| *one == SystemVolume::State);
    if needs_meta && wiped.contains(&"META") && !wiped.contains(&STATE.name) {
        let text =
            "system_partitions_to_wipe: META records the keys that open STATE; wipe STATE as well";
        return Err(text.to_owned());
    }
    Ok(())
}

/// Checks that STATE may be made as `wanted` if it is absent (`lacks`). It must not be made in the clear while there is
/// a `doubt`, the reason why its encryption is unknown.
///
/// # Errors
/// The text contains the reason.
pub fn check_clear(
    lacks: bool,
    wanted: Option<&Encryption>,
    doubt: Option<&str>,
) -> Result<(), Failure> {
    match doubt {
        Some(why) if lacks && wanted.is_none() => {
            let text = format!(
                "is not created because it may require encryption: {why}; apply a config with its encryption, or \
                 repair the cause, and restart"
            );
            Err(Failure::new(STATE.name, text))
        }
        _ => Ok(()),
    }
}

/// Checks that the next config keeps a key that opens the volume.
pub(super) fn check_kept(
    volume: &str,
    before: &Encryption,
    next: Option<&Encryption>,
) -> Result<(), String> {
    if next.is_some_and(|next| next.keeps_a_key_of(before)) {
        return Ok(());
    }
    Err(format!(
        "the encryption of {volume} must keep one of its keys in the same slot until the volume is opened again; the \
         other keys change then"
    ))
}

fn check_closed_state(next: Option<&Encryption>) -> Result<(), String> {
    let unreadable = |error| format!("STATE cannot be found: {error}");
    let disk = disk::system_disk().map_err(unreadable)?;
    // Without a disk there is no STATE to lose.
    let Some(disk) = disk else { return Ok(()) };
    let device = disk.named(STATE.name).map_err(unreadable)?;
    check_closed(&device, next)
}

fn check_closed(device: &Path, next: Option<&Encryption>) -> Result<(), String> {
    let content = disk::content(device);
    let content = content.map_err(|error| format!("STATE cannot be read: {error}"))?;
    match (content, next) {
        (Content::Nothing | Content::Xfs, _) => Ok(()),
        // Foreign content may be a volume whose start was overwritten.
        (Content::Luks | Content::Foreign, Some(next)) => {
            encryption::check_opens(STATE.name, device, next)
        }
        (Content::Luks | Content::Foreign, None) => {
            Err("STATE is not empty, and the keys recorded in META may still open it".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use corten_config::kinds::{EncryptionKey, StaticKey};
    use corten_values::Secret;

    use super::*;

    fn encryption(keys: &[(u8, &str)]) -> Encryption {
        let key = |(slot, text): &(u8, &str)| EncryptionKey {
            slot: *slot,
            fixed: Some(StaticKey {
                passphrase: Secret::new(*text),
            }),
            ..EncryptionKey::default()
        };
        Encryption {
            keys: keys.iter().map(key).collect(),
            ..Encryption::default()
        }
    }

    #[test]
    fn keys_that_opened_state_stay_in_meta() {
        let opened = vec![(SystemVolume::State, encryption(&[(0, "a"), (1, "b")]))];
        let checked = |next: Option<&str>| check_state_value(&opened, next.map(str::as_bytes));
        let kept = encryption(&[(1, "b"), (2, "c")]).to_meta();
        checked(Some(&kept)).unwrap();
        for (lost, why) in [
            (None, "STATE must keep one of its keys"),
            (
                Some(encryption(&[(0, "b"), (1, "a")]).to_meta()),
                "STATE must keep one of its keys",
            ),
            (Some("{}".to_owned()), "value is invalid: line 1"),
            (Some("words".to_owned()), "value is invalid: line 1"),
        ] {
            let found = checked(lost.as_deref()).unwrap_err();
            assert!(found.contains(why), "{lost:?}: {found}");
        }
        let checked = |wiped: &[&str]| check_wiped(&opened, wiped);
        checked(&["META", "STATE"]).unwrap();
        checked(&["EPHEMERAL", "STATE"]).unwrap();
        let found = checked(&["EPHEMERAL", "META"]).unwrap_err();
        assert!(found.starts_with("system_partitions_to_wipe: META"));
        check_wiped(&Vec::new(), &["META"]).unwrap();
    }

    #[test]
    fn volume_is_not_created_in_plaintext_while_meta_is_unreadable() {
        let wanted = encryption(&[(0, "a")]);
        let doubt = Some("META cannot be read");
        let failure = check_clear(true, None, doubt).unwrap_err().to_string();
        let start =
            "STATE: is not created because it may require encryption: META cannot be read; ";
        assert!(failure.starts_with(start), "{failure}");
        // Existing content is used, and an encrypted STATE protects its content anyway.
        check_clear(false, None, doubt).unwrap();
        check_clear(true, Some(&wanted), doubt).unwrap();
        check_clear(true, None, None).unwrap();
    }

    /// A STATE that did not open: META may be the only record of its keys.
    #[test]
    fn unopened_state_accepts_only_keys_that_open_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(corten_luks::DATA_OFFSET).unwrap();
        let right = encryption(&[(0, "no"), (1, "yes")]);
        let wrong = encryption(&[(0, "yes"), (1, "no")]);
        let all = [None, Some(&right), Some(&wrong)];
        // The volume is empty.
        for next in all {
            check_closed(file.path(), next).unwrap();
        }
        let cost = corten_luks::Cost {
            memory: 32,
            time: 1,
            lanes: 1,
        };
        let (mut luks, key) = corten_luks::Luks::new(64, 512).unwrap();
        luks.set_key(file.as_file(), 1, &key, b"yes", cost).unwrap();
        luks.write(file.as_file()).unwrap();
        // The start of the volume may also be overwritten.
        for start in [b"LUKS", b"lost"] {
            file.as_file().write_all_at(start, 0).unwrap();
            let accepted = all.map(|next| check_closed(file.path(), next).is_ok());
            assert_eq!(accepted, [false, true, false]);
        }
        let why = check_closed(file.path(), Some(&wrong)).unwrap_err();
        assert!(why.contains("static is not the key of slot 1"), "{why}");
        check_closed(Path::new("/no/such/device"), Some(&right)).unwrap_err();
    }
}

//! Which keys may come after those of now, so that the next boot can still open what is encrypted.

use std::path::Path;

use corten_config::kinds::{Encryption, SystemVolume};
use corten_config::{Document, Word as _};

use super::disk::{self, Content};
use super::{Failure, STATE, encryption};

/// The encrypted volumes that were opened in this boot, with those keys of the config that are in their slots.
pub type Opened = Vec<(SystemVolume, Encryption)>;

/// Whether the next boot could open what is open now by the next config: it must keep a key of each volume, by
/// which the others get into their slots.
///
/// # Errors
/// The text names the volume.
pub fn check_keys(opened: &Opened, next: &Document) -> Result<(), String> {
    for (volume, before) in opened {
        let next = next.encryption(*volume);
        // META has them.
        if *volume == SystemVolume::State && next.is_none() {
            continue;
        }
        check_kept(volume.word(), before, next)?;
    }
    Ok(())
}

/// Whether META may say this of STATE, or nothing of it any more. Where it is encrypted, a key must open it: one
/// it was opened by or, where none did in this boot, one that is tried now, which takes long.
///
/// # Errors
/// The text says why not.
pub fn check_state_keys(opened: &Opened, next: Option<&Encryption>) -> Result<(), String> {
    let state = opened.iter().find(|(one, _)| *one == SystemVolume::State);
    match state {
        Some((volume, before)) => check_kept(volume.word(), before, next),
        None => check_closed_state(next),
    }
}

/// The same of a value somebody wants to write there.
///
/// # Errors
/// It is none, or the text says why it may not be there.
pub fn check_state_value(opened: &Opened, value: Option<&[u8]>) -> Result<(), String> {
    let next = value.map(Encryption::from_meta).transpose();
    let next = next.map_err(|problems| format!("the value is wrong: {problems}"))?;
    check_state_keys(opened, next.as_ref())
}

/// Whether these partitions may be wiped, and the others stay.
///
/// # Errors
/// META alone, while it has the keys of STATE.
pub fn check_wiped(opened: &Opened, wiped: &[&str]) -> Result<(), String> {
    let needs_meta = opened.iter().any(|(one, _)| *one == SystemVolume::State);
    if needs_meta && wiped.contains(&"META") && !wiped.contains(&STATE.name) {
        let text =
            "system_partitions_to_wipe: META says by which key STATE is opened; wipe STATE with it";
        return Err(text.to_owned());
    }
    Ok(())
}

/// Whether STATE may be made as `wanted`, if it is not there yet (`lacks`): not in the clear while there is a
/// `doubt`, a reason why nobody can tell whether it shall be encrypted.
///
/// # Errors
/// The text has the reason.
pub fn check_clear(
    lacks: bool,
    wanted: Option<&Encryption>,
    doubt: Option<&str>,
) -> Result<(), Failure> {
    match doubt {
        Some(why) if lacks && wanted.is_none() => {
            let text = format!(
                "is not made, as it may have to be encrypted: {why}; \
                 apply a config that says how it is encrypted, or mend that, and restart"
            );
            Err(Failure::new(STATE.name, text))
        }
        _ => Ok(()),
    }
}

/// Whether one of those keys that open a volume is kept.
pub(super) fn check_kept(
    volume: &str,
    before: &Encryption,
    next: Option<&Encryption>,
) -> Result<(), String> {
    if next.is_some_and(|next| next.keeps_a_key_of(before)) {
        return Ok(());
    }
    Err(format!(
        "the encryption of {volume} must keep one of its keys, in its slot, until it was opened again, which sets the \
         others"
    ))
}

fn check_closed_state(next: Option<&Encryption>) -> Result<(), String> {
    let unreadable = |error| format!("STATE cannot be looked at: {error}");
    let disk = disk::system_disk().map_err(unreadable)?;
    // Without a disk there is no STATE that could be lost.
    let Some(disk) = disk else { return Ok(()) };
    let device = disk.named(STATE.name).map_err(unreadable)?;
    check_closed(&device, next)
}

fn check_closed(device: &Path, next: Option<&Encryption>) -> Result<(), String> {
    let content = disk::content(device);
    let content = content.map_err(|error| format!("STATE cannot be read: {error}"))?;
    match (content, next) {
        (Content::Nothing | Content::Xfs, _) => Ok(()),
        // What is foreign may be a volume whose start was overwritten.
        (Content::Luks | Content::Foreign, Some(next)) => {
            encryption::check_opens(STATE.name, device, next)
        }
        (Content::Luks | Content::Foreign, None) => {
            Err("STATE is not empty, and what META says may still open it".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use corten_config::Secret;
    use corten_config::kinds::{EncryptionKey, StaticKey};

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
    fn what_opened_state_stays_in_meta() {
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
            (Some("{}".to_owned()), "value is wrong: line 1"),
            (Some("words".to_owned()), "value is wrong: line 1"),
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
    fn what_may_have_to_be_encrypted_is_not_made_in_the_clear() {
        let wanted = encryption(&[(0, "a")]);
        let doubt = Some("META cannot be read");
        let failure = check_clear(true, None, doubt).unwrap_err().to_string();
        let start = "STATE: is not made, as it may have to be encrypted: META cannot be read; ";
        assert!(failure.starts_with(start), "{failure}");
        // What is there is used, and what is encrypted hides enough.
        check_clear(false, None, doubt).unwrap();
        check_clear(true, Some(&wanted), doubt).unwrap();
        check_clear(true, None, None).unwrap();
    }

    /// A STATE that was not opened, for whatever reason: what META says of it may be all there is.
    #[test]
    fn a_closed_state_is_only_given_keys_that_open_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(corten_luks::DATA_OFFSET).unwrap();
        let right = encryption(&[(0, "no"), (1, "yes")]);
        let wrong = encryption(&[(0, "yes"), (1, "no")]);
        let all = [None, Some(&right), Some(&wrong)];
        // Nothing is there yet.
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
        // Also when its start was overwritten.
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

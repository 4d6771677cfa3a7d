//! Which partition is which volume's, by the ids in the tables of the disks, kept in STATE; and which disk, by the id
//! of what is on it. A volume that was there once is found again or waited for. It is not made a second time because
//! its disk comes late, and nothing is taken for it because it has its name.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

use super::{Trouble, UserVolume};
use crate::console;
use crate::durable;
use crate::volumes::table::is_senseless;

/// The node's own volume, which is not among those of users.
const EPHEMERAL: &str = crate::volumes::EPHEMERAL.name;

/// A map, in JSON, from volumes ([`UserVolume::key`]) to the ids of their partitions or disks.
const FILE: &str = "user-volumes.json";
/// What stands before the key of a volume that was encrypted, with the same id.
const ENCRYPTED: &str = "encrypted ";
/// Held from reading to writing: volumes are made and wiped by threads of their own.
static CHANGING: Mutex<()> = Mutex::new(());

/// What on a disk, by the kernel's name, has a volume's name; or why that cannot be told.
#[derive(Debug)]
pub struct Seen {
    /// The disk.
    pub disk: String,
    /// Partitions, or what it is as a whole.
    pub ids: io::Result<Vec<Uuid>>,
}

impl Seen {
    /// What reading a disk gave. A table that says what cannot be was made so: no volume is on it, and none has to
    /// wait for it.
    pub fn of(disk: &str, read: io::Result<Vec<Uuid>>) -> Seen {
        let ids = match read {
            Err(error) if is_senseless(&error) => {
                console::warn(&format!("{disk} is left alone: {error}"));
                Ok(Vec::new())
            }
            read => read,
        };
        let disk = disk.to_owned();
        Seen { disk, ids }
    }
}

/// The disk with a volume, whose id is this one if it is known; `None`: it is on no disk, and may be made.
///
/// # Errors
/// It is not to be made, for there is one already, or may be.
pub fn disk_of<'a>(
    volume: &str,
    known: Option<Uuid>,
    seen: &'a [Seen],
) -> Result<Option<&'a str>, Trouble> {
    let (mut with, mut unknown) = (Vec::new(), Vec::new());
    for Seen { disk, ids } in seen {
        match ids {
            Ok(ids) => with.extend(
                ids.iter()
                    .filter(|id| known.is_none_or(|known| known == **id))
                    .map(|_| disk.as_str()),
            ),
            Err(error) => unknown.push(format!("{disk}: {error}")),
        }
    }
    match (with.as_slice(), known) {
        ([one], _) => Ok(Some(one)),
        ([], _) if !unknown.is_empty() => Err(Trouble::Failed(format!(
            "it may be on a disk that cannot be read: {}; mend, wipe or take out that disk",
            unknown.join("; ")
        ))),
        ([], None) => Ok(None),
        ([], Some(id)) => Err(Trouble::Missing(format!(
            "what it was, {id}, is on none of the disks; if it is gone for good, take {volume} out of the config \
             and put it back"
        ))),
        (several, _) => Err(Trouble::Failed(format!(
            "there are several {volume}, on {}; wipe all but one",
            several.join(" and ")
        ))),
    }
}

/// The partition or disk that was this volume's, by its key.
#[must_use]
pub fn id(state: &Path, volume: &str) -> Option<Uuid> {
    read(state)
        .get(volume)
        .and_then(|id| Uuid::parse_str(id).ok())
}

/// From now on this partition or disk is the volume's.
pub fn remember(state: &Path, volume: &str, id: Uuid) {
    change(state, |known| {
        known.insert(volume.to_owned(), id.to_string());
    });
}

/// Whether the volume of this key was encrypted; also one of the node's own.
#[must_use]
pub fn was_encrypted(state: &Path, volume: &str) -> bool {
    read(state).contains_key(&format!("{ENCRYPTED}{volume}"))
}

/// From now on the volume of this key was encrypted, as long as what has this id is there.
pub fn remember_encrypted(state: &Path, volume: &str, id: Uuid) {
    remember(state, &format!("{ENCRYPTED}{volume}"), id);
}

/// Forgets the volumes of users that are wanted no more, whose disks may be gone for good.
pub fn forget_others(state: &Path, wanted: &[UserVolume]) {
    let is_wanted = |volume: &str| {
        let volume = match volume.strip_prefix(ENCRYPTED) {
            Some(EPHEMERAL) => return true,
            Some(volume) => volume,
            None => volume,
        };
        wanted.iter().any(|one| one.key() == volume)
    };
    change(state, |known| known.retain(|volume, _| is_wanted(volume)));
}

/// Forgets the volumes whose partitions or disks were wiped: they are made anew.
pub fn forget(state: &Path, ids: &[Uuid]) {
    if !ids.is_empty() {
        change(state, |known| known.retain(|_, id| !is_among(id, ids)));
    }
}

/// Forgets that volumes were encrypted whose partitions were emptied, and are there still.
pub fn forget_encrypted(state: &Path, ids: &[Uuid]) {
    change(state, |known| {
        known.retain(|volume, id| !(volume.starts_with(ENCRYPTED) && is_among(id, ids)));
    });
}

fn is_among(id: &str, ids: &[Uuid]) -> bool {
    Uuid::parse_str(id).is_ok_and(|id| ids.contains(&id))
}

fn change(state: &Path, change: impl FnOnce(&mut BTreeMap<String, String>)) {
    let _alone = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let before = read(state);
    let mut known = before.clone();
    change(&mut known);
    if known != before {
        write(state, &known);
    }
}

fn read(state: &Path) -> BTreeMap<String, String> {
    let path = state.join(FILE);
    let read = fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?));
    match read {
        Ok(known) => known,
        Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => {
            let what = "volumes of users are found by their names";
            console::warn(&format!("{}: {error}; {what}", path.display()));
            BTreeMap::new()
        }
    }
}

fn write(state: &Path, known: &BTreeMap<String, String>) {
    let written = serde_json::to_vec(known).map_err(io::Error::from);
    if let Err(error) = written.and_then(|text| durable::replace(state, FILE, &text)) {
        console::warn(&format!("{}: {error}", state.join(FILE).display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::volumes::user::wanted;

    const ONE: Uuid = Uuid::from_u128(1);
    const TWO: Uuid = Uuid::from_u128(2);

    fn seen(disk: &str, ids: &[Uuid]) -> Seen {
        Seen {
            disk: disk.to_owned(),
            ids: Ok(ids.to_vec()),
        }
    }

    fn broken(disk: &str) -> Seen {
        Seen {
            disk: disk.to_owned(),
            ids: Err(io::Error::other("broken")),
        }
    }

    fn failure(known: Option<Uuid>, seen: &[Seen]) -> String {
        match disk_of("u-data", known, seen).unwrap_err() {
            Trouble::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_volume_is_made_only_where_it_cannot_be_already() {
        let none = [seen("vda", &[]), seen("vdb", &[])];
        assert_eq!(disk_of("u-data", None, &none), Ok(None));
        let one = [seen("vda", &[]), seen("vdb", &[ONE]), broken("vdc")];
        assert_eq!(disk_of("u-data", None, &one), Ok(Some("vdb")));
        assert_eq!(disk_of("u-data", Some(ONE), &one), Ok(Some("vdb")));
        // The disk of the one that is known is late; another disk has one of its name.
        let trouble = disk_of("u-data", Some(TWO), &one[..2]).unwrap_err();
        let Trouble::Missing(why) = trouble else {
            panic!("{trouble:?}")
        };
        assert!(why.contains(&TWO.to_string()) && why.contains("put it back"));
        assert!(failure(Some(TWO), &one).contains("vdc: broken"));
        assert!(failure(None, &[seen("vda", &[]), broken("vdc")]).contains("vdc: broken"));
        // Nobody's damage makes such a table.
        let senseless = Seen::of("vdc", Err(ErrorKind::InvalidData.into()));
        let damaged = Seen::of("vdc", Err(ErrorKind::Other.into()));
        assert_eq!(disk_of("u-data", None, &[senseless]), Ok(None));
        assert!(failure(None, &[damaged]).contains("vdc"));
        // By its name alone nobody can tell which it is.
        let two = [seen("vda", &[ONE]), seen("vdb", &[TWO])];
        assert!(failure(None, &two).contains("on vda and vdb"));
        assert_eq!(disk_of("u-data", Some(TWO), &two), Ok(Some("vdb")));
        assert!(failure(None, &[seen("vda", &[ONE, TWO])]).contains("several"));
    }

    #[test]
    fn what_is_remembered_is_forgotten_with_the_config() {
        let state = tempfile::tempdir().unwrap();
        let known = |volume| id(state.path(), volume);
        assert_eq!(known("u-data"), None);
        remember(state.path(), "u-data", ONE);
        remember(state.path(), "u-old", TWO);
        assert_eq!((known("u-data"), known("u-old")), (Some(ONE), Some(TWO)));
        let selector = "provisioning: {diskSelector: {match: '!system_disk'}}";
        let config = sample::kind(&format!("UserVolumeConfig\nname: data\n{selector}"));
        forget_others(state.path(), &wanted(&config));
        assert_eq!((known("u-data"), known("u-old")), (Some(ONE), None));
        forget(state.path(), &[TWO]);
        assert_eq!(known("u-data"), Some(ONE));
        forget(state.path(), &[TWO, ONE]);
        assert_eq!(known("u-data"), None);
        // As a whole disk it is another one than it was as a partition.
        let whole = sample::kind(&format!(
            "UserVolumeConfig\nname: data\nvolumeType: disk\n{selector}"
        ));
        remember(state.path(), "u-data", ONE);
        forget_others(state.path(), &wanted(&whole));
        assert_eq!(known("u-data"), None);
        remember(state.path(), "disk u-data", TWO);
        forget_others(state.path(), &wanted(&whole));
        assert_eq!(known("disk u-data"), Some(TWO));
        // That one was encrypted is forgotten with it; of the node's own volume, with what is in it alone.
        let encrypted = |volume| was_encrypted(state.path(), volume);
        for volume in ["disk u-data", "u-old", EPHEMERAL] {
            remember_encrypted(state.path(), volume, TWO);
            assert!(encrypted(volume));
        }
        forget_others(state.path(), &wanted(&whole));
        assert!(encrypted("disk u-data") && !encrypted("u-old") && encrypted(EPHEMERAL));
        assert_eq!(known("disk u-data"), Some(TWO));
        forget_encrypted(state.path(), &[TWO]);
        assert!(!encrypted("disk u-data") && known("disk u-data") == Some(TWO));
        remember_encrypted(state.path(), "disk u-data", TWO);
        forget(state.path(), &[TWO]);
        assert!(!encrypted("disk u-data") && !encrypted(EPHEMERAL));
        fs::write(state.path().join(FILE), "{\"u-data\": \"x\"").unwrap();
        assert_eq!(known("u-data"), None);
        remember(state.path(), "u-data", TWO);
        assert_eq!(known("u-data"), Some(TWO));
    }
}

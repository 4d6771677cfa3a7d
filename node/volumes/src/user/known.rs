//! Records in STATE which partition or disk belongs to which volume, by id. A recorded volume is found again or waited
//! for. A late disk does not get it made a second time, and a partition with its name alone is not taken for it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use corten_base::console;
use corten_base::durable;
use uuid::Uuid;

use super::{Trouble, UserVolume};
use crate::table::is_impossible;

/// The node's own volume, which is no user volume.
const EPHEMERAL: &str = crate::EPHEMERAL.name;

/// JSON map from volumes ([`UserVolume::key`]) to the ids of their partitions or disks.
const FILE: &str = "user-volumes.json";
/// Prefix of the key of a volume that was encrypted; the id is the same.
const ENCRYPTED: &str = "encrypted ";
/// Lock of a read-change-write cycle: volumes are made and wiped on separate threads.
static CHANGING: Mutex<()> = Mutex::new(());

/// The candidates for a volume on one disk, or the reason why they are unknown.
#[derive(Debug)]
pub struct Seen {
    /// The kernel's name of the disk.
    pub disk: String,
    /// Ids of its partitions with the volume's name, or of the disk as a whole.
    pub ids: io::Result<Vec<Uuid>>,
}

impl Seen {
    /// Converts the result of reading a disk. A table with impossible values was written deliberately: it has no
    /// volume, and no volume has to wait for the disk.
    pub fn of(disk: &str, read: io::Result<Vec<Uuid>>) -> Seen {
        let ids = match read {
            Err(error) if is_impossible(&error) => {
                console::warn(&format!("{disk} is ignored: {error}"));
                Ok(Vec::new())
            }
            read => read,
        };
        let disk = disk.to_owned();
        Seen { disk, ids }
    }
}

/// The disk with a volume, by its recorded id if there is one; `None` if no disk has it, so that it may be made.
///
/// # Errors
/// It must not be made, because it exists or may exist already.
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
            "it may be on a disk that cannot be read: {}; repair, wipe or remove that disk",
            unknown.join("; ")
        ))),
        ([], None) => Ok(None),
        ([], Some(id)) => Err(Trouble::Missing(format!(
            "its partition or disk, {id}, is on none of the disks; if it is gone permanently, remove {volume} from the \
             config and add it again"
        ))),
        (several, _) => Err(Trouble::Failed(format!(
            "there are several {volume}, on {}; wipe all but one",
            several.join(" and ")
        ))),
    }
}

/// The recorded id of a volume's partition or disk, by the volume's key.
#[must_use]
pub fn id(state: &Path, volume: &str) -> Option<Uuid> {
    read(state)
        .get(volume)
        .and_then(|id| Uuid::parse_str(id).ok())
}

/// Records the partition or disk of a volume.
pub fn remember(state: &Path, volume: &str, id: Uuid) {
    change(state, |known| {
        known.insert(volume.to_owned(), id.to_string());
    });
}

/// Whether the volume with this key was encrypted; also for the node's own volumes.
#[must_use]
pub fn was_encrypted(state: &Path, volume: &str) -> bool {
    read(state).contains_key(&format!("{ENCRYPTED}{volume}"))
}

/// Records that the volume with this key is encrypted; the record goes with this id.
pub fn remember_encrypted(state: &Path, volume: &str, id: Uuid) {
    remember(state, &format!("{ENCRYPTED}{volume}"), id);
}

/// Forgets user volumes that the config no longer has; their disks may be gone for good.
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

/// Forgets volumes whose partitions or disks were wiped; they are made anew.
pub fn forget(state: &Path, ids: &[Uuid]) {
    if !ids.is_empty() {
        change(state, |known| known.retain(|_, id| !is_among(id, ids)));
    }
}

/// Forgets the encryption of volumes whose partitions were emptied but still exist.
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
            let what = "user volumes are found by name instead";
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
    use corten_base::sample;

    use super::*;
    use crate::user::wanted;

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
    fn volume_is_created_only_where_it_cannot_exist_already() {
        let none = [seen("vda", &[]), seen("vdb", &[])];
        assert_eq!(disk_of("u-data", None, &none), Ok(None));
        let one = [seen("vda", &[]), seen("vdb", &[ONE]), broken("vdc")];
        assert_eq!(disk_of("u-data", None, &one), Ok(Some("vdb")));
        assert_eq!(disk_of("u-data", Some(ONE), &one), Ok(Some("vdb")));
        // The recorded disk is late; another disk has a partition of the same name.
        let trouble = disk_of("u-data", Some(TWO), &one[..2]).unwrap_err();
        let Trouble::Missing(why) = trouble else {
            panic!("{trouble:?}")
        };
        assert!(why.contains(&TWO.to_string()) && why.contains("add it again"));
        assert!(failure(Some(TWO), &one).contains("vdc: broken"));
        assert!(failure(None, &[seen("vda", &[]), broken("vdc")]).contains("vdc: broken"));
        // Damage cannot produce such a table.
        let impossible = Seen::of("vdc", Err(ErrorKind::InvalidData.into()));
        let damaged = Seen::of("vdc", Err(ErrorKind::Other.into()));
        assert_eq!(disk_of("u-data", None, &[impossible]), Ok(None));
        assert!(failure(None, &[damaged]).contains("vdc"));
        // The name alone is ambiguous.
        let two = [seen("vda", &[ONE]), seen("vdb", &[TWO])];
        assert!(failure(None, &two).contains("on vda and vdb"));
        assert_eq!(disk_of("u-data", Some(TWO), &two), Ok(Some("vdb")));
        assert!(failure(None, &[seen("vda", &[ONE, TWO])]).contains("several"));
    }

    #[test]
    fn remembered_partition_ids_are_dropped_with_the_config() {
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
        // A whole disk is another volume than the partition of that name.
        let whole = sample::kind(&format!(
            "UserVolumeConfig\nname: data\nvolumeType: disk\n{selector}"
        ));
        remember(state.path(), "u-data", ONE);
        forget_others(state.path(), &wanted(&whole));
        assert_eq!(known("u-data"), None);
        remember(state.path(), "disk u-data", TWO);
        forget_others(state.path(), &wanted(&whole));
        assert_eq!(known("disk u-data"), Some(TWO));
        // The record of encryption goes with a user volume; that of EPHEMERAL only with its content.
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

//! A whole disk as a user volume: found again by its label and id, and taken only if it is empty, with its first and
//! last MiB zero.
//!
//! Before any other write, a taken disk is marked with the first sector of an unfinished XFS that has the volume's
//! label. `mkfs.xfs` or the LUKS header, whose label also names the volume, then overwrites it. So a power cut leaves
//! an empty disk, a disk marked for its volume, or the volume.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write as _};
use std::path::Path;

use corten_base::durable;
use corten_luks::{Luks, LuksError};
use uuid::Uuid;

use super::known;
use super::partition::{LOOKED_AT, is_zero};
use super::world::{Held, failed, have, known_as, look, named};
use super::{Facts, Trouble, UserVolume, WholeDisk};
use crate::disk::Disk;
use crate::{LONGEST_LABEL, MIB, STATE, encryption, wipe};

const SECTOR: usize = 512;
/// Magic of an XFS superblock (kernel: `struct xfs_dsb` in fs/xfs/libxfs/xfs_format.h). The offsets in bytes are those
/// of its id (`sb_uuid`), label (`sb_fname`) and unfinished-`mkfs` flag (`sb_inprogress`).
const XFS: &[u8] = b"XFSB";
const XFS_ID: usize = 32;
const XFS_LABEL: usize = 108;
const XFS_IN_PROGRESS: usize = 126;
/// Magic of a LUKS header.
const LUKS: &[u8] = b"LUKS\xba\xbe";

/// Label of a volume's file system: its id, or a truncated hash of the id if that is too long.
pub(super) fn label(volume: &str) -> String {
    if volume.len() <= LONGEST_LABEL {
        return volume.to_owned();
    }
    let number = Uuid::new_v5(&Uuid::NAMESPACE_OID, volume.as_bytes()).simple();
    let mut label = format!("u-{number}");
    label.truncate(LONGEST_LABEL);
    label
}

/// Identity of a disk as a whole: a file system, or an encrypted volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Label on the disk; empty for none.
    pub label: String,
    /// Id of the file system or the encrypted volume.
    pub id: Uuid,
    /// Whether it is encrypted.
    pub is_luks: bool,
}

impl Signature {
    /// Reads the identity; `None` for content of a kind the node does not make.
    ///
    /// # Errors
    /// The disk cannot be read, or has a damaged LUKS volume.
    pub fn of(disk: &File) -> io::Result<Option<Signature>> {
        let mut start = [0; SECTOR];
        let mut reader = disk;
        reader.rewind()?;
        match reader.read_exact(&mut start) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if start.starts_with(XFS) {
            return Ok(Some(Signature::of_xfs(&start)));
        }
        if !start.starts_with(LUKS) {
            return Ok(None);
        }
        match Luks::read(disk) {
            Ok(luks) => Ok(luks.as_ref().and_then(Signature::of_luks)),
            Err(LuksError::Device(error)) => Err(error),
            Err(error @ LuksError::Damaged(_)) => Err(io::Error::other(error)),
            Err(_) => Ok(None),
        }
    }

    fn of_xfs(superblock: &[u8; SECTOR]) -> Signature {
        let field = |at, length| superblock.iter().skip(at).take(length).copied();
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(field(XFS_ID, 16)) {
            *to = from;
        }
        let label = field(XFS_LABEL, LONGEST_LABEL).take_while(|byte| *byte != 0);
        let label: Vec<u8> = label.collect();
        Signature {
            label: String::from_utf8_lossy(&label).into_owned(),
            id: Uuid::from_bytes(id),
            is_luks: false,
        }
    }

    fn of_luks(luks: &Luks) -> Option<Signature> {
        Some(Signature {
            label: luks.label().to_owned(),
            id: Uuid::parse_str(luks.uuid()).ok()?,
            is_luks: true,
        })
    }

    /// Whether it belongs to this volume, whose recorded id is `known`.
    fn is_of(&self, volume: &str, known: Option<Uuid>) -> bool {
        // Early versions put the file system's label in the LUKS header.
        let has_label = self.label == label(volume)
            || self.is_luks && self.label == encryption::mapping(volume);
        has_label || known == Some(self.id)
    }
}

/// Whether a disk begins like a whole-disk volume.
///
/// # Errors
/// Those of the disk.
pub(super) fn is_volume<D: Read + Seek>(disk: &mut D) -> io::Result<bool> {
    let mut start = [0; LUKS.len()];
    disk.rewind()?;
    disk.read_exact(&mut start)?;
    Ok(start.starts_with(XFS) || start.starts_with(LUKS))
}

/// The disk of this volume, or else the first suitable disk, which is marked.
pub(super) fn find_or_take(
    volume: &UserVolume,
    wanted: &WholeDisk,
    facts: &Facts,
) -> Result<Held, Trouble> {
    let id = &volume.id;
    let known = known::id(Path::new(STATE.target), &volume.key());
    let own = |disk: &File| {
        let found = Signature::of(disk)?;
        let own = found.filter(|found| found.is_of(id, known));
        Ok::<_, io::Error>(own.map(|own| own.id))
    };
    let seen = look(facts, |disk| Ok(own(&disk)?.into_iter().collect()));
    if let Some(name) = known::disk_of(id, known, &seen)? {
        let disk = named(name, facts);
        let alone = have(&disk)?;
        let held = Held::of(disk, alone).map_err(|error| failed(name, error))?;
        // The disk may have been wiped meanwhile.
        return match own(&held.open) {
            Ok(Some(_)) => Ok(held),
            Ok(None) => Err(failed(name, "its content has just changed")),
            Err(error) => Err(failed(name, error)),
        };
    }
    let mut why = Vec::new();
    for candidate in facts.disks_for(&wanted.selector)? {
        let disk = known_as(candidate);
        let name = disk.name.clone();
        if let Some(reason) = facts.not_whole(candidate) {
            why.push(format!("{name}: {reason}"));
            continue;
        }
        let alone = have(&disk)?;
        match check(&disk, wanted.least) {
            Ok(file) => {
                let marked = mark(file, &wanted.label).and_then(|()| Held::of(disk, alone));
                // No fallback to another disk after this point: that would make a second volume of this name.
                return marked.map_err(|error| failed(&name, error));
            }
            Err(error) => why.push(format!("{name}: {error}")),
        }
    }
    Err(Trouble::Failed(format!(
        "no disk is suitable: {}",
        why.join("; ")
    )))
}

/// Opens a suitable disk exclusively.
fn check(disk: &Disk, least: u64) -> io::Result<File> {
    let opened = wipe::open(disk.sequence, &disk.device());
    let (file, length) = opened.map_err(|error| match error.kind() {
        ErrorKind::ResourceBusy => io::Error::other("it is in use"),
        _ => error,
    })?;
    check_empty(&file, length, least)?;
    Ok(file)
}

fn check_empty(mut disk: &File, length: u64, least: u64) -> io::Result<()> {
    let (has, needs) = (length / MIB, least.div_ceil(MIB));
    if has < needs {
        return Err(io::Error::other(format!(
            "it has {has} MiB, and {needs} are needed"
        )));
    }
    let remedy = "wipe it to use it";
    match Signature::of(disk) {
        // The label comes from the disk and may be anything.
        Ok(Some(Signature { label, .. })) if !label.is_empty() => {
            let text = format!("it is not empty and has the label {label:?}; {remedy}");
            return Err(io::Error::other(text));
        }
        _ => {}
    }
    let end = length.saturating_sub(LOOKED_AT);
    if is_zero(&mut disk, 0, LOOKED_AT)? && is_zero(&mut disk, end, LOOKED_AT)? {
        return Ok(());
    }
    Err(io::Error::other(format!("it is not empty; {remedy}")))
}

/// Discards the volume with this label on a disk. After a power cut the disk is still marked for that volume.
pub(super) fn give_up(disk: &Disk, label: &str) -> io::Result<()> {
    let (file, _) = wipe::open(disk.sequence, &disk.device())?;
    mark(file, label)
}

/// Marks an empty disk with the volume for which it is made.
fn mark(mut disk: File, label: &str) -> io::Result<()> {
    let mut sector = [0; SECTOR];
    for (at, field) in [
        (0, XFS),
        (XFS_ID, Uuid::new_v4().as_bytes()),
        (XFS_LABEL, label.as_bytes()),
        (XFS_IN_PROGRESS, &[1]),
    ] {
        for (to, from) in sector.iter_mut().skip(at).zip(field) {
            *to = *from;
        }
    }
    disk.seek(SeekFrom::Start(0))?;
    disk.write_all(&sector)?;
    disk.sync_all()
}

/// Records the disk of the volume with this key. Does nothing if STATE is in memory or the disk cannot be read: the
/// label on the disk then suffices.
pub(super) fn remember(key: &str, held: &Held) {
    let state = Path::new(STATE.target);
    if durable::is_volume(state)
        && let Ok(Some(found)) = Signature::of(&held.open)
    {
        known::remember(state, key, found.id);
        if found.is_luks {
            known::remember_encrypted(state, key, found.id);
        }
    }
}

#[cfg(test)]
#[path = "whole_disk_tests.rs"]
mod tests;

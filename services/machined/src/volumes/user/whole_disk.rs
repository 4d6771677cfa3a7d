//! A whole disk as a user volume: found again by the label and the id of what is on it, and taken only when it is
//! empty, its first and its last MiB being zeros.
//!
//! A disk that is taken is marked before anything else is written to it: with the first sector of an XFS that is not
//! finished and has the volume's label. That is what `mkfs.xfs` writes over, or the LUKS header, whose label names the
//! volume, too. So a power cut leaves a disk that is empty still, one of which it is known for whom it is made anew,
//! or the volume.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write as _};
use std::path::Path;

use corten_luks::{Luks, LuksError};
use uuid::Uuid;

use super::known;
use super::partition::{LOOKED_AT, is_zero};
use super::world::{Held, failed, have, known_as, look, named};
use super::{Facts, Trouble, UserVolume, WholeDisk};
use crate::durable;
use crate::volumes::disk::Disk;
use crate::volumes::{LONGEST_LABEL, MIB, STATE, encryption, wipe};

const SECTOR: usize = 512;
/// How a superblock of XFS begins (kernel: `struct xfs_dsb` in fs/xfs/libxfs/xfs_format.h), and where in it are id
/// (`sb_uuid`), label (`sb_fname`) and whether `mkfs` is still at work (`sb_inprogress`), in bytes.
const XFS: &[u8] = b"XFSB";
const XFS_ID: usize = 32;
const XFS_LABEL: usize = 108;
const XFS_IN_PROGRESS: usize = 126;
/// How the header of a LUKS volume begins.
const LUKS: &[u8] = b"LUKS\xba\xbe";

/// The label of a volume's file system: its id, or as much of a number made of it as there is room for.
pub(super) fn label(volume: &str) -> String {
    if volume.len() <= LONGEST_LABEL {
        return volume.to_owned();
    }
    let number = Uuid::new_v5(&Uuid::NAMESPACE_OID, volume.as_bytes()).simple();
    let mut label = format!("u-{number}");
    label.truncate(LONGEST_LABEL);
    label
}

/// What a disk is as a whole: a file system, or an encrypted volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Its label, as it is on the disk; empty: it has none.
    pub label: String,
    /// Its id.
    pub id: Uuid,
    /// It is encrypted.
    pub is_luks: bool,
}

impl Signature {
    /// Reads it; `None`: the disk is neither, or of a kind the node does not make.
    ///
    /// # Errors
    /// It cannot be read, or is a LUKS volume that is damaged.
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

    /// Whether it is this volume, which was known by this id.
    fn is_of(&self, volume: &str, known: Option<Uuid>) -> bool {
        // The first headers had the label of the file system in them.
        let has_label = self.label == label(volume)
            || self.is_luks && self.label == encryption::mapping(volume);
        has_label || known == Some(self.id)
    }
}

/// Whether a disk begins as one that is a volume as a whole.
///
/// # Errors
/// The disk's.
pub(super) fn is_volume<D: Read + Seek>(disk: &mut D) -> io::Result<bool> {
    let mut start = [0; LUKS.len()];
    disk.rewind()?;
    disk.read_exact(&mut start)?;
    Ok(start.starts_with(XFS) || start.starts_with(LUKS))
}

/// The disk that is this volume, or else the first that can be it, which is marked.
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
        // It may have been wiped meanwhile.
        return match own(&held.open) {
            Ok(Some(_)) => Ok(held),
            Ok(None) => Err(failed(name, "what is on it has just changed")),
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
                // A failure after this is none of choice: another disk would be a second volume of this name.
                return marked.map_err(|error| failed(&name, error));
            }
            Err(error) => why.push(format!("{name}: {error}")),
        }
    }
    Err(Trouble::Failed(format!(
        "no disk can be it: {}",
        why.join("; ")
    )))
}

/// A disk that can be taken, for nobody else as long as it is open.
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
    let remedy = "wipe it if it is to be used";
    match Signature::of(disk) {
        // What is written there may be anything.
        Ok(Some(Signature { label, .. })) if !label.is_empty() => {
            let text = format!("it holds something with the label {label:?}; {remedy}");
            return Err(io::Error::other(text));
        }
        _ => {}
    }
    let end = length.saturating_sub(LOOKED_AT);
    if is_zero(&mut disk, 0, LOOKED_AT)? && is_zero(&mut disk, end, LOOKED_AT)? {
        return Ok(());
    }
    Err(io::Error::other(format!("it holds something; {remedy}")))
}

/// Gives up what a disk holds that is the volume of this label: a power cut afterwards leaves one that is made anew for
/// it.
pub(super) fn give_up(disk: &Disk, label: &str) -> io::Result<()> {
    let (file, _) = wipe::open(disk.sequence, &disk.device())?;
    mark(file, label)
}

/// Says on an empty disk for whom it is made.
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

/// From now on the volume of this key is what is on this disk. In memory that would be no more than what the disk
/// says, and so it is when it cannot be read.
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

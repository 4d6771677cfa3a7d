//! A whole disk as a user volume: found by its label and ID, and taken only if its first and last MiB are zero.
//!
//! The first write marks the disk with the first sector of an unfinished XFS with the volume's label; `mkfs.xfs` or the
//! LUKS header overwrites it. So a power cut leaves an empty disk, a disk marked for its volume, or the volume.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use corten_base::durable;
use uuid::Uuid;

use super::choose::{Facts, known_as};
use super::held::{Held, failed, have, named};
use super::known::{self, Seen};
use super::signature::{Signature, mark};
use super::{Trouble, UserVolume, WholeDisk};
use crate::disk::Disk;
use crate::zeros::{LOOKED_AT, is_zero};
use crate::{MIB, STATE, wipe};

/// The disk of this volume among those that were read, or else the first suitable disk, which is marked.
pub(super) fn find_or_take(
    volume: &UserVolume,
    wanted: &WholeDisk,
    facts: &Facts,
    seen: &[Seen],
) -> Result<Held, Trouble> {
    let id = &volume.id;
    let known = known::id(Path::new(STATE.target), &volume.key());
    if let Some(name) = known::disk_of(id, known, seen)? {
        let disk = named(name, facts);
        let alone = have(&disk)?;
        let held = Held::of(disk, alone).map_err(|error| failed(name, error))?;
        // The disk may have been wiped meanwhile.
        return match ids(volume, &held.open) {
            Ok(ids) if ids.is_empty() => Err(failed(name, "its content has just changed")),
            Ok(_) => Ok(held),
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

/// The id of a disk if it is this volume.
pub(super) fn ids(volume: &UserVolume, disk: &File) -> io::Result<Vec<Uuid>> {
    let known = known::id(Path::new(STATE.target), &volume.key());
    let found = Signature::of(disk)?;
    let own = found.filter(|found| found.is_of(&volume.id, known));
    Ok(own.map(|own| own.id).into_iter().collect())
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

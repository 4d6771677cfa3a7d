//! The target disk of an installation: checks it, writes it, and makes its STATE before its partitions become visible.
//!
//! `corten_installer::disk` defines the steps. This module holds the disk exclusively while they run.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use corten_config::kinds::Encryption;
use corten_installer::disk::{BIOS_SECTOR, Found, Ids, Plan, found};
use corten_installer::esp::{self, FatFile};
use corten_installer::grub::Code;
use corten_meta::Values;
use corten_supervisor::supervisor::Supervisor;
use corten_sys::blkpg;
use tokio::task::block_in_place;
use uuid::Uuid;

use super::alone::{Alone, lock_disk};
use super::attach::{Site, attach, unmount};
use super::disk::{self, Disk};
use super::table::{Marks, Table};
use super::{
    BUSY_PAUSE, SMALLEST_EPHEMERAL, STATE, STATE_LENGTH, encryption, is_of_a_node, while_busy, wipe,
};

/// A disk that may be installed to.
#[derive(Debug)]
pub struct Blank {
    disk: Disk,
    length: u64,
    over: Over,
    _alone: Alone,
}

/// The content that an installation may overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// No content: the disk must be empty.
    Nothing,
    /// Anything but the volumes of a node, which may have an owner.
    Foreign,
    /// Any content.
    Anything,
}

impl Blank {
    /// Claims a disk for an installation. It must be unused, must not carry this node, and must be empty or covered by
    /// `over`. Changes nothing.
    ///
    /// # Errors
    /// The reason why the disk is refused.
    pub fn take(disk: Disk, over: Over) -> Result<Blank, String> {
        let name = disk.name.clone();
        let told = |why: String| format!("cannot install to {name}: {why}");
        let carrier = disk::system_disk().map_err(|error| told(error.to_string()))?;
        if let Some(carrier) = carrier {
            return Err(told(format!(
                "this node is already on {}; upgrade it, or reset it first (`cortenctl reset`)",
                carrier.name
            )));
        }
        if disk::is_start_disk(&disk) {
            return Err(told(
                "this machine was started from it; use another disk".to_owned(),
            ));
        }
        if disk.is_read_only() {
            return Err(told("it is read-only".to_owned()));
        }
        let alone = lock_disk(&name).map_err(|error| told(error.to_string()))?;
        let (mut file, length) = open(&disk).map_err(&told)?;
        fits(length, disk.sector()).map_err(&told)?;
        check(&mut file, length, over).map_err(&told)?;
        Ok(Blank {
            disk,
            length,
            over,
            _alone: alone,
        })
    }

    /// The kernel's name of the disk.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.disk.name
    }

    /// Whether BIOS can start a system from the disk.
    ///
    /// # Errors
    /// It cannot; the text says why.
    pub fn check_bios(&self) -> Result<(), String> {
        match self.disk.sector() {
            BIOS_SECTOR => Ok(()),
            sector => Err(format!(
                "BIOS cannot start {}, which has sectors of {sector} bytes: use a disk with sectors of {BIOS_SECTOR} \
                 bytes, or UEFI",
                self.disk.name
            )),
        }
    }

    /// Plans the partitions. `image` bytes of the files are the unified kernel image. `grub` starts the disk on a machine
    /// with BIOS. `with_state` makes STATE now; otherwise the node makes it at its first start.
    ///
    /// # Errors
    /// The disk is too small, or a file cannot be read.
    pub fn plan(
        &self,
        files: &[FatFile],
        image: u64,
        grub: Option<&Code>,
        with_state: bool,
    ) -> Result<Plan, String> {
        let content = esp::content_of(files).map_err(|error| error.to_string())?;
        let (state, behind) = match with_state {
            true => (Some((STATE.name, STATE_LENGTH)), SMALLEST_EPHEMERAL),
            false => (None, STATE_LENGTH + SMALLEST_EPHEMERAL),
        };
        let unit = (self.length, self.disk.sector());
        let plan = Plan::new(unit, (content, image), state, behind)
            .map_err(|small| format!("{} is too small: {small}", self.disk.name))?;
        Ok(match grub {
            Some(code) => plan.with_grub(code),
            None => plan,
        })
    }

    /// Checks what would fail only after the former content is lost. `encryption` is that of STATE.
    ///
    /// # Errors
    /// META or STATE could not be written; the disk is unchanged.
    pub fn check_content(
        &self,
        meta: &Values,
        encryption: Option<&Encryption>,
    ) -> Result<(), String> {
        check_content(meta, encryption)
            .map_err(|why| format!("cannot install to {}: {why}", self.disk.name))
    }

    /// Clears the disk as far as needed, and writes everything but the partition table. The former content is lost.
    ///
    /// # Errors
    /// The disk has changed since it was claimed, and stays as it is; or it fails, and is marked as unfinished.
    pub fn write(&self, plan: &Plan, files: &[FatFile], meta: &Values) -> Result<(), String> {
        let told = |error: io::Error| told(&self.disk, "writing to", &error);
        let device = self.disk.device();
        let (mut file, length) = open(&self.disk)?;
        check_length(self.length, length)
            .and_then(|()| check(&mut file, length, self.over))
            .map_err(|why| format!("cannot install to {}: {why}", self.disk.name))?;
        let known = disk::extents(Path::new("/sys"), &self.disk.name);
        wipe::forget_all(&file, &known).map_err(told)?;
        if found(&mut file, length).map_err(told)? == Found::Something {
            drop(file);
            wipe::other_disk(self.disk.sequence, &device, &|| ()).map_err(told)?;
            file = open(&self.disk)?.0;
        }
        plan.begin(&mut file).map_err(told)?;
        let id = Uuid::new_v4().as_fields().0;
        plan.write(&mut file, files, meta, id).map_err(told)
    }

    /// Makes STATE, encrypted as requested, and has `fill` write the node's files into it. Returns whether STATE is
    /// encrypted.
    ///
    /// # Errors
    /// STATE cannot be made or filled; the disk is marked as unfinished.
    pub async fn make_state(
        &self,
        supervisor: &Supervisor,
        plan: &Plan,
        wanted: Option<&Encryption>,
        fill: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<bool, String> {
        let told = |error: io::Error| told(&self.disk, "making STATE on", &error);
        let parts = (1..).zip(plan.partitions());
        let found = parts.clone().find(|(_, part)| part.label == STATE.name);
        let Some((number, part)) = found else {
            return Err(format!("{}: no STATE was planned", self.disk.name));
        };
        let file = self.disk.open_to_write().map_err(told)?;
        blkpg::add(&file, number, part.start, part.size).map_err(told)?;
        let device = self.disk.partition(number).map_err(told)?;
        let site = Site {
            device: &device,
            marks: Marks::default(),
            give_up: &|| Ok(()),
        };
        let mut by = None;
        let made = attach(supervisor, &STATE, &site, wanted, &mut by).await;
        let target = Path::new(STATE.target);
        let filled = made.and_then(|()| block_in_place(|| fill(target)));
        let ended = block_in_place(|| {
            let unmounted = unmount(target);
            let closed = match by {
                Some(_) => encryption::close(STATE.name),
                None => Ok(()),
            };
            let forgotten = while_busy(BUSY_PAUSE, || blkpg::remove(&file, number));
            unmounted.and(closed).and(forgotten)
        });
        filled?;
        ended.map_err(told)?;
        Ok(by.is_some())
    }

    /// Writes the partition table. From then on, the disk carries the node. `encrypted` says whether STATE is
    /// encrypted; `None` if it was not made. `is_active` marks the partition of the protective MBR as active.
    ///
    /// # Errors
    /// The disk fails, and is marked as unfinished.
    pub fn finish(
        &self,
        plan: &Plan,
        encrypted: Option<bool>,
        is_active: bool,
    ) -> Result<(), String> {
        let ids = Ids {
            disk: Uuid::new_v4(),
            partitions: plan.partitions().iter().map(|_| Uuid::new_v4()).collect(),
        };
        let marks = Marks {
            is_made: encrypted.is_some(),
            is_encrypted: encrypted == Some(true),
        };
        let (mut file, _) = open(&self.disk)?;
        plan.finish(&mut file, &ids, marks.bits(), is_active)
            .map_err(|error| told(&self.disk, "writing to", &error))
    }
}

/// Describes a failure. A disk that is gone is the cause of any other error.
fn told(disk: &Disk, doing: &str, error: &io::Error) -> String {
    let name = &disk.name;
    if disk.is_there() {
        return format!("{doing} {name}: {error}");
    }
    format!(
        "{doing} {name}: the disk has disappeared ({error}), and holds no finished installation; connect it again, \
         and repeat the installation"
    )
}

/// Checks that the disk has room for any installation, before an image is fetched whose size is not known yet.
fn fits(length: u64, sector: u64) -> Result<(), String> {
    let least = Plan::new(
        (length, sector),
        (0, 0),
        None,
        STATE_LENGTH + SMALLEST_EPHEMERAL,
    );
    let fits = least.map(|_| ());
    fits.map_err(|small| format!("it is too small: {small}"))
}

fn check_length(before: u64, now: u64) -> Result<(), String> {
    if before == now {
        return Ok(());
    }
    Err(format!(
        "its size has changed from {before} to {now} bytes since it was checked; repeat the installation"
    ))
}

/// Checks that META and STATE can be written.
fn check_content(meta: &Values, encryption: Option<&Encryption>) -> Result<(), String> {
    corten_meta::encode(meta).map_err(|error| format!("META: {error}"))?;
    let Some(wanted) = encryption else {
        return Ok(());
    };
    encryption::check_keys(STATE.name, wanted).map_err(|why| {
        let name = STATE.name;
        format!("{name} {why}; correct the keys of the VolumeConfig {name}")
    })
}

fn open(disk: &Disk) -> Result<(File, u64), String> {
    let opened = while_busy(BUSY_PAUSE, || wipe::open(disk.sequence, &disk.device()));
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => "something on it is mounted or otherwise in use".to_owned(),
        _ => error.to_string(),
    })
}

/// Checks that an installation may overwrite the content of the disk.
fn check(file: &mut File, length: u64, over: Over) -> Result<(), String> {
    let found = found(file, length).map_err(|error| error.to_string())?;
    if found != Found::Something || over == Over::Anything {
        return Ok(());
    }
    let table = match Table::read(file) {
        Ok(table) => Some(table),
        Err(error) if over == Over::Foreign && has_table(file).unwrap_or(true) => {
            return Err(format!(
                "its partition table cannot be read ({error}), so it may belong to a node, which may have an owner; \
                 wipe the disk on another machine"
            ));
        }
        Err(_) => None,
    };
    let parts = table.iter().flat_map(Table::partitions);
    let names: Vec<String> = parts
        .map(|(name, extent)| match name {
            "" => format!("number {}", extent.number),
            name => name.to_owned(),
        })
        .collect();
    let is_nodes = names.iter().any(|name| is_of_a_node(name));
    let what = match names.as_slice() {
        [] => "it is not empty".to_owned(),
        names => format!("it has the partitions {}", names.join(", ")),
    };
    match over {
        Over::Foreign if is_nodes => Err(format!(
            "{what} of a node, which may have an owner; reset that node, or wipe the disk on another machine"
        )),
        Over::Foreign | Over::Anything => Ok(()),
        Over::Nothing => Err(format!(
            "{what}; set wipe: true, use another disk, or wipe it (`cortenctl wipe disk`)"
        )),
    }
}

/// Whether the disk has the signature of a partition table, at the place that its sector size gives (UEFI 2.10, section
/// 5.3.2).
fn has_table(file: &mut File) -> io::Result<bool> {
    for sector in [512, 4096] {
        let mut signature = [0; 8];
        file.seek(SeekFrom::Start(sector))?;
        file.read_exact(&mut signature)?;
        if signature == *b"EFI PART" {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;

//! Locks disks while volumes are made on them, so that a disk is not replaced under its name.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use corten_sys::blkpg;

use super::choose::Facts;
use super::partition::{Change, Plan, Wish};
use super::{Place, Trouble};
use crate::alone::{Alone, lock_disk};
use crate::disk::Disk;

/// A locked disk on which a volume is made. While it is open, no other disk can get its name.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) disk: Disk,
    /// The disk, open for reading.
    pub(super) open: File,
    _alone: Alone,
}

impl Held {
    pub(super) fn of(disk: Disk, alone: Alone) -> io::Result<Held> {
        Ok(Held {
            open: disk.open()?,
            disk,
            _alone: alone,
        })
    }

    /// The place of a volume with this device, opened as `opened`.
    pub(super) fn place(&self, device: &Path, opened: String) -> Place {
        Place {
            device: device.display().to_string(),
            opened,
            sequence: Some(self.disk.sequence),
        }
    }

    /// Holds the disk and plans the change.
    pub(super) fn plan(disk: Disk, alone: Alone, wish: &Wish<'_>) -> io::Result<(Held, Plan)> {
        let held = Held::of(disk, alone)?;
        let plan = Plan::on(&mut &held.open, held.disk.sector(), wish)?;
        Ok((held, plan))
    }

    /// Writes the table, tells the kernel of the partition and returns its device.
    pub(super) fn carry_out(&self, plan: &Plan) -> io::Result<PathBuf> {
        let (disk, extent) = (&self.disk, plan.extent);
        let known = disk.partition(extent.number);
        if !plan.writes() && known.is_ok() {
            return known;
        }
        let mut device = disk.open_to_write()?;
        if plan.writes() {
            plan.carry_out(&mut device, |device| device.sync_all())?;
        }
        match (plan.change, known) {
            (Change::Grown, Ok(_)) => {
                blkpg::resize(&device, extent.number, extent.start, extent.length)?;
            }
            (Change::None, Ok(_)) => {}
            (_, _) => blkpg::add(&device, extent.number, extent.start, extent.length)?,
        }
        disk.partition(extent.number)
    }
}

/// A failure of a disk.
pub(super) fn failed(disk: &str, why: impl Display) -> Trouble {
    Trouble::Failed(format!("{disk}: {why}"))
}

/// The disk with this name, with its sequence number if known.
pub(super) fn named(name: &str, facts: &Facts) -> Disk {
    let disk = facts.disk(&format!("/dev/{name}"));
    disk.unwrap_or_else(|| Disk::new(name, 0))
}

/// Locks a disk; fails while another thread changes it.
pub(super) fn have(disk: &Disk) -> Result<Alone, Trouble> {
    lock_disk(&disk.name).map_err(|error| Trouble::Busy(format!("{}: {error}", disk.name)))
}

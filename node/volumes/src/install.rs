//! The disk that the node is installed to: judged, written, and given its STATE before anybody sees a partition on it.
//!
//! `corten_installer::disk` knows the steps. What they are done to is here: a disk that nobody uses, and that nobody else
//! changes meanwhile.

use std::fs::File;
use std::path::Path;

use corten_config::kinds::Encryption;
use corten_installer::disk::{Found, Ids, Plan, found};
use corten_installer::esp::{self, FatFile};
use corten_meta::Values;
use corten_services::supervisor::Supervisor;
use corten_sys::{blkpg, mount};
use tokio::task::block_in_place;
use uuid::Uuid;

use super::alone::{Alone, alone};
use super::attach::{Site, attach};
use super::disk::{self, Disk};
use super::table::{Marks, Table};
use super::{
    BUSY_PAUSE, SMALLEST_EPHEMERAL, STATE, STATE_LENGTH, WIPEABLE, encryption, while_busy, wipe,
};

/// A disk on its way to become the one that carries the node.
#[derive(Debug)]
pub struct Blank {
    disk: Disk,
    length: u64,
    over: Over,
    _alone: Alone,
}

/// What a disk may hold that is installed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    Nothing,
    /// Anything but volumes of a node, which somebody may own.
    Foreign,
    /// Anything.
    Anything,
}

impl Blank {
    /// Takes a disk, if the node may be installed to it: nothing uses it, it does not carry this node, and it is empty or
    /// may be wiped. Nothing is changed.
    ///
    /// # Errors
    /// What is against it.
    pub fn take(disk: Disk, over: Over) -> Result<Blank, String> {
        let name = disk.name.clone();
        let told = |why: String| format!("{name} is not installed to: {why}");
        let carrier = disk::system_disk().map_err(|error| told(error.to_string()))?;
        if let Some(carrier) = carrier {
            return Err(told(format!(
                "this node is on {} already; upgrade it, or reset it first (`cortenctl reset`)",
                carrier.name
            )));
        }
        if disk::is_start_disk(&disk) {
            return Err(told(
                "this machine was started from it; name another disk".to_owned(),
            ));
        }
        if disk.is_read_only() {
            return Err(told("nothing can be written to it".to_owned()));
        }
        let alone = alone(&name).map_err(|error| told(error.to_string()))?;
        let (mut file, length) = open(&disk).map_err(&told)?;
        check(&mut file, length, over).map_err(&told)?;
        Ok(Blank {
            disk,
            length,
            over,
            _alone: alone,
        })
    }

    /// Its name, as the kernel has it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.disk.name
    }

    /// What goes where on it, `image` bytes of the files being the unified kernel image. `with_state`: STATE is made now,
    /// and not by the node at its first start.
    ///
    /// # Errors
    /// It is too small, or a file cannot be read.
    pub fn plan(&self, files: &[FatFile], image: u64, with_state: bool) -> Result<Plan, String> {
        let content = esp::content_of(files).map_err(|error| error.to_string())?;
        let (state, behind) = match with_state {
            true => (Some((STATE.name, STATE_LENGTH)), SMALLEST_EPHEMERAL),
            false => (None, STATE_LENGTH + SMALLEST_EPHEMERAL),
        };
        let unit = (self.length, self.disk.sector());
        Plan::new(unit, (content, image), state, behind)
            .map_err(|small| format!("{} is too small: {small}", self.disk.name))
    }

    /// Empties it as far as it has to be, and writes all but the partition table. What it held is lost.
    ///
    /// # Errors
    /// The disk's; it says of itself that it is unfinished.
    pub fn write(&self, plan: &Plan, files: &[FatFile], meta: &Values) -> Result<(), String> {
        let told = |error: std::io::Error| format!("writing to {}: {error}", self.disk.name);
        let device = self.disk.device();
        let (mut file, length) = open(&self.disk)?;
        check(&mut file, length, self.over)?;
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

    /// Makes STATE, encrypted as it is wanted, and has `fill` put into it what the node keeps there. True: it is
    /// encrypted.
    ///
    /// # Errors
    /// It cannot be made or filled; the disk says of itself that it is unfinished.
    pub async fn make_state(
        &self,
        supervisor: &Supervisor,
        plan: &Plan,
        wanted: Option<&Encryption>,
        fill: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<bool, String> {
        let told = |error: std::io::Error| format!("STATE on {}: {error}", self.disk.name);
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
            let unmounted = mount::unmount(target);
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

    /// Writes the partition table: with it, the disk is one that carries the node. `encrypted`: how STATE was made, if it
    /// was.
    ///
    /// # Errors
    /// The disk's; it says of itself that it is unfinished.
    pub fn finish(&self, plan: &Plan, encrypted: Option<bool>) -> Result<(), String> {
        let ids = Ids {
            disk: Uuid::new_v4(),
            partitions: plan.partitions().iter().map(|_| Uuid::new_v4()).collect(),
        };
        let marks = Marks {
            is_made: encrypted.is_some(),
            is_encrypted: encrypted == Some(true),
        };
        let (mut file, _) = open(&self.disk)?;
        plan.finish(&mut file, &ids, marks.bits())
            .map_err(|error| format!("writing to {}: {error}", self.disk.name))
    }
}

fn open(disk: &Disk) -> Result<(File, u64), String> {
    let opened = while_busy(BUSY_PAUSE, || wipe::open(disk.sequence, &disk.device()));
    opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => {
            "something on it is mounted or otherwise in use".to_owned()
        }
        _ => error.to_string(),
    })
}

/// Whether what is on it may go.
fn check(file: &mut File, length: u64, over: Over) -> Result<(), String> {
    let found = found(file, length).map_err(|error| error.to_string())?;
    if found != Found::Something || over == Over::Anything {
        return Ok(());
    }
    let table = Table::read(file).ok();
    let parts = table.iter().flat_map(Table::partitions);
    let names: Vec<String> = parts
        .map(|(name, extent)| match name {
            "" => format!("number {}", extent.number),
            name => name.to_owned(),
        })
        .collect();
    let is_nodes = names.iter().any(|name| WIPEABLE.contains(&name.as_str()));
    let what = match names.as_slice() {
        [] => "it holds something".to_owned(),
        names => format!("it has the partitions {}", names.join(", ")),
    };
    match over {
        Over::Foreign if is_nodes => Err(format!(
            "{what}, as that of a node, which somebody may own; reset that node, or wipe the disk elsewhere"
        )),
        Over::Foreign | Over::Anything => Ok(()),
        Over::Nothing => Err(format!(
            "{what}, and nobody said to wipe it; set wipe: true, name another disk, or wipe it \
             (`cortenctl wipe disk`)"
        )),
    }
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;

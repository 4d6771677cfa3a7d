//! That the node has made what is in a partition, kept in its entry of the partition table.
//!
//! A partition that begins with zeros was never finished, or has lost what it held. The first is made, the second is
//! damaged, and nothing else on the disk tells one from the other. It is written when what was made could be used, so
//! that a power cut in between leaves a volume without it, which gets it at the next boot; and taken away before the
//! partition is wiped. A volume that is a whole disk has no such entry: STATE knows its id from then on.

use std::io::{self, Read, Seek, Write};

use super::disk::Disk;
use super::table::{Extent, Table};
use crate::console;

/// Whether the node has made what is in the partition of this number.
///
/// # Errors
/// The table cannot be read.
pub(super) fn is_made(disk: &Disk, number: u32) -> io::Result<bool> {
    Ok(Table::read(&mut disk.open()?)?.is_made(number))
}

/// Says that it has; a volume that is there stays when that cannot be written. The caller has the disk alone.
pub(super) fn remember(volume: &str, disk: &Disk, number: u32) {
    let is_it = |_: &str, extent: Extent| extent.number == number;
    let done = disk
        .open_to_write()
        .and_then(|mut device| change(&mut device, true, is_it, |device| device.sync_all()));
    if let Err(error) = done {
        console::warn(&format!(
            "{volume} cannot be marked as made ({error}): if its beginning were lost, it would be taken for empty"
        ));
    }
}

/// Says that there is nothing any more in those partitions that are meant, by their names and where they lie: they are
/// about to be wiped. A disk without a table has none. The caller has the disk alone.
///
/// # Errors
/// It cannot be written.
pub(super) fn forget(disk: &Disk, is_meant: impl Fn(&str, Extent) -> bool) -> io::Result<()> {
    let mut device = disk.open_to_write()?;
    if Table::read(&mut device).is_err() {
        return Ok(());
    }
    change(&mut device, false, is_meant, |device| device.sync_all())
}

fn change<D: Read + Write + Seek>(
    device: &mut D,
    made: bool,
    is_meant: impl Fn(&str, Extent) -> bool,
    flush: impl Fn(&mut D) -> io::Result<()>,
) -> io::Result<()> {
    let mut table = Table::read(device)?;
    let partitions = table.partitions();
    let meant = partitions.filter(|(name, extent)| is_meant(name, *extent));
    let numbers: Vec<u32> = meant.map(|(_, extent)| extent.number).collect();
    let mut is_changed = false;
    for number in numbers {
        is_changed |= table.set_made(number, made);
    }
    if is_changed {
        table.write(device, flush)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Cursor;

    use super::*;
    use crate::volumes::table::TYPE_LINUX;

    #[test]
    fn a_mark_is_of_one_partition_and_written_once() {
        let mut disk = Cursor::new(vec![0; 16 << 20]);
        let mut table = Table::new(&mut disk, 512).unwrap();
        for name in ["STATE", "EPHEMERAL"] {
            table.append(name, TYPE_LINUX, Some(2 << 20)).unwrap();
        }
        table.write(&mut disk, |_| Ok(())).unwrap();
        let writes = Cell::new(0);
        let mut set = |made, name: &str| {
            let count = |_: &mut Cursor<Vec<u8>>| {
                writes.set(writes.get() + 1);
                Ok(())
            };
            change(&mut disk, made, |other, _| other == name, count).unwrap();
            let table = Table::read(&mut disk).unwrap();
            ([1, 2].map(|number| table.is_made(number)), writes.take())
        };
        assert_eq!(set(false, "STATE"), ([false, false], 0));
        assert_eq!(set(true, "EPHEMERAL"), ([false, true], 2));
        assert_eq!(set(true, "EPHEMERAL"), ([false, true], 0));
        assert_eq!(set(true, "META"), ([false, true], 0));
        assert_eq!(set(true, "STATE"), ([true, true], 2));
        assert_eq!(set(false, "EPHEMERAL"), ([true, false], 2));
    }
}

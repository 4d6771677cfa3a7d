//! Marks in the partition table that the node has made a partition's content, and that the content was encrypted.
//!
//! Only the mark tells an unfinished partition, which is made, from a damaged one, which is never overwritten. It is
//! set once the volume is usable and cleared before a wipe. For a volume on a whole disk, STATE stores its ID instead.

use std::io::{self, Read, Seek, Write};

use corten_base::console;

use super::disk::Disk;
use super::table::{Extent, Marks, Table};

/// The marks of the partition with this number.
///
/// # Errors
/// The table cannot be read.
pub(super) fn marks(disk: &Disk, number: u32) -> io::Result<Marks> {
    Ok(Table::read(&mut disk.open()?)?.marks(number))
}

/// Marks a volume as usable and, if so, as encrypted. A failure to write the mark is only logged. The caller must hold
/// the disk's lock.
pub(super) fn remember(volume: &str, disk: &Disk, number: u32, is_encrypted: bool) {
    let is_it = |_: &str, extent: Extent| extent.number == number;
    let marks = Marks {
        is_made: true,
        is_encrypted,
    };
    let done = disk
        .open_to_write()
        .and_then(|mut device| change(&mut device, marks, is_it, |device| device.sync_all()));
    if let Err(error) = done {
        console::warn(&format!(
            "{volume} cannot be marked as created ({error}): if it loses its first sectors, it counts as empty"
        ));
    }
}

/// Clears the marks of the selected partitions, which are about to be wiped. A disk without a table has none. The
/// caller must hold the disk's lock.
///
/// # Errors
/// The table cannot be written.
pub(super) fn forget(disk: &Disk, is_meant: impl Fn(&str, Extent) -> bool) -> io::Result<()> {
    let mut device = disk.open_to_write()?;
    if Table::read(&mut device).is_err() {
        return Ok(());
    }
    let none = Marks::default();
    change(&mut device, none, is_meant, |device| device.sync_all())
}

fn change<D: Read + Write + Seek>(
    device: &mut D,
    marks: Marks,
    is_meant: impl Fn(&str, Extent) -> bool,
    flush: impl Fn(&mut D) -> io::Result<()>,
) -> io::Result<()> {
    let mut table = Table::read(device)?;
    let partitions = table.partitions();
    let meant = partitions.filter(|(name, extent)| is_meant(name, *extent));
    let numbers: Vec<u32> = meant.map(|(_, extent)| extent.number).collect();
    let mut is_changed = false;
    for number in numbers {
        is_changed |= table.set_marks(number, marks);
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
    use crate::table::TYPE_LINUX;

    #[test]
    fn partition_mark_is_per_partition_and_written_once() {
        let mut disk = Cursor::new(vec![0; 16 << 20]);
        let mut table = Table::new(&mut disk, 512).unwrap();
        for name in ["STATE", "EPHEMERAL"] {
            table.append(name, TYPE_LINUX, Some(2 << 20)).unwrap();
        }
        table.write(&mut disk, |_| Ok(())).unwrap();
        let writes = Cell::new(0);
        let mut set = |marks, name: &str| {
            let count = |_: &mut Cursor<Vec<u8>>| {
                writes.set(writes.get() + 1);
                Ok(())
            };
            change(&mut disk, marks, |other, _| other == name, count).unwrap();
            let table = Table::read(&mut disk).unwrap();
            ([1, 2].map(|number| table.marks(number)), writes.take())
        };
        let none = Marks::default();
        let made = Marks {
            is_made: true,
            ..none
        };
        let encrypted = Marks {
            is_encrypted: true,
            ..made
        };
        assert_eq!(set(none, "STATE"), ([none, none], 0));
        assert_eq!(set(made, "EPHEMERAL"), ([none, made], 2));
        assert_eq!(set(made, "EPHEMERAL"), ([none, made], 0));
        assert_eq!(set(made, "META"), ([none, made], 0));
        assert_eq!(set(encrypted, "STATE"), ([encrypted, made], 2));
        assert_eq!(set(encrypted, "EPHEMERAL"), ([encrypted, encrypted], 2));
        assert_eq!(set(none, "EPHEMERAL"), ([encrypted, none], 2));
    }
}

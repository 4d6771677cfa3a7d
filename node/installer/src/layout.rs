//! The partitions of a node's disk that a boot needs, in their order. The image builder writes the same layout to a
//! disk image; the node adds its own volumes after them.

use uuid::{Uuid, uuid};

/// EFI system partition.
pub const TYPE_EFI: Uuid = uuid!("C12A7328-F81F-11D2-BA4B-00A0C93EC93B");
/// Partition of GRUB's core image.
pub const TYPE_BIOS: Uuid = uuid!("21686148-6449-6E6F-744E-656564454649");
/// Linux data.
pub const TYPE_LINUX: Uuid = uuid!("0FC63DAF-8483-4772-8E79-3D69D8477DE4");

const MIB: u64 = 1 << 20;
/// Alignment of partitions, in bytes.
pub const ALIGNMENT: u64 = MIB;
/// Images that fit the EFI partition: the running one, the next one, and a third while one is replaced.
const IMAGES: u64 = 3;
/// Smallest EFI partition, in bytes: room for images that grow, and the minimum of firmware vendors and other systems.
const SMALLEST_ESP: u64 = 256 * MIB;
/// The same on disks with 4096-byte sectors, where FAT32 needs more space.
const SMALLEST_ESP_4096: u64 = 320 * MIB;
/// Attribute of the BIOS partition: legacy BIOS bootable.
const LEGACY_BOOT: u64 = 1 << 2;

/// A partition of the layout. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Name in the partition table.
    pub label: &'static str,
    /// Partition type.
    pub kind: Uuid,
    /// Offset on the disk.
    pub start: u64,
    /// Size of the partition.
    pub size: u64,
    /// Attributes of its table entry.
    pub attributes: u64,
}

/// Size of an EFI partition with `content` bytes in it, `image` bytes of which are the unified kernel image. `sector`
/// is the sector size of the disk. All are in bytes.
#[must_use]
pub fn esp_size(content: u64, image: u64, sector: u64) -> u64 {
    let room = image.saturating_mul(IMAGES - 1);
    let smallest = match sector {
        4096 => SMALLEST_ESP_4096,
        _ => SMALLEST_ESP,
    };
    let size = crate::esp::size_of(content.saturating_add(room)).max(smallest);
    size.next_multiple_of(64 * MIB)
}

/// Partitions from offset `start` on, with an EFI partition of `esp` bytes. `last` is the name and size of a partition
/// after them.
#[must_use]
pub fn layout(start: u64, esp: u64, last: Option<(&'static str, u64)>) -> Vec<Partition> {
    let bios = start.saturating_add(esp);
    let meta = bios.saturating_add(MIB);
    let mut layout = vec![
        Partition {
            label: "EFI",
            kind: TYPE_EFI,
            start,
            size: esp,
            attributes: 0,
        },
        Partition {
            label: "BIOS",
            kind: TYPE_BIOS,
            start: bios,
            size: MIB,
            attributes: LEGACY_BOOT,
        },
        Partition {
            label: "META",
            kind: TYPE_LINUX,
            start: meta,
            size: corten_meta::PARTITION,
            attributes: 0,
        },
    ];
    layout.extend(last.map(|(label, size)| {
        Partition {
            label,
            kind: TYPE_LINUX,
            start: meta
                .saturating_add(corten_meta::PARTITION)
                .next_multiple_of(ALIGNMENT),
            size: size.next_multiple_of(ALIGNMENT),
            attributes: 0,
        }
    }));
    layout
}

//! What a disk of the node has on it: the partitions of the boot, in their order. The image builder writes the same to a
//! disk image, and the node adds its own volumes behind.

use uuid::{Uuid, uuid};

/// EFI system partition.
pub const TYPE_EFI: Uuid = uuid!("C12A7328-F81F-11D2-BA4B-00A0C93EC93B");
/// Where GRUB keeps its core image.
pub const TYPE_BIOS: Uuid = uuid!("21686148-6449-6E6F-744E-656564454649");
/// Linux data.
pub const TYPE_LINUX: Uuid = uuid!("0FC63DAF-8483-4772-8E79-3D69D8477DE4");

const MIB: u64 = 1 << 20;
/// Of partitions, in bytes.
pub const ALIGNMENT: u64 = MIB;
/// The EFI partition holds the running image and the next one, and a third while one is being replaced.
const IMAGES: u64 = 3;
/// Room for images that grow; also what firmware vendors and other systems take as the least.
const SMALLEST_ESP: u64 = 256 * MIB;
/// The same on disks of 4096-byte sectors, where FAT32 takes more.
const SMALLEST_ESP_4096: u64 = 320 * MIB;
/// Attribute of the BIOS partition: legacy BIOS bootable.
const LEGACY_BOOT: u64 = 1 << 2;

/// A partition of the layout, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its name in the table.
    pub label: &'static str,
    /// Its type.
    pub kind: Uuid,
    /// Where it starts.
    pub start: u64,
    /// How long it is.
    pub size: u64,
    /// What its entry says besides.
    pub attributes: u64,
}

/// The length of an EFI partition in bytes, when it has to hold so much, of which `image` bytes are the unified kernel
/// image. `sector`: the unit of the disk.
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

/// The partitions from `start` on, with an EFI partition of `esp` bytes. `last`: the name and the length of one behind
/// them.
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

//! Detects the content of a block device from its first bytes. No I/O.
//!
//! It knows the formats a Kubernetes node meets: file systems, volume containers and swap. The content is hostile
//! input: every read is bounds-checked, and only the position of a magic is trusted.

use crate::encode::uuid;

/// Number of bytes the probe needs. The superblock of btrfs, at 64 KiB, comes last.
pub const HEAD: usize = 68 * 1024;

/// A file system or other content of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// `ID_FS_TYPE`: `xfs`, `ext4`, `crypto_LUKS`, ...
    pub kind: &'static str,
    /// `ID_FS_USAGE`: `filesystem`, `raid`, `crypto`, `other`.
    pub usage: &'static str,
    /// The identifier in the format's own notation.
    pub uuid: Option<String>,
    /// The label; `None` if empty.
    pub label: Option<String>,
    /// Version of the format, if the format has several.
    pub version: Option<&'static str>,
}

/// Detects the content of a device; `None` if it is unknown.
pub fn content(head: &[u8]) -> Option<Content> {
    // Containers first: the content inside may be visible through them.
    [
        luks, lvm, raid, verity, swap, xfs, ext, btrfs, squashfs, erofs, iso9660, exfat, fat,
    ]
    .iter()
    .find_map(|probe| probe(head))
}

fn luks(head: &[u8]) -> Option<Content> {
    let version = at(head, 0, 8)?.strip_prefix(b"LUKS\xba\xbe")?;
    let version = match version {
        [0, 1] => "1",
        [0, 2] => "2",
        _ => return None,
    };
    let label = if version == "2" {
        text(at(head, 24, 48)?)
    } else {
        None
    };
    let uuid = text(at(head, 168, 40)?);
    Some(Content {
        kind: "crypto_LUKS",
        usage: "crypto",
        uuid,
        label,
        version: Some(version),
    })
}

fn lvm(head: &[u8]) -> Option<Content> {
    let sector = (0..4)
        .map(|n| n * 512)
        .find(|o| at(head, *o, 8) == Some(b"LABELONE"))?;
    if at(head, sector + 24, 8) != Some(b"LVM2 001") {
        return None;
    }
    let header = sector + usize::try_from(le32(head, sector + 20)?).ok()?;
    let mut id = text(at(head, header, 32)?).filter(|id| id.len() == 32 && id.is_ascii())?;
    for position in [26, 22, 18, 14, 10, 6] {
        id.insert(position, '-');
    }
    Some(Content {
        kind: "LVM2_member",
        usage: "raid",
        uuid: Some(id),
        version: Some("LVM2 001"),
        label: None,
    })
}

/// Linux software RAID with metadata at the start (1.1 and 1.2).
fn raid(head: &[u8]) -> Option<Content> {
    let found = |o: usize| le32(head, o) == Some(0xa92b_4efc) && le32(head, o + 4) == Some(1);
    let (offset, version) = if found(4096) {
        (4096, "1.2")
    } else if found(0) {
        (0, "1.1")
    } else {
        return None;
    };
    Some(Content {
        kind: "linux_raid_member",
        usage: "raid",
        uuid: uuid(at(head, offset + 16, 16)?),
        label: text(at(head, offset + 32, 32)?),
        version: Some(version),
    })
}

fn verity(head: &[u8]) -> Option<Content> {
    if at(head, 0, 8)? != b"verity\0\0" {
        return None;
    }
    let uuid = uuid(at(head, 16, 16)?);
    Some(Content {
        kind: "DM_verity_hash",
        usage: "crypto",
        uuid,
        ..Content::default()
    })
}

fn swap(head: &[u8]) -> Option<Content> {
    // The magic is at the end of the first page, whose size depends on the machine.
    let found = [4096, 8192, 16384, 65536]
        .iter()
        .any(|page| at(head, page - 10, 10) == Some(b"SWAPSPACE2"));
    // Version 1 is the only one since 1999.
    if !found || le32(head, 1024) != Some(1) {
        return None;
    }
    Some(Content {
        kind: "swap",
        usage: "other",
        uuid: uuid(at(head, 1036, 16)?),
        label: text(at(head, 1052, 16)?),
        version: Some("1"),
    })
}

fn xfs(head: &[u8]) -> Option<Content> {
    if at(head, 0, 4)? != b"XFSB" {
        return None;
    }
    let (uuid, label) = (uuid(at(head, 32, 16)?), text(at(head, 108, 12)?));
    Some(Content {
        kind: "xfs",
        usage: "filesystem",
        uuid,
        label,
        version: None,
    })
}

/// ext2, ext3 and ext4, distinguished by their feature bits.
fn ext(head: &[u8]) -> Option<Content> {
    if at(head, 1024 + 56, 2)? != [0x53, 0xef] {
        return None;
    }
    let (compatible, incompatible) = (le32(head, 1024 + 92)?, le32(head, 1024 + 96)?);
    const JOURNAL_DEVICE: u32 = 0x8;
    if incompatible & JOURNAL_DEVICE != 0 {
        return None;
    }
    // Extents, 64 bit, flexible groups and later features; ext3 has none of them.
    let modern = incompatible & !0x16 != 0 || le32(head, 1024 + 100)? & !0x7 != 0;
    let kind = match (modern, compatible & 0x4 != 0) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    };
    Some(Content {
        kind,
        usage: "filesystem",
        uuid: uuid(at(head, 1024 + 104, 16)?),
        label: text(at(head, 1024 + 120, 16)?),
        version: Some("1.0"),
    })
}

fn btrfs(head: &[u8]) -> Option<Content> {
    if at(head, 65536 + 64, 8)? != b"_BHRfS_M" {
        return None;
    }
    let (uuid, label) = (
        uuid(at(head, 65536 + 32, 16)?),
        text(at(head, 65536 + 299, 256)?),
    );
    Some(Content {
        kind: "btrfs",
        usage: "filesystem",
        uuid,
        label,
        version: None,
    })
}

fn squashfs(head: &[u8]) -> Option<Content> {
    (at(head, 0, 4)? == b"hsqs" && at(head, 28, 2)? == [4, 0]).then_some(Content {
        kind: "squashfs",
        usage: "filesystem",
        version: Some("4.0"),
        ..Content::default()
    })
}

fn erofs(head: &[u8]) -> Option<Content> {
    if le32(head, 1024)? != 0xe0f5_e1e2 {
        return None;
    }
    let (uuid, label) = (
        uuid(at(head, 1024 + 48, 16)?),
        text(at(head, 1024 + 64, 16)?),
    );
    Some(Content {
        kind: "erofs",
        usage: "filesystem",
        uuid,
        label,
        version: None,
    })
}

/// The identifier is the volume's modification time, else its creation time.
fn iso9660(head: &[u8]) -> Option<Content> {
    const VOLUME: usize = 32768;
    if at(head, VOLUME, 6)? != b"\x01CD001" {
        return None;
    }
    let date = |offset| {
        let digits = std::str::from_utf8(at(head, VOLUME + offset, 16)?).ok()?;
        let real = digits.bytes().all(|b| b.is_ascii_digit()) && digits.bytes().any(|b| b != b'0');
        let mut date = digits.to_owned();
        for position in [14, 12, 10, 8, 6, 4] {
            if real {
                date.insert(position, '-');
            }
        }
        real.then_some(date)
    };
    Some(Content {
        kind: "iso9660",
        usage: "filesystem",
        uuid: date(830).or_else(|| date(813)),
        label: text(at(head, VOLUME + 40, 32)?),
        version: None,
    })
}

fn exfat(head: &[u8]) -> Option<Content> {
    if at(head, 3, 8)? != b"EXFAT   " {
        return None;
    }
    let uuid = serial(le32(head, 100)?);
    Some(Content {
        kind: "exfat",
        usage: "filesystem",
        uuid,
        ..Content::default()
    })
}

/// FAT has no magic of its own: the whole parameter block must be plausible.
pub fn fat(head: &[u8]) -> Option<Content> {
    let boot = at(head, 0, 512)?;
    let byte = |offset: usize| boot.get(offset).copied().unwrap_or_default();
    let sector = u16::from_le_bytes([byte(11), byte(12)]);
    let plausible = at(boot, 510, 2)? == [0x55, 0xaa]
        && matches!(byte(0), 0xeb | 0xe9)
        && matches!(sector, 512 | 1024 | 2048 | 4096)
        && byte(13).is_power_of_two()
        && u16::from_le_bytes([byte(14), byte(15)]) > 0
        && matches!(byte(16), 1 | 2)
        && (byte(21) == 0xf0 || byte(21) >= 0xf8);
    if !plausible {
        return None;
    }
    // FAT32 has no 16-bit count of sectors per table.
    let wide = byte(22) == 0 && byte(23) == 0;
    let (signature, version) = match (wide, at(boot, 54, 8)?) {
        (true, _) => (66, "FAT32"),
        (false, b"FAT12   ") => (38, "FAT12"),
        (false, _) => (38, "FAT16"),
    };
    // Signature 0x28 or 0x29 precedes the extended fields; only 0x29 has a label.
    let (uuid, label) = match byte(signature) {
        0x28 => (serial(le32(boot, signature + 1)?), None),
        0x29 => (
            serial(le32(boot, signature + 1)?),
            text(at(boot, signature + 5, 11)?),
        ),
        _ => (None, None),
    };
    let label = label.filter(|label| label != "NO NAME");
    Some(Content {
        kind: "vfat",
        usage: "filesystem",
        uuid,
        label,
        version: Some(version),
    })
}

fn serial(number: u32) -> Option<String> {
    (number != 0).then(|| format!("{:04X}-{:04X}", number >> 16, number & 0xffff))
}

/// Text padded with NULs or spaces; `None` when empty.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..end)?).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

pub fn at(bytes: &[u8], offset: usize, length: usize) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(length)?)
}

pub fn le32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(at(bytes, offset, 4)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;

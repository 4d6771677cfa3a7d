//! Partition tables, parsed from the first bytes of a disk, at most [`HEAD`]. No I/O; the disk is hostile input.
//!
//! [`HEAD`]: crate::probe::HEAD

use crate::encode::uuid;
use crate::probe::{at, fat, le32};

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// `gpt` or `dos`.
    pub kind: &'static str,
    /// Identifier of the disk.
    pub uuid: Option<String>,
}

/// One entry of a partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// `PARTUUID`: a GUID, or the disk identifier and the partition number.
    pub uuid: String,
    /// Partition type: a GUID, or a number such as `0x83`.
    pub kind: String,
    /// Name of the partition. Only a GPT has names; `None` for an empty one.
    pub name: Option<String>,
}

/// Offset of the GPT header: the second sector, for both sector sizes.
fn gpt(head: &[u8]) -> Option<usize> {
    [512, 4096]
        .into_iter()
        .find(|sector| at(head, *sector, 8) == Some(b"EFI PART"))
}

/// Detects the partition table.
pub fn table(head: &[u8]) -> Option<Table> {
    if let Some(header) = gpt(head) {
        return Some(Table {
            kind: "gpt",
            uuid: guid(at(head, header + 56, 16)?),
        });
    }
    let entries = at(head, 446, 64)?;
    let plausible = at(head, 510, 2) == Some(&[0x55, 0xaa])
        && entries
            .chunks(16)
            .all(|e| matches!(e.first(), Some(0 | 0x80)))
        && entries
            .chunks(16)
            .any(|e| e.get(4).is_some_and(|kind| *kind != 0));
    if !plausible || fat(head).is_some() {
        return None;
    }
    let id = le32(head, 440)?;
    Some(Table {
        kind: "dos",
        uuid: (id != 0).then(|| format!("{id:08x}")),
    })
}

/// The entry of partition `number`, counted from 1, in the partition table of the disk. Logical partitions of a dos
/// table have no type here, because their entries are spread over the disk.
pub fn partition(head: &[u8], number: u32) -> Option<Partition> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    let Some(sector) = gpt(head) else {
        let disk = table(head)?.uuid?;
        let entry = at(head, 446, 64)?.chunks(16).nth(index);
        let kind = entry
            .and_then(|entry| entry.get(4))
            .map(|kind| format!("{kind:#x}"));
        return Some(Partition {
            uuid: format!("{disk}-{number:02x}"),
            kind: kind.unwrap_or_default(),
            name: None,
        });
    };
    let first = usize::try_from(le32(head, sector + 72)?)
        .ok()?
        .checked_mul(sector)?;
    let size = usize::try_from(le32(head, sector + 84)?)
        .ok()
        .filter(|size| *size >= 128)?;
    let entry = at(head, first.checked_add(size.checked_mul(index)?)?, 128)?;
    Some(Partition {
        uuid: guid(entry.get(16..)?)?,
        kind: guid(entry)?,
        name: name(entry.get(56..)?),
    })
}

/// A partition's name in a GPT: UTF-16, little-endian, up to the first zero.
fn name(bytes: &[u8]) -> Option<String> {
    let (pairs, _) = bytes.as_chunks();
    let units = pairs.iter().map(|pair| u16::from_le_bytes(*pair));
    let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
    (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
}

/// A GUID in a GPT: the first three fields are little-endian.
fn guid(bytes: &[u8]) -> Option<String> {
    let mut straight: Vec<u8> = bytes.get(..16)?.to_vec();
    straight.get_mut(0..4)?.reverse();
    straight.get_mut(4..6)?.reverse();
    straight.get_mut(6..8)?.reverse();
    uuid(&straight)
}

#[cfg(test)]
mod tests {
    use super::{Partition, Table, partition, table};

    const ID: [u8; 16] = [
        0x5e, 0x3b, 0x0c, 0x5a, 0x8f, 0x0d, 0x4d, 0x0c, 0x9d, 0x0b, 0x6a, 0x2c, 0x3f, 0x31, 0x7e,
        0x10,
    ];

    fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; crate::probe::HEAD];
        for (offset, bytes) in parts {
            head[*offset..*offset + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn partition_tables_are_identified() {
        let gpt = |sector: usize| head(&[(sector, b"EFI PART"), (sector + 56, &ID)]);
        let expected = Table {
            kind: "gpt",
            uuid: Some("5a0c3b5e-0d8f-0c4d-9d0b-6a2c3f317e10".into()),
        };
        assert_eq!(table(&gpt(512)), Some(expected.clone()));
        assert_eq!(table(&gpt(4096)), Some(expected));
        let dos = [
            (440, &[0x78, 0x56, 0x34, 0x12][..]),
            (450, &[0x83]),
            (510, &[0x55, 0xaa]),
        ];
        assert_eq!(
            table(&head(&dos)),
            Some(Table {
                kind: "dos",
                uuid: Some("12345678".into())
            })
        );
        assert_eq!(table(&head(&[(510, &[0x55, 0xaa])])), None);
        assert_eq!(table(&[]), None);
    }

    #[test]
    fn partition_entries_are_identified() {
        const SWAPPED: &str = "5a0c3b5e-0d8f-0c4d-9d0b-6a2c3f317e10";
        let mut gpt = head(&[
            (512, b"EFI PART"),
            (584, &[2]),
            (596, &[128]),
            (1024 + 128, &[1; 16]),
            (1024 + 144, &ID),
            (1024 + 184, b"S\0T\0\xe4\0\0\0X\0"),
        ]);
        let mut expected = Partition {
            uuid: SWAPPED.into(),
            kind: "01010101-0101-0101-0101-010101010101".into(),
            name: Some("STä".into()),
        };
        assert_eq!(partition(&gpt, 2), Some(expected.clone()));
        gpt[1024 + 184] = 0;
        expected.name = None;
        assert_eq!(partition(&gpt, 2), Some(expected));
        assert_eq!(
            [
                partition(&gpt, 0),
                partition(&gpt, 1),
                partition(&gpt, u32::MAX)
            ],
            [const { None }; 3]
        );
        gpt[596] = 1;
        assert_eq!(partition(&gpt, 2), None, "entries are at least 128 bytes");
        let dos = [
            (440, &[0x78, 0x56, 0x34, 0x12][..]),
            (450, &[0x83]),
            (510, &[0x55, 0xaa]),
        ];
        let entry = |uuid: &str, kind: &str| Partition {
            uuid: uuid.into(),
            kind: kind.into(),
            name: None,
        };
        assert_eq!(
            partition(&head(&dos), 1),
            Some(entry("12345678-01", "0x83"))
        );
        assert_eq!(partition(&head(&dos), 5), Some(entry("12345678-05", "")));
    }
}

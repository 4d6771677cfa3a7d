//! Reads a file in the root directory of a UDF disc, without the kernel's driver.
//!
//! ECMA-167, 3rd edition, parts 3 and 4; OSTA Universal Disk Format 2.01. Only discs with one plain partition are read,
//! as tools write them for a virtual drive.

use std::fmt;
use std::io::{self, ErrorKind};

/// Size of a sector and of a logical block in bytes.
const SECTOR: u64 = 2048;
/// Sector of the anchor, which points to the descriptors of the volume.
const ANCHOR: u64 = 256;
/// Size limit of a file or directory in bytes.
const LARGEST: u64 = 1 << 20;
/// Sector limit of the volume's descriptors.
const MOST_DESCRIPTORS: u64 = 64;
/// Size of the fixed part of an entry in a directory.
const ENTRY: usize = 38;

/// Tags of descriptors.
mod tag {
    pub(super) const ANCHOR: u16 = 2;
    pub(super) const PARTITION: u16 = 5;
    pub(super) const LOGICAL_VOLUME: u16 = 6;
    pub(super) const TERMINATOR: u16 = 8;
    pub(super) const FILE_SET: u16 = 256;
    pub(super) const IDENTIFIER: u16 = 257;
    pub(super) const FILE: u16 = 261;
    pub(super) const EXTENDED_FILE: u16 = 266;
}

/// Fills the buffer from an offset of the disc in bytes.
pub type Disc<'a> = &'a dyn Fn(&mut [u8], u64) -> io::Result<()>;

/// A disc with one partition.
#[derive(Clone, Copy)]
pub struct Udf<'a> {
    disc: Disc<'a>,
    /// First sector and number of sectors of the partition.
    partition: (u64, u64),
    /// Block of the root directory.
    root: u64,
}

impl fmt::Debug for Udf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Udf").finish_non_exhaustive()
    }
}

impl<'a> Udf<'a> {
    /// Opens a disc; `None` if it has no UDF.
    ///
    /// # Errors
    /// The disc cannot be read, or its structures are broken or of another kind.
    pub fn open(disc: Disc<'a>) -> Result<Option<Udf<'a>>, String> {
        let anchor = match sector(disc, ANCHOR) {
            Ok(anchor) => anchor,
            // A disc of another kind may be shorter.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        if tag_of(&anchor) != Some(tag::ANCHOR) {
            return Ok(None);
        }
        Udf::of(disc, &anchor)?.ok_or_else(broken).map(Some)
    }

    /// Reads a file of the root directory; `None` if there is none of this name.
    ///
    /// # Errors
    /// The disc cannot be read, or its structures are broken or of another kind.
    pub fn file(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let root = self.content(self.root)?;
        match find(&root, name).ok_or_else(broken)? {
            Some(file) => self.content(file).map(Some),
            None => Ok(None),
        }
    }

    /// The volume of an anchor; `None` if it is broken.
    fn of(disc: Disc<'a>, anchor: &[u8]) -> Result<Option<Udf<'a>>, String> {
        let (Some(length), Some(first)) = (u32_at(anchor, 16), u32_at(anchor, 20)) else {
            return Ok(None);
        };
        let (mut partition, mut files) = (None, None);
        for number in 0..(length / SECTOR).min(MOST_DESCRIPTORS) {
            let descriptor = sector(disc, first + number).map_err(|error| error.to_string())?;
            match tag_of(&descriptor) {
                Some(tag::PARTITION) => {
                    partition = u32_at(&descriptor, 188).zip(u32_at(&descriptor, 192));
                }
                Some(tag::LOGICAL_VOLUME) => files = file_set(&descriptor),
                Some(tag::TERMINATOR) | None => break,
                Some(_) => {}
            }
        }
        let (Some(partition), Some(files)) = (partition, files) else {
            return Ok(None);
        };
        let mut udf = Udf {
            disc,
            partition,
            root: 0,
        };
        let Some(at) = udf.sector_at(files) else {
            return Ok(None);
        };
        let files = sector(disc, at).map_err(|error| error.to_string())?;
        let root = u32_at(&files, 404).filter(|_| tag_of(&files) == Some(tag::FILE_SET));
        Ok(root.map(|root| {
            udf.root = root;
            udf
        }))
    }

    /// Sector of a block in the partition.
    fn sector_at(&self, block: u64) -> Option<u64> {
        let (first, count) = self.partition;
        (block < count).then(|| first + block)
    }

    /// Content of the file or directory with its entry in this block.
    fn content(&self, block: u64) -> Result<Vec<u8>, String> {
        let at = self.sector_at(block).ok_or_else(broken)?;
        let entry = sector(self.disc, at).map_err(|error| error.to_string())?;
        let (length, pieces) = pieces(&entry).ok_or_else(broken)?;
        if length > LARGEST {
            return Err(format!("a file is larger than {} KiB", LARGEST >> 10));
        }
        let mut content = Vec::new();
        for piece in pieces {
            let rest = length.saturating_sub(content.len() as u64);
            let bytes = match piece {
                Piece::Inline(bytes) => bytes.to_vec(),
                Piece::Extent { block, length } => {
                    let blocks = length.div_ceil(SECTOR).saturating_sub(1);
                    let last = block
                        .checked_add(blocks)
                        .and_then(|last| self.sector_at(last));
                    let (Some(first), Some(_)) = (self.sector_at(block), last) else {
                        return Err(broken());
                    };
                    let length = usize::try_from(length.min(rest)).unwrap_or_default();
                    let mut bytes = vec![0; length];
                    let read = (self.disc)(&mut bytes, first * SECTOR);
                    read.map_err(|error| error.to_string())?;
                    bytes
                }
            };
            let rest = usize::try_from(rest).unwrap_or_default();
            content.extend(bytes.into_iter().take(rest));
        }
        let is_whole = content.len() as u64 == length;
        is_whole.then_some(content).ok_or_else(broken)
    }
}

fn broken() -> String {
    "the structures of the UDF disc are broken, or newer than UDF 2.01".to_owned()
}

/// Block of the file set; `None` if the logical volume does not consist of one plain partition.
fn file_set(descriptor: &[u8]) -> Option<u64> {
    let is_plain = u32_at(descriptor, 212)? == SECTOR
        && u32_at(descriptor, 268)? == 1
        && descriptor.get(440..442)? == [1, 6];
    is_plain.then(|| u32_at(descriptor, 252))?
}

/// A part of a file.
enum Piece<'a> {
    /// Bytes in the entry itself.
    Inline(&'a [u8]),
    /// Bytes from a block of the partition on.
    Extent { block: u64, length: u64 },
}

/// Length and parts of a file; `None` if its entry is broken or of an unsupported kind.
fn pieces(entry: &[u8]) -> Option<(u64, Vec<Piece<'_>>)> {
    let fixed = match tag_of(entry)? {
        tag::FILE => 176,
        tag::EXTENDED_FILE => 216,
        _ => return None,
    };
    let length = u64::from_le_bytes(*entry.get(56..)?.first_chunk()?);
    let attributes = usize::try_from(u32_at(entry, fixed - 8)?).ok()?;
    let size = usize::try_from(u32_at(entry, fixed - 4)?).ok()?;
    let descriptors = entry.get(fixed..)?.get(attributes..)?.get(..size)?;
    let width = match u16_at(entry, 34)? & 7 {
        0 => 8,
        1 => 16,
        3 => return Some((length, vec![Piece::Inline(descriptors)])),
        _ => return None,
    };
    let mut pieces = Vec::new();
    for descriptor in descriptors.chunks_exact(width) {
        let (size, block) = (u32_at(descriptor, 0)?, u32_at(descriptor, 4)?);
        match (size >> 30, size & 0x3fff_ffff) {
            (_, 0) => break,
            (0, length) => pieces.push(Piece::Extent { block, length }),
            // Unwritten parts, and descriptors elsewhere.
            _ => return None,
        }
    }
    Some((length, pieces))
}

/// Block of the entry of this name in a directory, `Some(None)` without one; `None` if the directory is broken.
fn find(directory: &[u8], name: &str) -> Option<Option<u64>> {
    const IS_NO_FILE: u8 = 0b1110;
    let mut rest = directory;
    while !rest.is_empty() {
        if tag_of(rest)? != tag::IDENTIFIER {
            return None;
        }
        let used = usize::from(u16_at(rest, 36)?);
        let letters = usize::from(*rest.get(19)?);
        let text = rest.get(ENTRY + used..)?.get(..letters)?;
        if rest.get(18)? & IS_NO_FILE == 0 && is_name(text, name) {
            return Some(Some(u32_at(rest, 24)?));
        }
        let length = (ENTRY + used + letters).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Some(None)
}

/// Whether compressed Unicode (OSTA, section 2.1.1) is this name.
fn is_name(text: &[u8], name: &str) -> bool {
    match text.split_first() {
        Some((8, letters)) => letters
            .iter()
            .map(|letter| char::from(*letter))
            .eq(name.chars()),
        Some((16, letters)) => {
            let pairs = letters.chunks_exact(2).filter_map(<[u8]>::first_chunk);
            pairs
                .copied()
                .map(u16::from_be_bytes)
                .eq(name.encode_utf16())
        }
        _ => false,
    }
}

fn sector(disc: Disc<'_>, number: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 2048];
    disc(&mut bytes, number * SECTOR)?;
    Ok(bytes)
}

/// Tag of a descriptor with a correct checksum.
fn tag_of(descriptor: &[u8]) -> Option<u16> {
    let head: &[u8; 16] = descriptor.first_chunk()?;
    let [_, _, _, _, checksum, ..] = *head;
    let sum = head.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    (sum.wrapping_sub(checksum) == checksum).then(|| u16_at(head, 0))?
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u16::from_le_bytes)
}

/// A number of 32 bits, wide enough for sums.
fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    let number = bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes);
    number.map(u64::from)
}

#[cfg(test)]
mod tests {
    //! The sample is a disc of pycdlib 1.14 with the files `readme.txt` and `ovf-env.xml`, packed.

    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    const SAMPLE: &[u8] = include_bytes!("golden.udf.gz");
    /// First sector of the partition in the sample.
    const PARTITION: usize = 257;

    fn sample() -> Vec<u8> {
        let mut disc = Vec::new();
        GzDecoder::new(SAMPLE).read_to_end(&mut disc).unwrap();
        disc
    }

    fn read(disc: &[u8], name: &str) -> Result<Option<Vec<u8>>, String> {
        let fill = |bytes: &mut [u8], at: u64| {
            let found = disc.get(usize::try_from(at).unwrap()..);
            let found = found.and_then(|found| found.get(..bytes.len()));
            bytes.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        Udf::open(&fill)?.map_or(Ok(None), |udf| udf.file(name))
    }

    /// Changes bytes of a descriptor, and corrects its checksum.
    fn change(disc: &mut [u8], sector: usize, at: usize, bytes: &[u8]) {
        let descriptor = &mut disc[sector * 2048..][..2048];
        descriptor[at..][..bytes.len()].copy_from_slice(bytes);
        descriptor[4] = 0;
        descriptor[4] = descriptor[..16]
            .iter()
            .fold(0, |sum, byte| sum.wrapping_add(*byte));
    }

    fn changed(sector: usize, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut disc = sample();
        change(&mut disc, sector, at, bytes);
        disc
    }

    #[test]
    fn file_of_a_disc_is_read() {
        let found = read(&sample(), "ovf-env.xml").unwrap().unwrap();
        assert!(found.starts_with(b"<Environment>x") && found.ends_with(b"x</Environment>\n"));
        assert_eq!(found.len(), 3028);
        assert_eq!(
            read(&sample(), "readme.txt"),
            Ok(Some(b"not this\n".to_vec()))
        );
        assert_eq!(read(&sample(), "other"), Ok(None));
    }

    #[test]
    fn disc_of_another_kind_has_no_file() {
        for disc in [Vec::new(), vec![0; 2048], vec![0; 2 << 20]] {
            assert_eq!(read(&disc, "ovf-env.xml"), Ok(None));
        }
    }

    #[test]
    fn names_of_both_widths_are_compared() {
        assert!(is_name(b"\x08ovf", "ovf") && is_name(b"\x10\0o\0v\0f", "ovf"));
        assert!(is_name(b"\x10\x20\xac", "\u{20ac}"));
        assert!(!is_name(b"\x08ovg", "ovf") && !is_name(b"\x09ovf", "ovf") && !is_name(b"", ""));
    }

    #[test]
    fn broken_disc_is_an_error() {
        let root = PARTITION + 2;
        for (what, disc) in [
            (
                "a volume beyond the disc",
                changed(256, 20, &u32::MAX.to_le_bytes()),
            ),
            ("no descriptors", changed(256, 16, &[0; 4])),
            ("a short partition", changed(34, 192, &[1, 0, 0, 0])),
            ("two partition maps", changed(35, 268, &[2])),
            ("a map of another kind", changed(35, 440, &[2, 64])),
            ("no file set", changed(PARTITION, 0, &[9])),
            ("a root that is no directory", changed(PARTITION, 404, &[1])),
            ("descriptors elsewhere", changed(root, 34, &[2, 0])),
            ("a long directory", changed(root, 56, &[0xff; 4])),
            ("a huge directory", changed(root, 56, &[0xff; 8])),
            ("attributes over the end", changed(root, 168, &[0xff; 4])),
        ] {
            read(&disc, "ovf-env.xml").expect_err(what);
        }
        let mut flipped = sample();
        flipped[root * 2048 + 1] ^= 1;
        read(&flipped, "ovf-env.xml").unwrap_err();
    }

    proptest! {
        #[test]
        fn hostile_discs_never_panic(
            changes in proptest::collection::vec((0_usize..7, 0_usize..512, any::<u8>()), 1..8),
            end in 0_usize..600_000,
        ) {
            let sectors = [256, 34, 35, PARTITION, PARTITION + 2, PARTITION + 3, PARTITION + 4];
            let mut disc = sample();
            for (sector, at, byte) in changes {
                change(&mut disc, sectors[sector], at, &[byte]);
            }
            disc.truncate(end);
            let found = read(&disc, "ovf-env.xml");
            prop_assert!(found.is_err() || found.is_ok_and(|found| found.is_none_or(|file| file.len() <= 1 << 20)));
        }
    }
}

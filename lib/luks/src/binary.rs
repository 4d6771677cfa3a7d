//! The binary part of a header (specification, section 2.1): big-endian, 4096 bytes. Its checksum also covers the JSON
//! that follows it.

use ring::digest::{SHA256, digest};

use crate::{Device, LuksError, random};

/// Length of the binary part.
const BINARY: usize = 4096;
const FIRST_MAGIC: &[u8; 6] = b"LUKS\xba\xbe";
const SECOND_MAGIC: &[u8; 6] = b"SKUL\xba\xbe";
const VERSION: u16 = 2;
/// Header sizes (binary part and JSON) that the specification allows, in bytes. The second copy starts at the size of
/// the first.
const SIZES: [usize; 9] = [
    0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000,
];
const SEQUENCE_AT: usize = 16;
const LABEL_AT: usize = 24;
const LABEL: usize = 48;
/// Longest label in bytes, without the terminating NUL.
pub(crate) const LONGEST_LABEL: usize = LABEL - 1;
/// Sequence number of a new volume's first header.
const FIRST_SEQUENCE: u64 = 1;
const CHECKSUM_AT: usize = 448;
const CHECKSUM: usize = 64;
const CHECKSUM_NAME: &str = "sha256";

/// The fields of the binary part, and the JSON that follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderCopy {
    /// Size of one copy of the header in bytes.
    pub(crate) size: usize,
    /// Sequence number; grows with every write.
    pub(crate) sequence: u64,
    pub(crate) label: String,
    pub(crate) uuid: String,
    pub(crate) subsystem: String,
    pub(crate) json: String,
}

/// Position of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Second,
}

impl Place {
    pub(crate) fn other(self) -> Place {
        match self {
            Place::First => Place::Second,
            Place::Second => Place::First,
        }
    }

    /// Offset of a copy of this size, in bytes.
    pub(crate) fn offset(self, size: usize) -> u64 {
        match self {
            Place::First => 0,
            Place::Second => size as u64,
        }
    }
}

/// The result of reading both copies.
#[derive(Debug)]
pub(crate) struct Copies {
    pub(crate) first: Result<HeaderCopy, Broken>,
    /// The first copy found at the possible offsets.
    pub(crate) second: Result<HeaderCopy, Broken>,
}

/// Reason why a place holds no valid copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The place holds other data or zeros.
    NoMagic,
    Version(u16),
    Damaged(&'static str),
    /// An invalid second copy with the first sequence number: the volume was never finished.
    Unfinished,
}

/// Reads both copies.
pub(crate) fn read<D: Device>(device: &D) -> Result<Copies, LuksError> {
    let first = read_at(device, 0, Place::First)?;
    // A valid first copy gives the size; otherwise all sizes are tried.
    let sizes = match &first {
        Ok(copy) => vec![copy.size],
        Err(_) => SIZES.to_vec(),
    };
    let mut second = Err(Broken::NoMagic);
    for size in sizes {
        let found = read_at(device, size, Place::Second)?;
        if found.is_ok() || second == Err(Broken::NoMagic) {
            second = found;
        }
        if second.is_ok() {
            break;
        }
    }
    Ok(Copies { first, second })
}

fn read_at<D: Device>(
    device: &D,
    offset: usize,
    place: Place,
) -> Result<Result<HeaderCopy, Broken>, LuksError> {
    let mut bytes = vec![0; BINARY];
    if !load(device, &mut bytes, offset)? {
        return Ok(Err(Broken::NoMagic));
    }
    let sequence = u64::from_be_bytes(field(&bytes, SEQUENCE_AT));
    let broken = |why: Broken| match why {
        Broken::NoMagic => why,
        // A new volume's second copy is written before its first.
        _ if place == Place::Second && sequence <= FIRST_SEQUENCE => Broken::Unfinished,
        _ => why,
    };
    let size = match size(&bytes, offset, place) {
        Ok(size) => size,
        Err(why) => return Ok(Err(broken(why))),
    };
    bytes.resize(size, 0);
    if !load(device, &mut bytes, offset)? {
        return Ok(Err(broken(Broken::Damaged("it is truncated"))));
    }
    Ok(decode(&bytes).map_err(broken))
}

/// Returns false when the device is too short.
fn load<D: Device>(device: &D, bytes: &mut [u8], offset: usize) -> Result<bool, LuksError> {
    match device.load(bytes, offset as u64) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The size of the copy with this binary part.
fn size(binary: &[u8], offset: usize, place: Place) -> Result<usize, Broken> {
    if !binary.starts_with(magic(place)) {
        return Err(Broken::NoMagic);
    }
    let version = u16::from_be_bytes(field(binary, 6));
    if version != VERSION {
        return Err(Broken::Version(version));
    }
    if u64::from_be_bytes(field(binary, 256)) != offset as u64 {
        return Err(Broken::Damaged("it states another offset"));
    }
    let size = u64::from_be_bytes(field(binary, 8));
    let size = SIZES.into_iter().find(|known| *known as u64 == size);
    size.ok_or(Broken::Damaged("its length is invalid"))
}

fn decode(bytes: &[u8]) -> Result<HeaderCopy, Broken> {
    if text(bytes, 72, 32).as_deref() != Some(CHECKSUM_NAME) {
        return Err(Broken::Damaged("its checksum algorithm is unknown"));
    }
    let found: [u8; 32] = field(bytes, CHECKSUM_AT);
    if found != checksum(bytes) {
        return Err(Broken::Damaged("its checksum is wrong"));
    }
    let json = bytes.get(BINARY..).unwrap_or_default();
    let end = json.iter().position(|byte| *byte == 0);
    let json = json.get(..end.unwrap_or(json.len())).unwrap_or_default();
    let all = || {
        Some(HeaderCopy {
            size: bytes.len(),
            sequence: u64::from_be_bytes(field(bytes, SEQUENCE_AT)),
            label: text(bytes, LABEL_AT, LABEL)?,
            uuid: text(bytes, 168, 40)?,
            subsystem: text(bytes, 208, 48)?,
            json: String::from_utf8(json.to_vec()).ok()?,
        })
    };
    all().ok_or(Broken::Damaged("a text field is invalid"))
}

/// Encodes one copy.
pub(crate) fn encode(copy: &HeaderCopy, place: Place) -> Result<Vec<u8>, LuksError> {
    let mut bytes = vec![0; copy.size];
    // One byte stays 0 as the terminator.
    if copy.json.len() >= copy.size.saturating_sub(BINARY) {
        return Err(LuksError::Unsupported("too much JSON metadata".to_owned()));
    }
    let offset = place.offset(copy.size);
    let mut salt = [0; 64];
    random(&mut salt)?;
    for (at, field) in [
        (0, magic(place).as_slice()),
        (6, &VERSION.to_be_bytes()),
        (8, &(copy.size as u64).to_be_bytes()),
        (SEQUENCE_AT, &copy.sequence.to_be_bytes()),
        (LABEL_AT, copy.label.as_bytes()),
        (72, CHECKSUM_NAME.as_bytes()),
        (104, &salt),
        (168, copy.uuid.as_bytes()),
        (208, copy.subsystem.as_bytes()),
        (256, &offset.to_be_bytes()),
        (BINARY, copy.json.as_bytes()),
    ] {
        put(&mut bytes, at, field);
    }
    let sum = checksum(&bytes);
    put(&mut bytes, CHECKSUM_AT, &sum);
    Ok(bytes)
}

fn magic(place: Place) -> &'static [u8; 6] {
    match place {
        Place::First => FIRST_MAGIC,
        Place::Second => SECOND_MAGIC,
    }
}

/// The SHA-256 of a whole copy with a zeroed checksum field.
fn checksum(bytes: &[u8]) -> [u8; 32] {
    let mut blank = bytes.to_vec();
    put(&mut blank, CHECKSUM_AT, &[0; CHECKSUM]);
    let sum = digest(&SHA256, &blank);
    let mut bytes = [0; 32];
    put(&mut bytes, 0, sum.as_ref());
    bytes
}

/// Writes a field; bytes beyond the end are dropped.
fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(field) {
        *to = *from;
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.copied().unwrap_or([0; N])
}

/// A NUL-terminated text within its field.
fn text(bytes: &[u8], at: usize, length: usize) -> Option<String> {
    let field = bytes.get(at..at.checked_add(length)?)?;
    let end = field.iter().position(|byte| *byte == 0)?;
    String::from_utf8(field.get(..end)?.to_vec()).ok()
}

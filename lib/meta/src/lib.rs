//! The META partition: numbered values that survive a reset and can be set before the first boot.
//!
//! Owns: the format ([`encode`]) and the numbers of values ([`tags`]).
//! Never: acts on a value, or knows the partition's place.

pub mod tags;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::num::NonZeroU8;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Size of the partition in bytes.
pub const PARTITION: u64 = 1 << 20;
/// Size of one copy in bytes.
const COPY: usize = 256 << 10;
const MAGIC_START: [u8; 4] = 0x5a4b_3c2d_u32.to_be_bytes();
const MAGIC_END: [u8; 4] = 0xa5b4_c3d2_u32.to_be_bytes();
const DIGEST: usize = 32;
/// Bytes for records in a copy: without both magics, the digest, and the tag 0 that ends them.
const ROOM: usize = COPY - 4 - DIGEST - 4 - 4;

/// The number of a value; 0 ends the records.
pub type Tag = NonZeroU8;

/// The content of a META partition.
pub type Values = BTreeMap<Tag, Vec<u8>>;

/// The values do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the META values need {0} bytes, and {ROOM} fit; put large data into the machine config")]
pub struct TooLarge(usize);

/// Encodes one copy.
///
/// The partition starts with two copies of 256 KiB, and the first valid one counts. A copy has big-endian numbers: a
/// magic, records (tag, length, value), and tag 0. Its last 36 bytes are the SHA-256 of the copy with that field
/// zeroed, and a second magic.
///
/// # Errors
/// The values do not fit.
pub fn encode(values: &Values) -> Result<Vec<u8>, TooLarge> {
    let needed = values
        .values()
        .map(|value| value.len().saturating_add(8))
        .fold(0, usize::saturating_add);
    if needed > ROOM {
        return Err(TooLarge(needed));
    }
    let mut records = Vec::with_capacity(COPY);
    for (tag, value) in values {
        let length = u32::try_from(value.len()).map_err(|_| TooLarge(needed))?;
        records.extend(u32::from(tag.get()).to_be_bytes());
        records.extend(length.to_be_bytes());
        records.extend(value);
    }
    records.resize(COPY - 8 - DIGEST, 0);
    let digest = digest(&records);
    Ok([&MAGIC_START, records.as_slice(), &digest, &MAGIC_END].concat())
}

/// The digest of a copy with these records and a zeroed digest field.
fn digest(records: &[u8]) -> [u8; DIGEST] {
    Sha256::new()
        .chain_update(MAGIC_START)
        .chain_update(records)
        .chain_update([0; DIGEST])
        .chain_update(MAGIC_END)
        .finalize()
        .into()
}

/// The values of the first valid copy at a partition's start; `None` when neither copy is valid.
#[must_use]
pub fn decode(partition: &[u8]) -> Option<Values> {
    partition.chunks_exact(COPY).take(2).find_map(decode_copy)
}

fn decode_copy(copy: &[u8]) -> Option<Values> {
    let body = copy.strip_prefix(&MAGIC_START)?.strip_suffix(&MAGIC_END)?;
    let (mut records, found) = body.split_at_checked(body.len().checked_sub(DIGEST)?)?;
    if found != digest(records) {
        return None;
    }
    let mut values = Values::new();
    loop {
        let tag = number(&mut records)?;
        if tag == 0 {
            return Some(values);
        }
        let length = usize::try_from(number(&mut records)?).ok()?;
        let (value, rest) = records.split_at_checked(length)?;
        values.insert(u8::try_from(tag).ok()?.try_into().ok()?, value.to_vec());
        records = rest;
    }
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_be_bytes(*first))
}

/// Reads a partition; `None` when neither copy is valid. A zeroed partition, as after a reset, has no values.
///
/// # Errors
/// The device's error.
pub fn read(mut partition: &File) -> io::Result<Option<Values>> {
    let mut copies = Vec::with_capacity(2 * COPY);
    partition.seek(SeekFrom::Start(0))?;
    partition.take(2 * COPY as u64).read_to_end(&mut copies)?;
    let is_blank = || copies.iter().all(|byte| *byte == 0);
    Ok(decode(&copies).or_else(|| is_blank().then(Values::new)))
}

/// Writes a partition: each copy is flushed before the next one is written, so a power cut always leaves a valid copy.
///
/// # Errors
/// The values do not fit (nothing is written then), or the device's error.
pub fn write(mut partition: &File, values: &Values) -> io::Result<()> {
    let copy =
        encode(values).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    for at in [0, COPY as u64] {
        partition.seek(SeekFrom::Start(at))?;
        partition.write_all(&copy)?;
        partition.sync_all()?;
    }
    Ok(())
}

/// Changes the values of the META partition `device` and writes them if `change` returns true. A damaged partition is
/// left alone.
///
/// # Errors
/// The device's error.
pub fn amend(device: &Path, change: impl FnOnce(&mut Values) -> bool) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(device)?;
    let Some(mut values) = read(&file)? else {
        return Ok(());
    };
    if change(&mut values) {
        write(&file, &values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(number: u8) -> Tag {
        Tag::new(number).unwrap()
    }

    fn values() -> Values {
        Values::from([
            (tag(0x0a), b"addresses: []".to_vec()),
            (tag(0x11), Vec::new()),
        ])
    }

    #[test]
    fn values_survive_the_loss_of_either_copy() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PARTITION).unwrap();
        assert_eq!(read(&file).unwrap(), Some(Values::new()));
        (&file).seek(SeekFrom::Start(0)).unwrap();
        (&file).write_all(b"x").unwrap();
        assert_eq!(read(&file).unwrap(), None);
        write(&file, &values()).unwrap();
        let mut whole = vec![0; 2 * COPY];
        (&file).seek(SeekFrom::Start(0)).unwrap();
        (&file).read_exact(&mut whole).unwrap();
        assert_eq!(read(&file).unwrap(), Some(values()));
        for broken in [100, COPY + 100] {
            let mut data = whole.clone();
            data[broken] ^= 1;
            assert_eq!(decode(&data), Some(values()));
        }
        whole[100] ^= 1;
        whole[COPY + 100] ^= 1;
        assert_eq!(decode(&whole), None);
    }

    /// The layout is byte-exact, because other programs read it.
    #[test]
    fn meta_format_matches_the_reference() {
        let copy = encode(&Values::from([(tag(0x0a), b"ab".to_vec())])).unwrap();
        assert_eq!(copy.len(), COPY);
        let head = [
            0x5a, 0x4b, 0x3c, 0x2d, 0, 0, 0, 0x0a, 0, 0, 0, 2, b'a', b'b', 0, 0, 0, 0,
        ];
        assert_eq!(copy[..18], head);
        assert_eq!(copy[COPY - 4..], [0xa5, 0xb4, 0xc3, 0xd2]);
        let mut blank = copy.clone();
        blank[COPY - 36..COPY - 4].fill(0);
        assert_eq!(copy[COPY - 36..COPY - 4], *Sha256::digest(&blank));
    }

    #[test]
    fn values_are_accepted_up_to_the_exact_capacity() {
        let with = |length| Values::from([(tag(1), vec![7; length])]);
        let largest = with(ROOM - 8);
        assert_eq!(decode(&encode(&largest).unwrap()), Some(largest));
        assert_eq!(encode(&with(ROOM - 7)), Err(TooLarge(ROOM + 1)));
    }

    /// A power cut during any write leaves the old values or the new ones.
    #[test]
    fn torn_write_leaves_the_old_or_the_new_values() {
        let old = encode(&values()).unwrap();
        let new = encode(&Values::from([(tag(1), b"new".to_vec())])).unwrap();
        for cut in [0, 1, 18, 512, COPY - 40, COPY - 1, COPY] {
            let torn = [&new[..cut], &old[cut..]].concat();
            assert!(
                [decode(&old), decode(&new)].contains(&decode(&[torn.as_slice(), &old].concat()))
            );
            assert_eq!(decode(&[new.as_slice(), &torn].concat()), decode(&new));
        }
    }

    /// A copy with these records, valid or not, and a valid digest.
    fn copy_of(mut records: Vec<u8>) -> Vec<u8> {
        records.resize(COPY - 8 - DIGEST, 0);
        let digest = digest(&records);
        [&MAGIC_START, records.as_slice(), &digest, &MAGIC_END].concat()
    }

    #[test]
    fn corpus_samples_are_decoded() {
        for sample in corten_corpus::samples("meta") {
            let values = decode(&copy_of(sample.bytes)).unwrap();
            assert!(!values.is_empty(), "{}", sample.name);
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_encode_again(body in corten_corpus::hostile("meta")) {
            let copy = copy_of(body.clone());
            if let Some(values) = decode(&copy) {
                proptest::prop_assert!(encode(&values).is_ok());
            }
            proptest::prop_assert_eq!(decode(&body), None);
        }
    }
}

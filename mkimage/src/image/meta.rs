//! The META partition: 1 MiB, a list of numbered values in two copies, each with a digest.
//!
//! A copy is 256 KiB, big-endian: magic, records (tag, length, value), tag 0; its last 36 bytes are
//! the SHA-256 of the copy with that field zero, and a second magic.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::bytes;
use crate::error::{Failure, Result};

/// Size of the partition, bytes.
pub const PARTITION: u64 = 1 << 20;
const COPY: usize = 256 << 10;
const MAGIC_START: u32 = 0x5a4b_3c2d;
const MAGIC_END: u32 = 0xa5b4_c3d2;
const DIGEST_AT: usize = COPY - 36;

/// Values by tag, as the profile or the command line gives them.
pub type Values = BTreeMap<u32, String>;

/// The two copies, to be written at the start of the partition.
pub fn encode(values: &Values) -> Result<Vec<u8>> {
    let mut copy = Vec::with_capacity(COPY);
    copy.extend(MAGIC_START.to_be_bytes());
    for (tag, value) in values {
        if *tag == 0 {
            return Err(Failure::new(
                "META has no tag 0: it ends the list",
                "use tags from 1",
            ));
        }
        copy.extend(tag.to_be_bytes());
        copy.extend(bytes::fit32(value.len(), "a META value")?.to_be_bytes());
        copy.extend(value.as_bytes());
    }
    if copy.len().saturating_add(4) > DIGEST_AT {
        return Err(Failure::new(
            format!(
                "the META values need {} bytes, more than 256 KiB",
                copy.len()
            ),
            "put large data into the machine configuration",
        ));
    }
    copy.resize(COPY, 0);
    bytes::put(&mut copy, COPY - 4, &MAGIC_END.to_be_bytes())?;
    let digest = Sha256::digest(&copy);
    bytes::put(&mut copy, DIGEST_AT, &digest)?;
    Ok([copy.as_slice(), copy.as_slice()].concat())
}

/// The values of the first whole copy; `None` when neither copy is.
pub fn decode(partition: &[u8]) -> Option<Values> {
    [0, COPY]
        .into_iter()
        .find_map(|at| decode_copy(bytes::slice(partition, at, COPY).ok()?))
}

fn decode_copy(copy: &[u8]) -> Option<Values> {
    let word = |at| bytes::get(copy, at).map(u32::from_be_bytes).ok();
    if word(0)? != MAGIC_START || word(COPY - 4)? != MAGIC_END {
        return None;
    }
    let mut blank = copy.to_vec();
    bytes::put(&mut blank, DIGEST_AT, &[0; 32]).ok()?;
    if bytes::slice(copy, DIGEST_AT, 32).ok()? != Sha256::digest(&blank).as_slice() {
        return None;
    }
    let (mut values, mut at) = (Values::new(), 4);
    while let tag @ 1.. = word(at)? {
        let len = usize::try_from(word(at.checked_add(4)?)?).ok()?;
        let start = at.checked_add(8)?;
        let value = bytes::slice(copy, start, len).ok()?;
        values.insert(tag, String::from_utf8_lossy(value).into_owned());
        at = start.checked_add(len)?;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_loss_of_either_copy() {
        let values = Values::from([(0x0a, "addresses: []".to_owned()), (0x11, String::new())]);
        let whole = encode(&values).unwrap();
        assert_eq!(whole.len(), 2 * COPY);
        assert_eq!(decode(&whole), Some(values.clone()));
        for broken in [100, COPY + 100] {
            let mut data = whole.clone();
            data[broken] ^= 1;
            assert_eq!(decode(&data), Some(values.clone()));
        }
        let mut data = whole;
        data[100] ^= 1;
        data[COPY + 100] ^= 1;
        assert_eq!(decode(&data), None);
        assert_eq!(
            decode(&encode(&Values::new()).unwrap()),
            Some(Values::new())
        );
    }

    #[test]
    fn tag_0_and_too_much_are_refused() {
        encode(&Values::from([(0, String::new())])).unwrap_err();
        encode(&Values::from([(1, "x".repeat(COPY))])).unwrap_err();
    }
}

//! The anti-forensic splitter (LUKS1 specification, section 2.4): it spreads a key over stripes, so that wiping any
//! stripe destroys the key.

use ring::digest::{self, Algorithm, digest};
use zeroize::Zeroizing;

use crate::{LuksError, random, unsupported};

/// Number of stripes; LUKS uses no other one.
pub(crate) const STRIPES: usize = 4000;

/// The hash with this name in a header.
pub(crate) fn hash(name: &str) -> Result<&'static Algorithm, LuksError> {
    match name {
        "sha1" => Ok(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        "sha256" => Ok(&digest::SHA256),
        "sha384" => Ok(&digest::SHA384),
        "sha512" => Ok(&digest::SHA512),
        other => Err(unsupported(format!("the hash {other:?}"))),
    }
}

/// Splits a key; the result is [`STRIPES`] times as long.
pub(crate) fn split(key: &[u8], hash: &'static Algorithm) -> Result<Zeroizing<Vec<u8>>, LuksError> {
    let mut stripes = Zeroizing::new(vec![0; key.len() * STRIPES]);
    let whole = key.len() * (STRIPES - 1);
    let (front, last) = stripes.split_at_mut(whole);
    random(front)?;
    let mixed = mix(front, key.len(), hash);
    for ((to, from), key) in last.iter_mut().zip(mixed.iter()).zip(key) {
        *to = from ^ key;
    }
    Ok(stripes)
}

/// Recovers a key of `length` bytes from its stripes.
pub(crate) fn merge(stripes: &[u8], length: usize, hash: &'static Algorithm) -> Zeroizing<Vec<u8>> {
    let (front, last) = stripes.split_at(stripes.len().saturating_sub(length));
    let mut key = mix(front, length, hash);
    for (to, from) in key.iter_mut().zip(last) {
        *to ^= from;
    }
    key
}

/// Mixes all stripes except the last into the length of one.
fn mix(stripes: &[u8], length: usize, hash: &'static Algorithm) -> Zeroizing<Vec<u8>> {
    let mut mixed = Zeroizing::new(vec![0; length]);
    for stripe in stripes.chunks_exact(length.max(1)) {
        for (to, from) in mixed.iter_mut().zip(stripe) {
            *to ^= from;
        }
        diffuse(&mut mixed, hash);
    }
    mixed
}

/// Replaces each hash-sized part by the hash of its index and content; the last part may be shorter.
fn diffuse(bytes: &mut [u8], hash: &'static Algorithm) {
    for (number, part) in (0_u32..).zip(bytes.chunks_mut(hash.output_len())) {
        let mut input = Zeroizing::new(number.to_be_bytes().to_vec());
        input.extend_from_slice(part);
        let output = digest(hash, &input);
        for (to, from) in part.iter_mut().zip(output.as_ref()) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_key_merges_back_only_from_all_stripes() {
        for (length, name) in [(64, "sha256"), (32, "sha512"), (64, "sha1")] {
            let hash = hash(name).unwrap();
            let key: Vec<u8> = (0..length).collect();
            let mut stripes = split(&key, hash).unwrap();
            assert_eq!(stripes.len(), key.len() * STRIPES);
            assert_eq!(*merge(&stripes, key.len(), hash), key);
            let middle = stripes.len() / 2;
            stripes[middle] ^= 1;
            assert_ne!(*merge(&stripes, key.len(), hash), key);
        }
        assert!(hash("md5").unwrap_err().to_string().contains("md5"));
    }
}

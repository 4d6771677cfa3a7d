//! AES-SIV-CMAC-256 (RFC 5297) as in RFC 8915, section 5.6: the associated data come first, the nonce last.

use aes_siv::KeyInit as _;
use aes_siv::siv::Aes128Siv;

/// Length of a key in bytes.
pub(crate) const KEY: usize = 32;
/// Length of the tag that precedes the ciphertext.
pub(crate) const TAG: usize = 16;

/// Encrypts; `None` when there are too many associated data.
pub(crate) fn seal(key: &[u8; KEY], bound: &[&[u8]], plain: &[u8]) -> Option<Vec<u8>> {
    Aes128Siv::new(key.into()).encrypt(bound, plain).ok()
}

/// Decrypts; `None` when authentication fails.
pub(crate) fn open(key: &[u8; KEY], bound: &[&[u8]], sealed: &[u8]) -> Option<Vec<u8>> {
    if sealed.len() < TAG {
        return None;
    }
    Aes128Siv::new(key.into()).decrypt(bound, sealed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    fn check(key: &str, bound: &[&str], plain: &str, sealed: &str) {
        let key: [u8; KEY] = bytes(key).try_into().unwrap();
        let bound: Vec<Vec<u8>> = bound.iter().map(|text| bytes(text)).collect();
        let bound: Vec<&[u8]> = bound.iter().map(Vec::as_slice).collect();
        let (plain, sealed) = (bytes(plain), bytes(sealed));
        assert_eq!(seal(&key, &bound, &plain), Some(sealed.clone()));
        assert_eq!(open(&key, &bound, &sealed), Some(plain));
        for place in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[place] ^= 1;
            assert_eq!(open(&key, &bound, &forged), None, "{place}");
        }
        assert_eq!(open(&key, &bound[1..], &sealed), None);
        assert_eq!(open(&key, &bound, &sealed[..TAG - 1]), None);
    }

    #[test]
    fn the_examples_of_rfc_5297_are_sealed_and_opened() {
        check(
            "fffefdfc fbfaf9f8 f7f6f5f4 f3f2f1f0 f0f1f2f3 f4f5f6f7 f8f9fafb fcfdfeff",
            &["10111213 14151617 18191a1b 1c1d1e1f 20212223 24252627"],
            "11223344 55667788 99aabbcc ddee",
            "85632d07 c6e8f37f 950acd32 0a2ecc93 40c02b96 90c4dc04 daef7f6a fe5c",
        );
        check(
            "7f7e7d7c 7b7a7978 77767574 73727170 40414243 44454647 48494a4b 4c4d4e4f",
            &[
                "00112233 44556677 8899aabb ccddeeff deaddada deaddada ffeeddcc bbaa9988 77665544 33221100",
                "10203040 50607080 90a0",
                "09f91102 9d74e35b d84156c5 635688c0",
            ],
            "74686973 20697320 736f6d65 20706c61 696e7465 78742074 6f20656e 63727970 74207573 696e6720 \
             5349562d 414553",
            "7bdb6e3b 432667eb 06f4d14b ff2fbd0f cb900f2f ddbe4043 26601965 c889bf17 dba77ceb 094fa663 \
             b7a3f748 ba8af829 ea64ad54 4a272e9c 485b62a3 fd5c0d",
        );
    }
}

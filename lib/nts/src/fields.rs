//! Extension fields of protected packets (RFC 8915, section 5; RFC 7822): 16 bits of type, 16 bits of total length, and
//! the body in whole words.

use crate::HEADER;
use crate::seal::{KEY, open, seal};

/// Length of the unique identifier, which matches a response to its request.
pub(crate) const UNIQUE: usize = 32;
/// Length of the nonce. It is random and should be unique per key; on a repeat AES-SIV reveals only that two texts are
/// equal.
pub(crate) const NONCE: usize = 16;
/// Minimum length of a field in NTP version 4 (RFC 7822, section 3).
const SHORTEST: usize = 16;
/// Length of type and length.
const HEAD: usize = 4;

const UNIQUE_IDENTIFIER: u16 = 0x0104;
const COOKIE: u16 = 0x0204;
const PLACEHOLDER: u16 = 0x0304;
const AUTHENTICATOR: u16 = 0x0404;
/// Kiss code of a server that does not know a cookie (RFC 8915, section 5.7).
const NAK: &[u8] = b"NTSN";

/// Reason why a packet is not an acceptable response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFields {
    /// The lengths contradict each other.
    #[error("the packet is damaged")]
    Damaged,
    /// The identifier is missing or belongs to another request.
    #[error("the answer belongs to another request")]
    NotOurs,
    /// The packet has no authenticator, so any host may have sent it.
    #[error("the answer is not authenticated")]
    Unproved,
    /// The authenticator is wrong.
    #[error("the authentication of the answer is wrong")]
    Forged,
    /// The server no longer knows the cookie.
    #[error("the server no longer knows the keys")]
    Nak,
}

/// Builds an authenticated request. `more`: number of further cookies to request.
pub(crate) fn question(
    header: &[u8; HEADER],
    unique: &[u8; UNIQUE],
    nonce: &[u8; NONCE],
    cookie: &[u8],
    more: usize,
    key: &[u8; KEY],
) -> Option<Vec<u8>> {
    let mut packet = header.to_vec();
    push(&mut packet, UNIQUE_IDENTIFIER, unique)?;
    push(&mut packet, COOKIE, cookie)?;
    for _ in 0..more {
        push(&mut packet, PLACEHOLDER, &vec![0; cookie.len()])?;
    }
    authenticate(&mut packet, nonce, &[], key)?;
    Some(packet)
}

/// Adds the authenticator for the whole packet, with the encrypted fields.
pub(crate) fn authenticate(
    packet: &mut Vec<u8>,
    nonce: &[u8; NONCE],
    secret: &[u8],
    key: &[u8; KEY],
) -> Option<()> {
    let sealed = seal(key, &[packet.as_slice(), nonce.as_slice()], secret)?;
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).ok();
    let mut body = Vec::new();
    body.extend(length(nonce)?.to_be_bytes());
    body.extend(length(&sealed)?.to_be_bytes());
    body.extend(nonce);
    body.extend(&sealed);
    push(packet, AUTHENTICATOR, &body)
}

fn push(packet: &mut Vec<u8>, kind: u16, body: &[u8]) -> Option<()> {
    let length = (body.len() + HEAD).next_multiple_of(4).max(SHORTEST);
    packet.extend(kind.to_be_bytes());
    packet.extend(u16::try_from(length).ok()?.to_be_bytes());
    packet.extend(body);
    packet.resize(packet.len() + length - HEAD - body.len(), 0);
    Some(())
}

/// The authenticated content of a response: the packet without its fields, and new cookies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proved {
    pub(crate) header: [u8; HEADER],
    pub(crate) cookies: Vec<Vec<u8>>,
}

/// Reads the response to the request with this identifier. Fields after the authenticator are ignored, because they are
/// not authenticated.
///
/// # Errors
/// The reason why the response is not accepted.
pub(crate) fn answer(
    packet: &[u8],
    unique: &[u8; UNIQUE],
    key: &[u8; KEY],
) -> Result<Proved, BadFields> {
    let parts: Option<(&[u8; HEADER], &[u8])> = packet.split_first_chunk();
    let (header, mut rest) = parts.ok_or(BadFields::Damaged)?;
    let mut is_ours = false;
    while !rest.is_empty() {
        let (kind, body, after) = field(rest).ok_or(BadFields::Damaged)?;
        match kind {
            UNIQUE_IDENTIFIER => is_ours = body == unique,
            AUTHENTICATOR if is_ours => {
                let bound = packet.len().checked_sub(rest.len());
                let bound = bound.and_then(|length| packet.get(..length));
                let bound = bound.ok_or(BadFields::Damaged)?;
                let cookies = secret_cookies(bound, body, key)?;
                return Ok(Proved {
                    header: *header,
                    cookies,
                });
            }
            AUTHENTICATOR => return Err(BadFields::NotOurs),
            _ => {}
        }
        rest = after;
    }
    // Stratum 0 and the kiss code in the reference id.
    let is_nak = header.get(1) == Some(&0) && header.get(12..16) == Some(NAK);
    Err(match (is_ours, is_nak) {
        (true, true) => BadFields::Nak,
        (true, false) => BadFields::Unproved,
        (false, _) => BadFields::NotOurs,
    })
}

/// The first field: its type, its body with padding, and the rest.
fn field(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes(*length));
    if length < HEAD || length % 4 != 0 {
        return None;
    }
    let (field, after) = bytes.split_at_checked(length)?;
    Some((u16::from_be_bytes(*kind), field.get(HEAD..)?, after))
}

fn secret_cookies(bound: &[u8], body: &[u8], key: &[u8; KEY]) -> Result<Vec<Vec<u8>>, BadFields> {
    let (nonce, sealed) = sealed(body).ok_or(BadFields::Damaged)?;
    let secret = open(key, &[bound, nonce], sealed).ok_or(BadFields::Forged)?;
    let mut cookies = Vec::new();
    let mut rest = secret.as_slice();
    while !rest.is_empty() {
        let (kind, body, after) = field(rest).ok_or(BadFields::Damaged)?;
        if kind == COOKIE && !body.is_empty() {
            cookies.push(body.to_vec());
        }
        rest = after;
    }
    Ok(cookies)
}

/// Nonce and ciphertext of an authenticator; both are padded to whole words.
fn sealed(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (nonce, rest) = body.split_first_chunk()?;
    let (text, rest) = rest.split_first_chunk()?;
    let (nonce, text) = (u16::from_be_bytes(*nonce), u16::from_be_bytes(*text));
    let (nonce, text) = (usize::from(nonce), usize::from(text));
    let filled = rest.get(nonce.next_multiple_of(4)..)?;
    Some((rest.get(..nonce)?, filled.get(..text)?))
}

#[cfg(any(test, feature = "testing"))]
pub(crate) mod server {
    //! The server's side, for tests.

    use super::{
        AUTHENTICATOR, COOKIE, HEADER, KEY, NAK, NONCE, PLACEHOLDER, UNIQUE_IDENTIFIER,
        authenticate, field, open, push, sealed,
    };

    /// The content of a client's request.
    pub(crate) struct Asked {
        pub(crate) cookie: Vec<u8>,
        pub(crate) unique: Vec<u8>,
        /// Number of cookies that the response may hold.
        pub(crate) wanted: usize,
    }

    /// Reads a request; `None` if the key that `key_of` finds for its cookie does not authenticate it.
    pub(crate) fn read(
        packet: &[u8],
        key_of: impl Fn(&[u8]) -> Option<[u8; KEY]>,
    ) -> Option<Asked> {
        let mut rest = packet.get(HEADER..)?;
        let (mut cookie, mut unique, mut wanted) = (Vec::new(), Vec::new(), 0);
        loop {
            let (kind, body, after) = field(rest)?;
            match kind {
                UNIQUE_IDENTIFIER => unique = body.to_vec(),
                COOKIE => {
                    cookie = body.to_vec();
                    wanted += 1;
                }
                PLACEHOLDER => wanted += 1,
                AUTHENTICATOR => {
                    let (nonce, text) = sealed(body)?;
                    let bound = packet.get(..packet.len() - rest.len())?;
                    open(&key_of(&cookie)?, &[bound, nonce], text)?;
                    return Some(Asked {
                        cookie,
                        unique,
                        wanted,
                    });
                }
                _ => {}
            }
            rest = after;
        }
    }

    /// A response with these cookies.
    pub(crate) fn write(
        header: &[u8; HEADER],
        unique: &[u8],
        cookies: &[Vec<u8>],
        key: &[u8; KEY],
    ) -> Option<Vec<u8>> {
        let mut secret = Vec::new();
        for cookie in cookies {
            push(&mut secret, COOKIE, cookie)?;
        }
        let mut packet = header.to_vec();
        push(&mut packet, UNIQUE_IDENTIFIER, unique)?;
        authenticate(&mut packet, &[9; NONCE], &secret, key)?;
        Some(packet)
    }

    /// The refusal of a cookie.
    pub(crate) fn nak(unique: &[u8]) -> Option<Vec<u8>> {
        let mut packet = vec![0; HEADER];
        packet.get_mut(12..16)?.copy_from_slice(NAK);
        push(&mut packet, UNIQUE_IDENTIFIER, unique)?;
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, samples};
    use proptest::prelude::proptest;

    use super::*;

    const KEY_OF_TESTS: [u8; KEY] = [3; KEY];
    const OURS: [u8; UNIQUE] = [5; UNIQUE];
    const ANSWERED: [u8; HEADER] = [0x24; HEADER];

    fn written(cookies: &[Vec<u8>]) -> Vec<u8> {
        server::write(&ANSWERED, &OURS, cookies, &KEY_OF_TESTS).unwrap()
    }

    fn read(packet: &[u8]) -> Result<Proved, BadFields> {
        answer(packet, &OURS, &KEY_OF_TESTS)
    }

    #[test]
    fn request_has_the_layout_of_the_protocol_and_is_authenticated() {
        let header = [0x23; HEADER];
        let packet = question(&header, &OURS, &[7; NONCE], b"cookies!!", 2, &KEY_OF_TESTS).unwrap();
        let kinds: Vec<(usize, u16, usize)> = {
            let (mut rest, mut found) = (&packet[HEADER..], Vec::new());
            while !rest.is_empty() {
                let (kind, body, after) = field(rest).unwrap();
                found.push((packet.len() - rest.len(), kind, body.len() + HEAD));
                rest = after;
            }
            found
        };
        let expected = [
            (48, 0x0104, 36),
            (84, 0x0204, 16),
            (100, 0x0304, 16),
            (116, 0x0304, 16),
            (132, 0x0404, 40),
        ];
        assert_eq!(kinds, expected);
        let asked = server::read(&packet, |_| Some(KEY_OF_TESTS)).unwrap();
        assert_eq!((asked.unique.as_slice(), asked.wanted), (&OURS[..], 3));
        assert!(asked.cookie.starts_with(b"cookies!!"));
        // A change of any byte is detected.
        for place in 0..packet.len() {
            let mut forged = packet.clone();
            forged[place] ^= 0x80;
            let read = server::read(&forged, |_| Some(KEY_OF_TESTS));
            assert!(read.is_none(), "{place}");
        }
    }

    #[test]
    fn authenticated_answer_gives_header_and_cookies_and_a_changed_one_fails() {
        let cookies = vec![vec![1; 100], vec![2; 100]];
        let packet = written(&cookies);
        let proved = Proved {
            header: ANSWERED,
            cookies,
        };
        assert_eq!(read(&packet), Ok(proved.clone()));
        for place in 0..packet.len() {
            let mut forged = packet.clone();
            forged[place] ^= 1;
            assert!(read(&forged).is_err(), "{place}");
        }
        for length in 0..packet.len() {
            assert!(read(&packet[..length]).is_err(), "{length}");
        }
        // A field that a stranger appended is ignored.
        let added = [&packet[..], b"\x02\x04\0\x10a-strangers!"].concat();
        assert_eq!(read(&added), Ok(proved));
        let other = answer(&packet, &OURS, &[4; KEY]);
        assert_eq!(other, Err(BadFields::Forged));
        let other = answer(&packet, &[6; UNIQUE], &KEY_OF_TESTS);
        assert_eq!(other, Err(BadFields::NotOurs));
    }

    #[test]
    fn unauthenticated_answer_is_used_only_as_a_nak_of_the_request() {
        let plain = [0x24; HEADER];
        assert_eq!(read(&plain), Err(BadFields::NotOurs));
        let mut named = plain.to_vec();
        push(&mut named, UNIQUE_IDENTIFIER, &OURS).unwrap();
        assert_eq!(read(&named), Err(BadFields::Unproved));
        assert_eq!(read(&server::nak(&OURS).unwrap()), Err(BadFields::Nak));
        let strangers = server::nak(&[1; UNIQUE]).unwrap();
        assert_eq!(read(&strangers), Err(BadFields::NotOurs));
    }

    #[test]
    fn corpus_samples_are_read() {
        for sample in samples("nts-packet") {
            let read = answer(&sample.bytes, &OURS, &KEY_OF_TESTS);
            match &*sample.name {
                "answer" => assert_eq!(read.unwrap().cookies.len(), 2),
                "nak" => assert_eq!(read, Err(BadFields::Nak)),
                other => panic!("{other}"),
            }
        }
    }

    proptest! {
        #[test]
        fn hostile_packets_end_in_an_error(bytes in hostile("nts-packet")) {
            let _ = answer(&bytes, &OURS, &KEY_OF_TESTS);
            let _ = secret_cookies(&[], &bytes, &KEY_OF_TESTS);
            let _ = field(&bytes);
        }
    }
}

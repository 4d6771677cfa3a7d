//! Records of the key exchange (RFC 8915, section 4): a critical bit, 15 bits of type, 16 bits of length, and the body.

/// Longest accepted response in bytes; eight cookies take about 900.
pub(crate) const LONGEST: usize = 16 * 1024;
/// Number of cookies that a client keeps (RFC 8915, section 4.1.6).
pub(crate) const COOKIES: usize = 8;
/// Longest accepted cookie in bytes; several must fit into a packet.
const LONGEST_COOKIE: usize = 512;
/// Longest DNS name in bytes.
const LONGEST_NAME: usize = 253;

const CRITICAL: u16 = 0x8000;
const END: u16 = 0;
const PROTOCOL: u16 = 1;
const ERROR: u16 = 2;
const WARNING: u16 = 3;
const ALGORITHM: u16 = 4;
const COOKIE: u16 = 5;
const SERVER: u16 = 6;
const PORT: u16 = 7;

/// NTP version 4.
pub(crate) const NTP4: u16 = 0;
/// AES-SIV-CMAC-256, which every server supports (RFC 8915, section 5.1).
pub(crate) const AES_SIV: u16 = 15;

/// Reason why a response is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRecords {
    /// It exceeds the maximum length.
    #[error("its answer is longer than {LONGEST} bytes")]
    Long,
    /// It ended early.
    #[error("its answer is truncated")]
    CutOff,
    /// A record has an invalid length.
    #[error("a record of type {0} is damaged")]
    Damaged(u16),
    /// An unknown record is marked critical.
    #[error("the critical record of type {0} is unknown")]
    Unknown(u16),
    /// The server reports an error.
    #[error("the server refuses with error {0}")]
    Refused(u16),
    /// The server reports a warning; the protocol defines none.
    #[error("the server sends warning {0}")]
    Warned(u16),
    /// The server offers another protocol.
    #[error("the server does not offer NTP version 4")]
    Protocol,
    /// The server chose another algorithm.
    #[error("the server does not offer AES-SIV-CMAC-256")]
    Algorithm,
    /// The server gave no cookie, and a request needs one.
    #[error("the server gives no cookie")]
    NoCookie,
    /// The name of the time server is invalid.
    #[error("the name of the time server is invalid")]
    Name,
}

/// The result of the negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) cookies: Vec<Vec<u8>>,
    /// Name of the time server, if it is another machine.
    pub(crate) server: Option<String>,
    pub(crate) port: Option<u16>,
}

/// The client's request.
pub(crate) fn request() -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, CRITICAL | PROTOCOL, &NTP4.to_be_bytes());
    push(&mut out, CRITICAL | ALGORITHM, &AES_SIV.to_be_bytes());
    push(&mut out, CRITICAL | END, &[]);
    out
}

fn push(out: &mut Vec<u8>, kind: u16, body: &[u8]) {
    out.extend(kind.to_be_bytes());
    out.extend(u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(body);
}

/// Parses a response; `None` when it is incomplete.
///
/// # Errors
/// The reason why it is unusable.
pub(crate) fn response(bytes: &[u8]) -> Result<Option<Offer>, BadRecords> {
    let mut rest = bytes;
    let (mut protocol, mut algorithm) = (None, None);
    let mut offer = Offer {
        cookies: Vec::new(),
        server: None,
        port: None,
    };
    while let Some((kind, body, after)) = record(rest) {
        rest = after;
        let number = || number(kind & !CRITICAL, body);
        match kind & !CRITICAL {
            END if body.is_empty() => return finish(protocol, algorithm, offer).map(Some),
            END => return Err(BadRecords::Damaged(END)),
            PROTOCOL if protocol.is_none() => protocol = Some(body == NTP4.to_be_bytes()),
            ALGORITHM if algorithm.is_none() => algorithm = Some(body == AES_SIV.to_be_bytes()),
            kind @ (PROTOCOL | ALGORITHM) => return Err(BadRecords::Damaged(kind)),
            ERROR => return Err(BadRecords::Refused(number()?)),
            WARNING => return Err(BadRecords::Warned(number()?)),
            COOKIE => {
                let fits = !body.is_empty() && body.len() <= LONGEST_COOKIE;
                if fits && offer.cookies.len() < COOKIES {
                    offer.cookies.push(body.to_vec());
                }
            }
            SERVER => offer.server = Some(name(body)?),
            PORT => offer.port = Some(number()?),
            unknown if kind & CRITICAL != 0 => return Err(BadRecords::Unknown(unknown)),
            _ => {}
        }
    }
    if bytes.len() > LONGEST {
        return Err(BadRecords::Long);
    }
    Ok(None)
}

fn finish(
    protocol: Option<bool>,
    algorithm: Option<bool>,
    offer: Offer,
) -> Result<Offer, BadRecords> {
    if protocol != Some(true) {
        return Err(BadRecords::Protocol);
    }
    if algorithm != Some(true) {
        return Err(BadRecords::Algorithm);
    }
    if offer.cookies.is_empty() {
        return Err(BadRecords::NoCookie);
    }
    Ok(offer)
}

/// The first record, if it is complete: its type, its body, and the rest.
fn record(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((u16::from_be_bytes(*kind), body, rest))
}

fn number(kind: u16, body: &[u8]) -> Result<u16, BadRecords> {
    let bytes: [u8; 2] = body.try_into().map_err(|_| BadRecords::Damaged(kind))?;
    Ok(u16::from_be_bytes(bytes))
}

/// The name of a machine: a DNS name or an address.
fn name(body: &[u8]) -> Result<String, BadRecords> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b".-:_".contains(byte);
    if body.is_empty() || body.len() > LONGEST_NAME || !body.iter().all(is_letter) {
        return Err(BadRecords::Name);
    }
    String::from_utf8(body.to_vec()).map_err(|_| BadRecords::Name)
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, samples};
    use proptest::prelude::proptest;

    use super::*;

    fn answer(records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, body) in records {
            push(&mut out, *kind, body);
        }
        out
    }

    const AGREED: [(u16, &[u8]); 2] = [(0x8001, &[0, 0]), (0x8004, &[0, 15])];
    const END_OF_MESSAGE: (u16, &[u8]) = (0x8000, &[]);

    fn with(more: &[(u16, &[u8])]) -> Vec<u8> {
        answer(&[&AGREED, more, &[END_OF_MESSAGE]].concat())
    }

    #[test]
    fn the_request_is_for_ntp_and_the_algorithm_that_every_server_has() {
        let expected = [
            [0x80, 1, 0, 2, 0, 0].as_slice(),
            &[0x80, 4, 0, 2, 0, 15],
            &[0x80, 0, 0, 0],
        ];
        assert_eq!(request(), expected.concat());
    }

    #[test]
    fn answer_is_read_once_it_is_complete() {
        let bytes = with(&[
            (5, b"one"),
            (5, b"two"),
            (6, b"time.example.com"),
            (7, &[0, 124]),
            (0x4000, b"unknown record"),
        ]);
        let offer = Offer {
            cookies: vec![b"one".to_vec(), b"two".to_vec()],
            server: Some("time.example.com".to_owned()),
            port: Some(124),
        };
        assert_eq!(response(&bytes), Ok(Some(offer)));
        for length in 0..bytes.len() {
            assert_eq!(response(&bytes[..length]), Ok(None), "{length}");
        }
    }

    #[test]
    fn unrequested_or_malformed_records_are_refused() {
        let cookie: (u16, &[u8]) = (5, b"c");
        for (bytes, expected) in [
            (with(&[]), BadRecords::NoCookie),
            (with(&[(5, b"")]), BadRecords::NoCookie),
            (with(&[(0x8002, &[0, 1])]), BadRecords::Refused(1)),
            (with(&[(0x8003, &[0, 7])]), BadRecords::Warned(7)),
            (with(&[(0x8002, b"")]), BadRecords::Damaged(2)),
            (with(&[(0xc000, b"")]), BadRecords::Unknown(0x4000)),
            (with(&[(6, b"")]), BadRecords::Name),
            (with(&[(6, b"a/../b")]), BadRecords::Name),
            (with(&[(7, b"123")]), BadRecords::Damaged(7)),
            (with(&[(0x8001, &[0, 0])]), BadRecords::Damaged(1)),
            (
                answer(&[AGREED[0], cookie, END_OF_MESSAGE]),
                BadRecords::Algorithm,
            ),
            (
                answer(&[AGREED[1], cookie, END_OF_MESSAGE]),
                BadRecords::Protocol,
            ),
            (
                answer(&[(0x8001, &[0, 1]), END_OF_MESSAGE]),
                BadRecords::Protocol,
            ),
            (answer(&[(0x8000, b"x")]), BadRecords::Damaged(0)),
        ] {
            assert_eq!(response(&bytes), Err(expected), "{bytes:?}");
        }
    }

    #[test]
    fn hostile_answers_are_bounded() {
        let long = [1; LONGEST_COOKIE + 1];
        assert_eq!(response(&with(&[(5, &long)])), Err(BadRecords::NoCookie));
        let many: Vec<(u16, &[u8])> = vec![(5, b"c"); 100];
        let offer = response(&with(&many)).unwrap().unwrap();
        assert_eq!(offer.cookies.len(), COOKIES);
        let endless = answer(&vec![(0x4000, long.as_slice()); 40]);
        assert_eq!(response(&endless), Err(BadRecords::Long));
    }

    #[test]
    fn corpus_samples_are_read() {
        for sample in samples("nts-records") {
            let expected = match &*sample.name {
                "answer" => response(&sample.bytes).unwrap().is_some(),
                "error" => response(&sample.bytes) == Err(BadRecords::Refused(1)),
                other => panic!("{other}"),
            };
            assert!(expected, "{}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_records_end_in_an_error(bytes in hostile("nts-records")) {
            let _ = response(&bytes);
        }
    }
}

//! Decodes the machine config of a cloud: compressed, encoded, or part of a message.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;

use crate::mime;

/// Size limit of an unpacked config in bytes.
const LARGEST: u64 = 8 << 20;
/// Limit of nested encodings; a tool adds one, a cloud another.
const DEEPEST: usize = 4;

/// Decodes the config; `None` if the data are empty.
///
/// # Errors
/// The reason why the data cannot be a config, and the remedy. The text quotes nothing from the data.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    checked(unwrap(bytes)?)
}

/// Whether the data are empty or for cloud-init. Clouds and hypervisors add such data to machines by themselves, so no
/// operator need have a config there.
#[must_use]
pub fn holds_no_config(bytes: &[u8]) -> bool {
    unwrap(bytes).is_ok_and(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_start_matches('\u{feff}').trim();
        text.is_empty() || text.starts_with("#cloud-config")
    })
}

/// Removes all encodings.
///
/// # Errors
/// Same as [`decode`].
pub(crate) fn unwrap(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = bytes.to_vec();
    for _ in 0..DEEPEST {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            bytes = unpack(&bytes)?;
        } else if let Some(part) = mime::config_part(&bytes)? {
            bytes = part;
        } else if let Some(plain) = plain_of_base64(&bytes) {
            bytes = plain;
        } else {
            return Ok(bytes);
        }
    }
    Err(format!(
        "is encoded more than {DEEPEST} times: use the plain config"
    ))
}

fn checked(bytes: Vec<u8>) -> Result<Option<Vec<u8>>, String> {
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err("is not text: use a machine config in YAML".to_owned());
    };
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Ok(None);
    }
    let foreign = [
        ("#cloud-config", "cloud-init"),
        ("#!", "a shell"),
        ("#include", "cloud-init"),
        ("#cloud-boothook", "cloud-init"),
    ];
    if let Some((_, whose)) = foreign.iter().find(|(first, _)| text.starts_with(first)) {
        return Err(format!("is for {whose}: use a machine config instead"));
    }
    Ok(Some(bytes))
}

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(LARGEST + 1)
        .read_to_end(&mut all)
        .map_err(|error| format!("is broken gzip ({error})"))?;
    if all.len() as u64 > LARGEST {
        return Err(format!("is larger than {} MiB unpacked", LARGEST >> 20));
    }
    Ok(all)
}

/// Decodes base64. A machine config contains colons, so it is never valid base64.
fn plain_of_base64(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let mut letters = bytes.to_vec();
    letters.retain(|byte| !byte.is_ascii_whitespace());
    if letters.is_empty() || !letters.iter().all(|byte| is_letter(*byte)) {
        return None;
    }
    STANDARD.decode(letters).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::{any, proptest};

    use super::*;

    const CONFIG: &[u8] = b"machine: {}\n";

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn message(kind: &str, encoding: &str, body: &str) -> String {
        format!(
            "Content-Type: multipart/mixed;\n boundary=\"==b==\"\nMIME-Version: 1.0\n\nfor others\n--==b==\n\
             Content-Type: text/cloud-config\n\n#cloud-config\n--==b==\nContent-Type: {kind}; charset=\"utf-8\"\n\
             Content-Transfer-Encoding: {encoding}\n\n{body}\n--==b==--\nbehind\n"
        )
    }

    #[test]
    fn every_encoding_of_user_data_is_decoded() {
        let base64 = STANDARD.encode(CONFIG);
        for wrapped in [
            CONFIG.to_vec(),
            packed(CONFIG),
            base64.clone().into_bytes(),
            format!("{}\n{}\n", &base64[..8], &base64[8..]).into_bytes(),
            STANDARD.encode(packed(CONFIG)).into_bytes(),
            packed(base64.as_bytes()),
            message("application/yaml", "base64", &base64).into_bytes(),
            message("text/plain", "7bit", "machine: {}").into_bytes(),
            packed(message("text/x-yaml", "8bit", "machine: {}").as_bytes()),
            b"MIME-Version: 1.0\r\nContent-Type: text/plain\r\n\r\nmachine: {}\n".to_vec(),
        ] {
            assert_eq!(decode(&wrapped), Ok(Some(CONFIG.to_vec())), "{wrapped:?}");
        }
        assert_eq!(decode(b" \n"), Ok(None));
    }

    #[test]
    fn user_data_without_a_config_is_refused_with_a_remedy() {
        let mut cut = packed(CONFIG);
        cut.truncate(12);
        let mut deep = CONFIG.to_vec();
        for _ in 0..5 {
            deep = packed(&deep);
        }
        for (bytes, expected) in [
            (b"#cloud-config\nusers: []".to_vec(), "is for cloud-init"),
            (b"#!/bin/sh\n".to_vec(), "is for a shell"),
            (cut, "is broken gzip"),
            (deep, "is encoded more than 4 times"),
            (
                packed(&vec![b'\n'; 9 << 20]),
                "is larger than 8 MiB unpacked",
            ),
            (vec![0xff, 0xfe, b':'], "is not text"),
            (
                message("text/x-shellscript", "7bit", "x").into_bytes(),
                "is a MIME message without a machine config",
            ),
            (
                message("text/plain", "quoted-printable", "x").into_bytes(),
                "has a part that is encoded neither",
            ),
            (
                message("text/plain", "base64", "%").into_bytes(),
                "has a part that is not base64",
            ),
            (
                b"Content-Type: multipart/mixed\n\n--x\n".to_vec(),
                "is a MIME message without a boundary",
            ),
        ] {
            let why = decode(&bytes).unwrap_err();
            assert!(why.starts_with(expected), "{why}");
        }
    }

    proptest! {
        #[test]
        fn hostile_user_data_never_panics(bytes in any::<Vec<u8>>(), body in "\\PC{0,64}") {
            let _ = decode(&bytes);
            let _ = decode(&[b"Content-Type: multipart/mixed; boundary=a\n\n".as_slice(), &bytes].concat());
            let _ = decode(message("text/plain", "base64", &body).as_bytes());
            let _ = decode(&[[0x1f, 0x8b].as_slice(), &bytes].concat());
        }
    }
}

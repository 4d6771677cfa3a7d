//! A machine config as a cloud hands it on: packed, encoded, or one part among others.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;

use crate::mime;

/// No config is larger, once it is unpacked.
const LARGEST: u64 = 8 << 20;
/// Wrappings around each other; a tool adds one, a cloud another.
const DEEPEST: usize = 4;

/// The config; `None`: there is nothing.
///
/// # Errors
/// The text says why it cannot be one, and the remedy. It has nothing of the data.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = bytes.to_vec();
    for _ in 0..DEEPEST {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            bytes = unpack(&bytes)?;
        } else if let Some(part) = mime::config_part(&bytes)? {
            bytes = part;
        } else if let Some(plain) = plain_of_base64(&bytes) {
            bytes = plain;
        } else {
            return checked(bytes);
        }
    }
    Err(format!(
        "is wrapped more than {DEEPEST} times: give the config itself"
    ))
}

fn checked(bytes: Vec<u8>) -> Result<Option<Vec<u8>>, String> {
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return Err("is no text: give the machine config as YAML".to_owned());
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
        return Err(format!("is for {whose}: give the machine config instead"));
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

/// What a text of base64 holds. A machine config has colons, and is none.
fn plain_of_base64(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let mut letters = bytes.to_vec();
    letters.retain(|byte| !byte.is_ascii_whitespace());
    if letters.is_empty() || !letters.iter().all(|byte| is_letter(*byte)) {
        return None;
    }
    STANDARD.decode(letters).ok()
}

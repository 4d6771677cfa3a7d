//! Extracts a machine config from a MIME message, the format of clouds and tools that serve several systems.
//!
//! Hand-written: such messages use a small part of RFC 2045 and 2046. Maintained crates would add every character set
//! of e-mail to the image.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Part limit of a message.
const MOST: usize = 32;
/// MIME types of a machine config.
const TYPES: [&str; 7] = [
    "text/plain",
    "text/yaml",
    "text/x-yaml",
    "application/yaml",
    "application/x-yaml",
    "application/octet-stream",
    "application/gzip",
];

/// The first part that may be a machine config; `None` if the data are not a MIME message.
///
/// # Errors
/// The message is broken or has no such part.
pub(crate) fn config_part(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Ok(None);
    };
    let first = text.trim_start().lines().next().unwrap_or_default();
    let first = first.to_ascii_lowercase();
    let is_message = first.starts_with("content-type:") || first.starts_with("mime-version:");
    if !is_message {
        return Ok(None);
    }
    let message = Part::read(text.trim_start());
    if !message.kind.starts_with("multipart/") {
        return message.content().map(Some);
    }
    let Some(boundary) = message.boundary else {
        return Err("is a MIME message without a boundary between its parts".to_owned());
    };
    let parts = parts(message.body, &boundary);
    let part = parts.iter().map(|part| Part::read(part));
    let part = part.into_iter().find(|part| TYPES.contains(&&*part.kind));
    match part {
        Some(part) => part.content().map(Some),
        None => Err(format!(
            "is a MIME message without a machine config: add a part of type {}",
            TYPES[3]
        )),
    }
}

/// The parts between the boundary lines.
fn parts(body: &str, boundary: &str) -> Vec<String> {
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in body.split_inclusive('\n') {
        let bare = line.trim_end();
        if bare == close || parts.len() > MOST {
            break;
        }
        if bare == open {
            is_inside = true;
            parts.push(String::new());
        } else if let (true, Some(part)) = (is_inside, parts.last_mut()) {
            part.push_str(line);
        }
    }
    parts
}

struct Part<'a> {
    kind: String,
    boundary: Option<String>,
    encoding: String,
    body: &'a str,
}

impl<'a> Part<'a> {
    fn read(text: &'a str) -> Part<'a> {
        let mut part = Part {
            kind: "text/plain".to_owned(),
            boundary: None,
            encoding: String::new(),
            body: "",
        };
        let mut fields: Vec<String> = Vec::new();
        let mut rest = text;
        while let Some((line, behind)) = rest.split_once('\n') {
            rest = behind;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            // A line that begins with whitespace continues the field.
            match fields.last_mut() {
                Some(field) if line.starts_with([' ', '\t']) => field.push_str(line),
                _ => fields.push(line.to_owned()),
            }
        }
        part.body = rest;
        for field in fields {
            let Some((name, value)) = field.split_once(':') else {
                continue;
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-type") {
                let (kind, settings) = value.split_once(';').unwrap_or((value, ""));
                part.kind = kind.trim().to_ascii_lowercase();
                part.boundary = boundary(settings);
            } else if name.eq_ignore_ascii_case("content-transfer-encoding") {
                part.encoding = value.to_ascii_lowercase();
            }
        }
        part
    }

    fn content(&self) -> Result<Vec<u8>, String> {
        match &*self.encoding {
            "" | "7bit" | "8bit" | "binary" => Ok(self.body.as_bytes().to_vec()),
            "base64" => {
                let mut letters = self.body.as_bytes().to_vec();
                letters.retain(|byte| !byte.is_ascii_whitespace());
                let plain = STANDARD.decode(letters);
                plain.map_err(|error| format!("has a part that is not base64 ({error})"))
            }
            _ => Err("has a part that is encoded neither as text nor as base64".to_owned()),
        }
    }
}

fn boundary(settings: &str) -> Option<String> {
    let mut settings = settings.split(';').filter_map(|one| one.split_once('='));
    let found = settings.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"));
    let boundary = found?.1.trim().trim_matches('"');
    (!boundary.is_empty()).then(|| boundary.to_owned())
}

//! udevd's record of a device (the format of libudev's database, `/run/udev/data`).

use std::collections::BTreeMap;

/// A record of udevd.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    properties: BTreeMap<String, String>,
    pub(super) symlinks: Vec<String>,
}

impl Record {
    /// Parses one fact per line: `E:KEY=value`, `S:name below /dev`, and others.
    pub(super) fn parse(text: &str) -> Record {
        let mut record = Record::default();
        for line in text.lines() {
            match line.split_once(':') {
                Some(("S", link)) => record.symlinks.push(format!("/dev/{link}")),
                Some(("E", property)) => {
                    if let Some((key, value)) = property.split_once('=') {
                        record.properties.insert(key.to_owned(), value.to_owned());
                    }
                }
                _ => {}
            }
        }
        record
    }

    pub(super) fn get(&self, key: &str) -> String {
        self.properties.get(key).cloned().unwrap_or_default()
    }

    /// The decoded value of a property. udevd writes `\x20` for a space, and likewise other characters that rules
    /// cannot contain.
    pub(super) fn text(&self, key: &str) -> String {
        let value = self.get(key);
        let mut parts = value.split("\\x");
        let mut bytes: Vec<u8> = parts.next().unwrap_or_default().into();
        for part in parts {
            let number = part.get(..2).and_then(byte);
            match number.zip(part.get(2..)) {
                Some((byte, rest)) => {
                    bytes.push(byte);
                    bytes.extend(rest.bytes());
                }
                None => {
                    bytes.extend(b"\\x");
                    bytes.extend(part.bytes());
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Parses two hexadecimal digits.
fn byte(text: &str) -> Option<u8> {
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    digits.then(|| u8::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_names_are_decoded() {
        for (kept, name) in [
            ("META", "META"),
            (r"Basic\x20data", "Basic data"),
            (r"\xe4\x5cx20\xc3\xa4", "\u{fffd}\\x20ä"),
            (r"a\x", r"a\x"),
            (r"\x2\xzz\xä", r"\x2\xzz\xä"),
        ] {
            let record = Record::parse(&format!("E:NAME={kept}\n"));
            assert_eq!(record.text("NAME"), name);
        }
    }
}

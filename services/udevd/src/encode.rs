//! Encodes device text for file names, as libudev clients expect it. No I/O.

/// Safe characters besides letters and digits.
const SAFE: &str = "#+-.:=@_";

/// Encoding of `by-label` and the `*_ENC` properties: unsafe characters become `\xHH`; UTF-8 beyond ASCII stays.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || SAFE.contains(c) || (!c.is_ascii() && !c.is_control()) {
            out.push(c);
        } else {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                out.push_str(&format!("\\x{byte:02x}"));
            }
        }
    }
    out
}

/// Encoding of identifiers: white space is trimmed at the ends and becomes one `_` within. Other unsafe characters
/// become `_`.
pub fn identifier(text: &str) -> String {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let mut out = String::with_capacity(text.len());
    let mut space = false;
    for c in text.chars() {
        if c.is_whitespace() {
            if !space {
                out.push('_');
            }
            space = true;
            continue;
        }
        space = false;
        let safe =
            c.is_ascii_alphanumeric() || SAFE.contains(c) || (!c.is_ascii() && !c.is_control());
        out.push(if safe { c } else { '_' });
    }
    out
}

/// Encoding of strings that rules set: unsafe characters that are not in `also` become `_`. With a space in `also`,
/// other white space becomes a space. Escapes `\\xHH` stay.
pub fn safe(text: &str, also: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let is_escape = || c == '\\' && text.get(at + 1..).is_some_and(|t| t.starts_with('x'));
        let stays = c.is_ascii_alphanumeric()
            || SAFE.contains(c)
            || also.contains(c)
            || (!c.is_ascii() && !c.is_control());
        out.push(match c {
            c if stays || is_escape() => c,
            c if c.is_whitespace() && also.contains(' ') => ' ',
            _ => '_',
        });
    }
    out
}

/// Trims white space at the ends; white space within becomes one `_`.
pub fn underscored(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join("_")
}

/// Encoding of `ID_PATH_TAG`: characters other than letters, digits and `-` become `_`.
pub fn tag(text: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    text.chars().map(safe).collect()
}

/// A link's path as one file name: `/` and the escape character are escaped.
pub fn file_name(link: &str) -> String {
    link.replace('\\', "\\x5c").replace('/', "\\x2f")
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Sixteen bytes as a UUID; `None` for fewer and for all zeros.
pub fn uuid(bytes: &[u8]) -> Option<String> {
    let mut hex = hex(bytes.get(..16)?);
    for at in [20, 16, 12, 8] {
        hex.insert(at, '-');
    }
    bytes.iter().any(|b| *b != 0).then_some(hex)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_escaped_for_each_use() {
        assert_eq!(
            super::escaped("my disk/1 \u{e4}"),
            "my\\x20disk\\x2f1\\x20\u{e4}"
        );
        assert_eq!(super::identifier("  QEMU  HARD/DISK \0"), "QEMU_HARD_DISK");
        assert_eq!(
            super::tag("pci-0000:00:1f.2-ata-1"),
            "pci-0000_00_1f_2-ata-1"
        );
        assert_eq!(
            super::file_name("disk/by-id/a\\x20"),
            "disk\\x2fby-id\\x2fa\\x5cx20"
        );
        assert_eq!(super::safe("a b/c\\x20\td", "/"), "a_b/c\\x20_d");
        assert_eq!(super::safe("a$b\tc", "/ $"), "a$b c");
        assert_eq!(super::underscored("  a \t b "), "a_b");
        assert_eq!(super::uuid(&[0; 16]), None);
        assert_eq!(
            super::uuid(&[0xab; 16]).as_deref(),
            Some("abababab-abab-abab-abab-abababababab")
        );
    }
}

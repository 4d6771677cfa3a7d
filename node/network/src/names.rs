//! Checks names from outside.

/// Whether untrusted text is a valid DNS name (RFC 1123, 2.1), safe to write into files and messages.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dns_names_are_names() {
        assert!(is_name("node-1.example") && is_name("a"));
        for text in ["", "-a", "a-", "a..b", "a b", "a\nb", "a.", "ä"] {
            assert!(!is_name(text), "{text:?}");
        }
        assert!(!is_name(&"a".repeat(64)) && !is_name(&"a.".repeat(127)));
    }
}

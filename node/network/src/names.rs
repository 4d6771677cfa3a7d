//! Checks names from outside.

pub use corten_config::values::is_host_name as is_name;

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

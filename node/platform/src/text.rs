//! Checks of untrusted text.

/// Size limit in bytes of a short text, such as a name, a zone or a tag.
const LONGEST_TEXT: usize = 1024;

/// Whether an untrusted word is a safe segment of a URL's path.
pub(crate) fn is_segment(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:=@+".contains(&byte);
    (1..=256).contains(&word.len()) && word.bytes().all(is_plain) && !matches!(word, "." | "..")
}

/// Whether a text is short and safe to print on a terminal.
pub(crate) fn is_line(text: &str) -> bool {
    text.len() <= LONGEST_TEXT && !text.chars().any(char::is_control)
}

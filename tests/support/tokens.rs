//! Rust source as tokens, so that comments, strings and macros cannot mislead a search for a word.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

/// Every identifier of a source text with its line.
///
/// # Errors
/// The text is not Rust.
pub fn identifiers(source: &str) -> Result<Vec<(String, usize)>, String> {
    let stream: TokenStream = source.parse().map_err(|error| format!("{error}"))?;
    let mut found = Vec::new();
    collect(stream, &mut found);
    Ok(found)
}

fn collect(stream: TokenStream, found: &mut Vec<(String, usize)>) {
    for token in stream {
        match token {
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(ident) => {
                found.push((ident.to_string(), ident.span().start().line));
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Number of lines with at least one token: not blank, no comment, no documentation. A multi-line
/// string counts with all its lines.
///
/// # Errors
/// The text is not Rust.
pub fn code_lines(source: &str) -> Result<usize, String> {
    let stream: TokenStream = source.parse().map_err(|error| format!("{error}"))?;
    let mut lines = BTreeSet::new();
    mark(stream, &mut lines);
    // Documentation comments are tokens to the compiler, but not code.
    let comments = (1..).zip(source.lines());
    for (number, _) in comments.filter(|(_, text)| text.trim_start().starts_with("//")) {
        lines.remove(&number);
    }
    Ok(lines.len())
}

fn mark(stream: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in stream {
        if let TokenTree::Group(group) = &token {
            lines.insert(group.span_open().start().line);
            lines.insert(group.span_close().start().line);
            mark(group.stream(), lines);
        } else {
            let span = token.span();
            lines.extend(span.start().line..=span.end().line);
        }
    }
}

/// The lines of text of a file's header, the documentation in front of its code.
#[must_use]
pub fn header(source: &str) -> Vec<&str> {
    source
        .lines()
        .skip_while(|line| line.starts_with("#![") || line.is_empty())
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_read_from_code_only() {
        let source = "// unsafe\n/* unsafe /* nested */ */\n/// unsafe\nfn a() { \"unsafe\"; r#\"unsafe\"#; 'u'; }\n\
                      macro_rules! m { () => { unsafe {} } }\n";
        let words = identifiers(source).unwrap();
        let unsafe_words: Vec<_> = words.iter().filter(|(word, _)| word == "unsafe").collect();
        assert_eq!(unsafe_words, [&("unsafe".to_owned(), 5)]);
    }

    #[test]
    fn header_is_the_text_in_front_of_the_code() {
        let source =
            "#![deny(x)]\n\n//! What.\n//!\n//!  Why.\nuse a;\n//! Not here.\n/// Nor here.\n";
        assert_eq!(header(source), ["What.", "Why."]);
        assert!(header("/// Of an item.\nfn a() {}\n").is_empty());
    }

    #[test]
    fn lines_with_code_are_counted() {
        let source = "//! Header.\n\n/// Doc.\nfn a() {\n    // why\n    b(\"x\ny\");\n}\n";
        assert_eq!(code_lines(source).unwrap(), 4);
    }
}

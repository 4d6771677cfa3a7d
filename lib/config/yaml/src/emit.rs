//! Writes a tree as YAML: 4 spaces per level, quotes only where needed.

use crate::tree::{Content, Key, Node, reads_as_text};

/// One document.
#[must_use]
pub fn document(node: &Node) -> String {
    let mut out = String::new();
    match &node.content {
        Content::Map(entries) if !entries.is_empty() => map(entries, 0, false, &mut out),
        Content::List(items) if !items.is_empty() => list(items, 0, false, &mut out),
        _ => scalar_or_empty(node, None, &mut out),
    }
    out
}

/// Several documents.
pub fn stream<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> String {
    let documents: Vec<String> = nodes.into_iter().map(document).collect();
    documents.join("---\n")
}

fn map(entries: &[(Key, Node)], indent: usize, inline: bool, out: &mut String) {
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 || !inline {
            spaces(indent, out);
        }
        if reads_as_text(&key.name) && is_plain(&key.name) {
            out.push_str(&key.name);
        } else {
            quote(&key.name, out);
        }
        out.push(':');
        match &value.content {
            Content::Map(inner) if !inner.is_empty() => {
                out.push('\n');
                map(inner, indent + 4, false, out);
            }
            Content::List(inner) if !inner.is_empty() => {
                out.push('\n');
                list(inner, indent + 4, false, out);
            }
            _ => {
                out.push(' ');
                scalar_or_empty(value, Some(indent + 4), out);
            }
        }
    }
}

fn list(items: &[Node], indent: usize, inline: bool, out: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !inline {
            spaces(indent, out);
        }
        out.push_str("- ");
        match &item.content {
            Content::Map(inner) if !inner.is_empty() => map(inner, indent + 2, true, out),
            Content::List(inner) if !inner.is_empty() => list(inner, indent + 2, true, out),
            _ => scalar_or_empty(item, Some(indent + 2), out),
        }
    }
}

/// `block`: indentation of a literal block; `None`: no block is possible here.
fn scalar_or_empty(node: &Node, block: Option<usize>, out: &mut String) {
    match (&node.content, block) {
        (Content::Map(_), _) => out.push_str("{}"),
        (Content::List(_), _) => out.push_str("[]"),
        // A number, a boolean or null keeps its type only without quotes.
        (Content::Scalar { text, plain: true }, _) if !reads_as_text(text) => out.push_str(text),
        (Content::Scalar { text, .. }, Some(indent)) if is_literal(text) => {
            literal(text, indent, out);
            return;
        }
        (Content::Scalar { text, .. }, _) => {
            if reads_as_text(text) && is_plain(text) {
                out.push_str(text);
            } else {
                quote(text, out);
            }
        }
    }
    out.push('\n');
}

fn spaces(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Whether a literal block can represent the text.
fn is_literal(text: &str) -> bool {
    let usual = |c: char| c == '\n' || is_printable(c);
    text.trim_end_matches('\n').contains('\n')
        && !text.starts_with([' ', '\n'])
        && text.chars().all(usual)
        && !text.lines().any(|line| line.ends_with(' '))
}

fn literal(text: &str, indent: usize, out: &mut String) {
    let body = text.trim_end_matches('\n');
    out.push_str(match text.len() - body.len() {
        0 => "|-\n",
        1 => "|\n",
        _ => "|+\n",
    });
    for line in body.split('\n') {
        if !line.is_empty() {
            spaces(indent, out);
            out.push_str(line);
        }
        out.push('\n');
    }
    for _ in 1..text.len() - body.len() {
        out.push('\n');
    }
}

/// Characters that YAML allows unescaped, except tabs and line breaks.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

/// Whether a text can stand without quotes in block context.
fn is_plain(text: &str) -> bool {
    let indicators = [
        '-', '?', ':', ',', '[', ']', '{', '}', '#', '&', '*', '!', '|', '>', '\'', '"', '%', '@',
        '`', '=', '<', ' ',
    ];
    !text.is_empty()
        && !text.starts_with(indicators)
        && !text.ends_with([' ', ':'])
        && !text.starts_with("...")
        && !text.contains(": ")
        && !text.contains(" #")
        && text.chars().all(is_printable)
        && !reads_otherwise_in_yaml_1_1(text)
}

/// Words that YAML 1.1 parsers read as booleans, numbers or times.
fn reads_otherwise_in_yaml_1_1(text: &str) -> bool {
    let words = ["y", "n", "yes", "no", "on", "off"];
    let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b'_' | b':' | b'.' | b'-' | b'+');
    words.contains(&text.to_ascii_lowercase().as_str())
        || (text.starts_with(|c: char| c.is_ascii_digit())
            && text.contains(['_', ':', '-'])
            && text.bytes().all(numeric))
}

/// A double-quoted scalar.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
}

//! Writing a tree back, without its secrets.

use crate::schema::{self, Field, Shape};
use crate::tree::{Kind, Node};

/// What stands in a secret's place.
const HIDDEN: &str = "\"******\"";

/// The documents as YAML, every secret replaced.
pub(crate) fn redacted(trees: &[Node]) -> String {
    let mut out = String::new();
    for (index, tree) in trees.iter().enumerate() {
        if index > 0 {
            out.push_str("---\n");
        }
        value(tree, Some(Shape::Fields(schema::ROOT)), 0, &mut out);
    }
    out
}

fn value(node: &Node, shape: Option<Shape>, depth: usize, out: &mut String) {
    match &node.kind {
        Kind::Scalar { text, plain } => {
            out.push_str(&if *plain { text.clone() } else { quoted(text) });
            out.push('\n');
        }
        Kind::List(items) if items.is_empty() => out.push_str("[]\n"),
        Kind::Map(entries) if entries.is_empty() => out.push_str("{}\n"),
        Kind::List(items) => {
            let inner = match shape {
                Some(Shape::List(fields)) => Some(Shape::Fields(fields)),
                _ => None,
            };
            for item in items {
                indent(depth, out);
                out.push('-');
                child(item, inner, depth, out);
            }
        }
        Kind::Map(entries) => {
            for (key, item) in entries {
                let field = match shape {
                    Some(Shape::Fields(fields)) => find(fields, &key.name),
                    _ => None,
                };
                indent(depth, out);
                out.push_str(&quoted_if_needed(&key.name));
                out.push(':');
                if field.is_some_and(|field| field.secret) && !item.is_empty() {
                    out.push(' ');
                    out.push_str(HIDDEN);
                    out.push('\n');
                } else {
                    child(item, field.map(|field| field.shape), depth, out);
                }
            }
        }
    }
}

fn child(item: &Node, shape: Option<Shape>, depth: usize, out: &mut String) {
    let block = match &item.kind {
        Kind::Scalar { .. } => false,
        Kind::List(items) => !items.is_empty(),
        Kind::Map(entries) => !entries.is_empty(),
    };
    out.push(if block { '\n' } else { ' ' });
    value(item, shape, depth + 1, out);
}

fn find<'a>(fields: &'a [Field], name: &str) -> Option<&'a Field> {
    fields.iter().find(|field| field.name == name)
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("    ", depth));
}

fn quoted_if_needed(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts && name.chars().all(plain) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

/// A double-quoted scalar.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

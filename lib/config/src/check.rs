//! Holds a tree against the schema.

use crate::problem::Notes;
use crate::schema::{Field, Shape, Support};
use crate::tree::{Kind, Node};

/// Notes every field that is unknown, not supported yet, or of a wrong shape.
pub(crate) fn fields(node: &Node, known: &[Field], path: &str, notes: &mut Notes) {
    let Kind::Map(entries) = &node.kind else {
        notes.add(
            node.mark,
            path,
            format!("{} must be a map of fields", shown(path)),
        );
        return;
    };
    for (key, value) in entries {
        let here = if path.is_empty() {
            key.name.clone()
        } else {
            format!("{path}.{}", key.name)
        };
        let Some(field) = known.iter().find(|field| field.name == key.name) else {
            let hint = nearest(&key.name, known)
                .map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
            notes.add(
                key.mark,
                &here,
                format!("unknown field: {}{hint}", printable(&here)),
            );
            continue;
        };
        if value.is_empty() {
            continue;
        }
        if field.support == Support::NotYet {
            notes.add(key.mark, &here, format!("not supported yet: {here}"));
            continue;
        }
        shape(value, field.shape, &here, notes);
    }
}

fn shape(value: &Node, wanted: Shape, path: &str, notes: &mut Notes) {
    let wrong = |notes: &mut Notes, what: &str| {
        notes.add(value.mark, path, format!("{path} must be {what}"));
    };
    match wanted {
        Shape::Anything => {}
        Shape::Text => {
            if value.text().is_none() {
                wrong(notes, "a single value");
            }
        }
        Shape::Bool => {
            if truth(value).is_none() {
                wrong(notes, "true or false");
            }
        }
        Shape::Int => {
            if value
                .text()
                .and_then(|text| text.parse::<i64>().ok())
                .is_none()
            {
                wrong(notes, "a whole number");
            }
        }
        Shape::Texts => match &value.kind {
            Kind::List(items) if items.iter().all(|item| item.text().is_some()) => {}
            _ => wrong(notes, "a list of values"),
        },
        Shape::TextMap => match &value.kind {
            Kind::Map(entries)
                if entries
                    .iter()
                    .all(|(_, v)| matches!(v.kind, Kind::Scalar { .. })) => {}
            _ => wrong(notes, "a map of values"),
        },
        Shape::Fields(known) => fields(value, known, path, notes),
        Shape::List(known) => {
            let Kind::List(items) = &value.kind else {
                return wrong(notes, "a list");
            };
            for (index, item) in items.iter().enumerate() {
                fields(item, known, &format!("{path}[{index}]"), notes);
            }
        }
    }
}

/// A boolean as YAML 1.2 writes it.
pub(crate) fn truth(node: &Node) -> Option<bool> {
    match &node.kind {
        Kind::Scalar { text, plain: true } => match text.as_str() {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn shown(path: &str) -> &str {
    if path.is_empty() {
        "the document"
    } else {
        path
    }
}

/// Field names come from outside: what goes to a terminal or a log is short
/// and without control characters.
fn printable(path: &str) -> String {
    path.chars()
        .take(200)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// A known name one or two slips away.
fn nearest(name: &str, known: &[Field]) -> Option<&'static str> {
    if name.len() > 64 {
        return None;
    }
    let near = |field: &&Field| {
        let limit = if field.name.len() > 4 { 2 } else { 1 };
        field.name.eq_ignore_ascii_case(name) || distance(name, field.name) <= limit
    };
    known
        .iter()
        .filter(near)
        .map(|field| field.name)
        .min_by_key(|n| distance(name, n))
}

/// Levenshtein distance of two short names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((j, y), pair) in b.iter().enumerate().zip(row.windows(2)) {
            let [corner, above] = pair else { continue };
            let left = next.get(j).copied().unwrap_or_default();
            next.push((left + 1).min(above + 1).min(corner + usize::from(x != *y)));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

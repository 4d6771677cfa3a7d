//! Redaction of secrets, and canonical order.

use std::collections::HashSet;

use corten_yaml::emit;
use corten_yaml::table::{self, Field, Shape, Support};
use corten_yaml::tree::{Content, Key, Node};

use crate::identity::{Identity, identity, table_of};
use crate::kinds::HEADER;

/// Replacement for a secret.
const HIDDEN: &str = "******";
/// Replacement for a secret that the other config lacks.
const HIDDEN_CHANGED: &str = "****** (changed)";

/// Variables of a container, in an object of Kubernetes such as a static pod. Their values often are secrets.
const VARIABLES: Shape = Shape::List(&Shape::Fields(&[Field::new(
    "value",
    "Value",
    Shape::Secret,
    Support::Acted,
)]));

/// The documents as YAML with every secret replaced.
pub(crate) fn redacted(trees: &[Node]) -> String {
    let hidden: Vec<Node> = trees
        .iter()
        .map(|tree| hide(tree, &mut |_| HIDDEN))
        .collect();
    emit::stream(&hidden)
}

/// The redacted documents in canonical order, so that only real differences show. Secrets that `known` lacks are
/// marked.
#[must_use]
pub fn canonical(trees: &[Node], known: Option<&[Node]>) -> String {
    let secrets: Option<HashSet<String>> = known.map(|trees| {
        let mut secrets = HashSet::new();
        for tree in trees {
            hide(tree, &mut |secret| {
                secrets.insert(emit::document(secret));
                HIDDEN
            });
        }
        secrets
    });
    let mut documents: Vec<(Identity, Node)> = trees
        .iter()
        .map(|tree| {
            let mut place = |secret: &Node| match &secrets {
                Some(secrets) if !secrets.contains(&emit::document(secret)) => HIDDEN_CHANGED,
                _ => HIDDEN,
            };
            let hidden = hide(tree, &mut place);
            let shape = table_of(tree).map(Shape::Fields);
            (identity(tree), ordered(&hidden, shape))
        })
        .collect();
    documents.sort_by(|(a, _), (b, _)| a.cmp(b));
    emit::stream(documents.iter().map(|(_, node)| node))
}

type Place<'a> = &'a mut dyn FnMut(&Node) -> &'static str;

fn hide(tree: &Node, place: Place<'_>) -> Node {
    match table_of(tree) {
        Some(table) => hidden(tree, Some(Shape::Fields(table)), place),
        // An unknown document may hold secrets anywhere, so only its identity is shown.
        None => Node::new(Content::Map(
            tree.entries()
                .iter()
                .map(|(key, value)| {
                    let open = HEADER.contains(&key.name.as_str()) || key.name == "name";
                    let value = if open {
                        value.clone()
                    } else {
                        text(place(value))
                    };
                    (key.clone(), value)
                })
                .collect(),
        )),
    }
}

fn hidden(node: &Node, shape: Option<Shape>, place: Place<'_>) -> Node {
    let content = match (&node.content, shape) {
        (Content::Scalar { .. }, Some(Shape::Secret)) if !node.is_empty() => {
            return text(place(node));
        }
        (Content::Scalar { text, plain }, _) => Content::Scalar {
            text: without_password(text),
            plain: *plain,
        },
        (Content::List(items), shape) => {
            let inner = match shape {
                Some(Shape::List(inner)) => Some(*inner),
                Some(Shape::Object) => shape,
                _ => None,
            };
            Content::List(
                items
                    .iter()
                    .map(|item| hidden(item, inner, place))
                    .collect(),
            )
        }
        (Content::Map(entries), shape) => Content::Map(
            entries
                .iter()
                .map(|(key, value)| (key.clone(), entry(&key.name, value, shape, place)))
                .collect(),
        ),
    };
    Node {
        mark: node.mark,
        content,
    }
}

fn entry(name: &str, value: &Node, shape: Option<Shape>, place: Place<'_>) -> Node {
    let field = match shape {
        Some(Shape::Fields(table)) => table::find(table, name),
        Some(Shape::Map(inner)) => return hidden(value, Some(*inner), place),
        Some(Shape::Object) if name == "env" => return hidden(value, Some(VARIABLES), place),
        Some(Shape::Object) => return hidden(value, shape, place),
        _ => None,
    };
    match field {
        Some(field) if field.secret && !value.is_empty() => match &value.content {
            // The keys of a secret map stay visible, to show which secret changed.
            Content::Map(entries) => Node::new(Content::Map(
                entries
                    .iter()
                    .map(|(key, value)| (key.clone(), text(place(value))))
                    .collect(),
            )),
            _ => text(place(value)),
        },
        field => hidden(value, field.map(|field| field.shape), place),
    }
}

/// Redacts the password in a URL, wherever the URL stands.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len());
    match rest.get(..end).and_then(|authority| authority.rfind('@')) {
        Some(at) => format!("{scheme}://{HIDDEN}{}", rest.get(at..).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn text(text: &str) -> Node {
    Node::new(Content::Scalar {
        text: text.to_owned(),
        plain: false,
    })
}

/// Fields in the order of the table, free names sorted, and text fields without regard to quotes.
fn ordered(node: &Node, shape: Option<Shape>) -> Node {
    let content = match (&node.content, shape) {
        (Content::Scalar { text, .. }, Some(Shape::Text(_) | Shape::Choice(_))) => {
            Content::Scalar {
                text: text.clone(),
                plain: false,
            }
        }
        (Content::Scalar { .. }, _) => node.content.clone(),
        (Content::List(items), shape) => {
            let inner = match shape {
                Some(Shape::List(inner)) => Some(*inner),
                _ => None,
            };
            Content::List(items.iter().map(|item| ordered(item, inner)).collect())
        }
        (Content::Map(entries), shape) => {
            let table = match shape {
                Some(Shape::Fields(table)) => table,
                _ => &[],
            };
            let rank = |key: &Key| {
                let header = HEADER.iter().position(|name| *name == key.name);
                let field = table::fields(table).position(|field| field.name == key.name);
                (header.is_none(), header, field.is_none(), field)
            };
            let mut entries: Vec<(Key, Node)> = entries
                .iter()
                // An empty value is not a difference.
                .filter(|(_, value)| table.is_empty() || !value.is_empty())
                .map(|(key, value)| {
                    let inner = match shape {
                        Some(Shape::Map(inner)) => Some(*inner),
                        _ => table::find(table, &key.name).map(|field| field.shape),
                    };
                    (key.clone(), ordered(value, inner))
                })
                .collect();
            entries.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)).then(a.name.cmp(&b.name)));
            Content::Map(entries)
        }
    };
    Node {
        mark: node.mark,
        content,
    }
}

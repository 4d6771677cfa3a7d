//! Strategic merge: maps are merged, scalars replaced, lists appended to unless their table says otherwise.
//!
//! `$patch: delete` removes a document, a map, or the list item that matches the one other key. A missing target is not
//! an error. Empty values (null, `""`) change nothing.

use corten_yaml::problem::Notes;
use corten_yaml::table::{self, Field, Merge, Shape};
use corten_yaml::tree::{Content, Key, Node};

use corten_config::identity::identity;
use corten_config::identity::table_of;

/// The key of a directive.
const DIRECTIVE: &str = "$patch";

/// Reports content that no patch may have.
pub(super) fn check(node: &Node, notes: &mut Notes) {
    if !matches!(node.content, Content::Map(_)) {
        notes.add(
            node.mark,
            "",
            "a patch is a document with fields, or a list of JSON patch operations",
        );
        return;
    }
    let is_root = node.get("kind").is_none();
    if is_root && deletes(node) {
        notes.add(
            node.mark,
            DIRECTIVE,
            "the v1alpha1 document cannot be deleted",
        );
    }
    if deletes(node) && node.get("apiVersion").and_then(Node::text) != Some("v1alpha1") {
        notes.add(
            node.mark,
            "apiVersion",
            "a document to delete is named by apiVersion: v1alpha1, kind and name",
        );
    }
    directives(node, notes);
}

fn directives(node: &Node, notes: &mut Notes) {
    for (key, value) in node.entries() {
        if key.name == DIRECTIVE && value.text() != Some("delete") {
            notes.add(value.mark, DIRECTIVE, "$patch must be delete");
        }
        directives(value, notes);
    }
    for item in node.items() {
        if deletes(item) && item.entries().len() != 2 {
            notes.add(
                item.mark,
                DIRECTIVE,
                "an item to delete is named by exactly one key beside $patch",
            );
        }
        directives(item, notes);
    }
}

fn deletes(node: &Node) -> bool {
    node.get(DIRECTIVE).is_some()
}

/// Merges a document into the one of its kind and name, or adds it.
pub(super) fn document(trees: &mut Vec<Node>, patch: &Node) {
    let wanted = identity(patch);
    let place = trees.iter().position(|tree| identity(tree) == wanted);
    match (place, deletes(patch)) {
        (Some(place), true) => drop(trees.remove(place)),
        (None, true) => {}
        (Some(place), false) => {
            let Some(tree) = trees.get_mut(place) else {
                return;
            };
            value(
                tree,
                patch,
                table_of(patch).map(Shape::Fields),
                Merge::Append,
            );
        }
        (None, false) => trees.extend(cleaned(patch)),
    }
}

fn value(base: &mut Node, patch: &Node, shape: Option<Shape>, merge: Merge) {
    if patch.is_null() || matches!(&patch.content, Content::Scalar { text, .. } if text.is_empty())
    {
        return;
    }
    if merge == Merge::Replace {
        base.clone_from(&cleaned(patch).unwrap_or_else(|| patch.clone()));
        return;
    }
    match (&mut base.content, &patch.content) {
        (Content::Map(entries), Content::Map(changes)) => {
            for (key, change) in changes {
                field(entries, key, change, shape);
            }
        }
        (Content::List(items), Content::List(changes)) => {
            let inner = match shape {
                Some(Shape::List(inner)) => Some(*inner),
                _ => None,
            };
            for change in changes {
                item(items, change, inner, merge);
            }
        }
        _ => base.clone_from(&cleaned(patch).unwrap_or_else(|| patch.clone())),
    }
}

fn field(entries: &mut Vec<(Key, Node)>, key: &Key, change: &Node, shape: Option<Shape>) {
    let known: Option<&Field> = match shape {
        Some(Shape::Fields(table)) => table::find(table, &key.name),
        _ => None,
    };
    let inner = match shape {
        Some(Shape::Map(inner)) => Some(*inner),
        _ => known.map(|field| field.shape),
    };
    let merge = match shape {
        Some(Shape::Arguments) => Merge::Replace,
        _ => known.map_or(Merge::Append, |field| field.merge),
    };
    if deletes(change) {
        entries.retain(|(old, _)| old.name != key.name);
        return;
    }
    match entries.iter_mut().find(|(old, _)| old.name == key.name) {
        Some((_, old)) => value(old, change, inner, merge),
        None => entries.extend(cleaned(change).map(|new| (key.clone(), new))),
    }
}

fn item(items: &mut Vec<Node>, change: &Node, shape: Option<Shape>, merge: Merge) {
    if deletes(change) {
        let named = change
            .entries()
            .iter()
            .find(|(key, _)| key.name != DIRECTIVE);
        if let Some((key, wanted)) = named {
            items.retain(|item| item.entry(&key.name) != Some(wanted));
        }
        return;
    }
    let same = |item: &Node, keys: &[&str]| {
        let key = keys.iter().find(|key| change.get(key).is_some());
        key.is_some_and(|key| item.get(key) == change.get(key))
    };
    let old = match merge {
        Merge::By(keys) => items.iter_mut().find(|item| same(item, keys)),
        Merge::Append | Merge::Replace => None,
    };
    match old {
        Some(old) => value(old, change, shape, Merge::Append),
        None => items.extend(cleaned(change)),
    }
}

/// A part of a patch without a target, without its deletions.
fn cleaned(patch: &Node) -> Option<Node> {
    if deletes(patch) {
        return None;
    }
    let content = match &patch.content {
        Content::Scalar { .. } => patch.content.clone(),
        Content::List(items) => Content::List(items.iter().filter_map(cleaned).collect()),
        Content::Map(entries) => Content::Map(
            entries
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), cleaned(value)?)))
                .collect(),
        ),
    };
    Some(Node {
        mark: patch.mark,
        content,
    })
}

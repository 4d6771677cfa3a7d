//! Settings that the node keeps without acting on them, because that part does not exist yet.

use corten_yaml::table::{self, Field, Shape, Support};
use corten_yaml::tree::Node;

use crate::document::Document;
use crate::identity::{identity, table_of};
use crate::kinds;

/// Limit of the listed settings.
const NAMED: usize = 32;

impl Document {
    /// A sentence that lists the fields and documents that are only kept; `None`: the node acts on all.
    #[must_use]
    pub fn kept(&self) -> Option<String> {
        let mut paths = Paths::default();
        for tree in self.trees() {
            paths.document(tree);
        }
        let Paths(paths) = paths;
        let (shown, more) = paths.split_at_checked(NAMED).unwrap_or((&paths, &[]));
        if shown.is_empty() {
            return None;
        }
        let more = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = shown.join(", ");
        Some(format!(
            "kept, and not acted on by this version: {shown}{more}"
        ))
    }
}

/// Paths without duplicates, in the order of the text.
#[derive(Default)]
struct Paths(Vec<String>);

impl Paths {
    fn add(&mut self, path: &str) {
        let path = corten_yaml::problem::printable(path);
        if !self.0.contains(&path) {
            self.0.push(path);
        }
    }

    fn document(&mut self, tree: &Node) {
        let identity = identity(tree);
        let start = match identity.kind.as_str() {
            "" => String::new(),
            kind => {
                if kinds::kind(kind).is_some_and(|info| info.support == Support::Held) {
                    return self.add(&identity.to_string());
                }
                format!("{identity}: ")
            }
        };
        if let Some(table) = table_of(tree) {
            self.fields(tree, table, &start);
        }
    }

    fn fields(&mut self, node: &Node, fields: &'static [Field], start: &str) {
        for (key, value) in node.entries() {
            let Some(field) = table::find(fields, &key.name) else {
                continue;
            };
            // An empty value has no effect.
            if value.is_empty() && !field.even_empty {
                continue;
            }
            let path = format!("{start}{}", field.name);
            match field.support {
                Support::Held => self.add(&path),
                Support::Acted => self.within(value, field.shape, &path),
                Support::Later => {}
            }
        }
    }

    fn within(&mut self, node: &Node, shape: Shape, path: &str) {
        match shape {
            Shape::Fields(inner) => self.fields(node, inner, &format!("{path}.")),
            Shape::List(inner) => {
                for item in node.items() {
                    self.within(item, *inner, &format!("{path}[]"));
                }
            }
            Shape::Map(inner) => {
                for (_, value) in node.entries() {
                    self.within(value, *inner, &format!("{path}.*"));
                }
            }
            Shape::Text(_)
            | Shape::Choice(_)
            | Shape::Plain(_)
            | Shape::Secret
            | Shape::Object
            | Shape::Arguments => {}
        }
    }
}

//! Additional arguments of a program, and mounts of a container.

use std::collections::BTreeMap;

use corten_yaml::read::{Reader, Value};
use corten_yaml::table::Shape;
use corten_yaml::tree::{Content, Node};

/// Additional arguments of a program: values by name, without the dashes. Several values repeat the argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arguments(pub BTreeMap<String, Vec<String>>);

const NAME: &str = "must be named as in the program's help, without the dashes in front: lower-case letters, digits, dashes";
const VALUES: &str = "must be a text, or a list of texts";

impl Value for Arguments {
    const SHAPE: Shape = Shape::Arguments;

    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        if node.is_null() {
            return Some(Arguments::default());
        }
        if !matches!(node.content, Content::Map(_)) {
            reader.wrong(node.mark, "must be a map from arguments to their values");
            return None;
        }
        let mut arguments = BTreeMap::new();
        for (key, value) in node.entries() {
            reader.within(&key.name, |reader| {
                if !is_name(&key.name) {
                    reader.wrong(key.mark, NAME);
                }
                match values(value) {
                    Some(values) => {
                        arguments.insert(key.name.clone(), values);
                    }
                    None => reader.wrong(value.mark, VALUES),
                }
            });
        }
        Some(Arguments(arguments))
    }
}

fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && !name.starts_with('-') && name.chars().all(good)
}

fn values(node: &Node) -> Option<Vec<String>> {
    let text = |node: &Node| {
        let text = node.text()?;
        (!text.contains('\0')).then(|| text.to_owned())
    };
    match &node.content {
        Content::List(items) => items.iter().map(text).collect(),
        _ => Some(vec![text(node)?]),
    }
}

/// Reports arguments that the node sets itself.
pub fn check_protected(node: &Node, field: &str, protected: &[&str], reader: &mut Reader<'_>) {
    let entries = node.get(field).map(Node::entries).unwrap_or_default();
    reader.within(field, |reader| {
        let set = entries
            .iter()
            .filter(|(key, _)| protected.contains(&key.name.as_str()));
        for (key, _) in set {
            let what = "is set by the node, and no other value works: leave it out";
            reader.within(&key.name, |reader| reader.wrong(key.mark, what));
        }
    });
}

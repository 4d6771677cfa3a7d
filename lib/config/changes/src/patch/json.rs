//! JSON patches (RFC 6902) on trees. A config's scalars keep their original text (`0123`, `1.10`), which JSON values
//! would not.

use corten_yaml::problem::{Mark, Notes, printable};
use corten_yaml::tree::{Budget, Content, Key, Node};

/// One operation.
pub(super) struct Operation {
    mark: Mark,
    /// Path of RFC 6901, split and unescaped.
    path: Vec<String>,
    verb: Verb,
}

enum Verb {
    Add(Node),
    Remove,
    Replace(Node),
    Move(Vec<String>),
    Copy(Vec<String>),
    Test(Node),
}

/// Parses an operation and reports its problems.
pub(super) fn operation(node: &Node, notes: &mut Notes) -> Option<Operation> {
    let name = node.get("op").and_then(Node::text);
    let path = pointer(node, "path", notes);
    let mut value = || {
        let value = node.entry("value").cloned();
        if value.is_none() {
            notes.add(node.mark, "value", "this operation needs a value");
        }
        value
    };
    let verb = match name {
        Some("add") => Verb::Add(value()?),
        Some("replace") => Verb::Replace(value()?),
        Some("test") => Verb::Test(value()?),
        Some("remove") => Verb::Remove,
        Some("move") => Verb::Move(pointer(node, "from", notes)?),
        Some("copy") => Verb::Copy(pointer(node, "from", notes)?),
        _ => {
            let mark = node.get("op").map_or(node.mark, |op| op.mark);
            notes.add(
                mark,
                "op",
                "op must be one of add, remove, replace, move, copy, test",
            );
            return None;
        }
    };
    Some(Operation {
        mark: node.mark,
        path: path?,
        verb,
    })
}

fn pointer(node: &Node, field: &str, notes: &mut Notes) -> Option<Vec<String>> {
    let text = node.entry(field).and_then(|node| match &node.content {
        Content::Scalar { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let Some(text) = text.filter(|text| text.is_empty() || text.starts_with('/')) else {
        let mark = node.entry(field).map_or(node.mark, |value| value.mark);
        notes.add(
            mark,
            field,
            format!("{field} must be a pointer such as /machine/network/hostname"),
        );
        return None;
    };
    let unescaped = |step: &str| step.replace("~1", "/").replace("~0", "~");
    Some(text.split('/').skip(1).map(unescaped).collect())
}

/// Applies operations in order; stops at the first failure and reports it.
pub(super) fn apply(tree: &mut Node, operations: &[Operation], notes: &mut Notes) {
    let mut budget = Budget::default();
    for operation in operations {
        let path = &operation.path;
        let done = match &operation.verb {
            Verb::Add(value) => budget
                .pay(value, path.len())
                .and_then(|()| add(tree, path, value.clone())),
            Verb::Remove => remove(tree, path).map(drop),
            Verb::Replace(value) => budget
                .pay(value, path.len())
                .and_then(|()| find(tree, path))
                .map(|old| old.clone_from(value)),
            Verb::Move(from) if path.len() > from.len() && path.starts_with(from) => {
                Err("a value cannot be moved into itself".to_owned())
            }
            Verb::Move(from) => remove(tree, from).and_then(|value| {
                budget.pay(&value, path.len())?;
                add(tree, path, value)
            }),
            Verb::Copy(from) => find(tree, from)
                .map(|value| &*value)
                .and_then(|value| {
                    budget.pay(value, path.len())?;
                    Ok(value.clone())
                })
                .and_then(|value| add(tree, path, value)),
            Verb::Test(value) => find(tree, path).and_then(|found| {
                let same = found == value;
                same.then_some(())
                    .ok_or_else(|| format!("the test of {} failed", shown(path)))
            }),
        };
        if let Err(why) = done {
            notes.add(
                operation.mark,
                "",
                format!("the patch cannot be applied: {why}"),
            );
            return;
        }
    }
}

fn shown(path: &[String]) -> String {
    if path.is_empty() {
        return "the document".to_owned();
    }
    printable(
        &path
            .iter()
            .map(|step| format!("/{step}"))
            .collect::<String>(),
    )
}

fn missing(path: &[String]) -> String {
    format!("{} does not exist", shown(path))
}

/// An index in the form of RFC 6901, section 4: no sign, no leading zero.
fn index(step: &str) -> Option<usize> {
    let usual = step.bytes().all(|b| b.is_ascii_digit()) && (step == "0" || !step.starts_with('0'));
    step.parse().ok().filter(|_| usual)
}

fn find<'a>(tree: &'a mut Node, path: &[String]) -> Result<&'a mut Node, String> {
    let mut node = tree;
    for step in path {
        let next = match &mut node.content {
            Content::Map(entries) => entries
                .iter_mut()
                .find(|(key, _)| key.name == *step)
                .map(|(_, value)| value),
            Content::List(items) => index(step).and_then(|index| items.get_mut(index)),
            Content::Scalar { .. } => None,
        };
        node = next.ok_or_else(|| missing(path))?;
    }
    Ok(node)
}

fn add(tree: &mut Node, path: &[String], value: Node) -> Result<(), String> {
    let Some((last, parents)) = path.split_last() else {
        *tree = value;
        return Ok(());
    };
    let parent = find(tree, parents)?;
    match &mut parent.content {
        Content::Map(entries) => match entries.iter_mut().find(|(key, _)| key.name == *last) {
            Some((_, old)) => *old = value,
            None => entries.push((
                Key {
                    mark: value.mark,
                    name: last.clone(),
                },
                value,
            )),
        },
        Content::List(items) => {
            let at = if last == "-" {
                Some(items.len())
            } else {
                index(last)
            };
            let at = at
                .filter(|at| *at <= items.len())
                .ok_or_else(|| missing(path))?;
            items.insert(at, value);
        }
        Content::Scalar { .. } => return Err(missing(path)),
    }
    Ok(())
}

fn remove(tree: &mut Node, path: &[String]) -> Result<Node, String> {
    let (last, parents) = path
        .split_last()
        .ok_or_else(|| "the document cannot be removed".to_owned())?;
    let removed = match &mut find(tree, parents)?.content {
        Content::Map(entries) => {
            let place = entries.iter().position(|(key, _)| key.name == *last);
            place.map(|place| entries.remove(place).1)
        }
        Content::List(items) => index(last)
            .filter(|index| *index < items.len())
            .map(|index| items.remove(index)),
        Content::Scalar { .. } => None,
    };
    removed.ok_or_else(|| missing(path))
}

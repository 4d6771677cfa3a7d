//! Splits bytes into documents.

use crate::MAX_SIZE;
use crate::kinds;
use crate::problem::{Mark, Notes, Problems};
use crate::tree::{self, Node};

/// Parses a stream with at least one non-empty document; empty ones are skipped.
pub(crate) fn read_some<'a>(
    bytes: &'a [u8],
    notes: &mut Notes,
) -> Result<(&'a str, Vec<Node>), Problems> {
    let (text, trees) = read(bytes, notes)?;
    if trees.is_empty() && notes.is_empty() {
        notes.add(Mark::default(), "", "the config is empty");
    }
    Ok((text, trees))
}

/// Parses a stream that may be empty.
pub(crate) fn read<'a>(
    bytes: &'a [u8],
    notes: &mut Notes,
) -> Result<(&'a str, Vec<Node>), Problems> {
    if bytes.len() > MAX_SIZE {
        let message = format!("larger than {} MiB", MAX_SIZE / 1024 / 1024);
        return Err(Problems::one(Mark::default(), message));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = good.split(|b| *b == b'\n').count();
        Problems::one(Mark { line, column: 1 }, "not UTF-8 text")
    })?;
    let trees = tree::read(text, notes).into_iter().flatten().collect();
    Ok((text, trees))
}

/// Identity of a document: its kind, and its name if the kind allows several. Both are empty for the document without a
/// kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) kind: String,
    pub(crate) name: String,
}

pub(crate) fn identity(node: &Node) -> Identity {
    let text = |field| {
        node.get(field)
            .and_then(Node::text)
            .unwrap_or_default()
            .to_owned()
    };
    let kind = text("kind");
    // An unknown kind with a name counts as a named one.
    let named = kinds::kind(&kind).is_none_or(|info| info.named);
    let name = if named && !kind.is_empty() {
        text("name")
    } else {
        String::new()
    };
    Identity { kind, name }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind.as_str(), self.name.as_str()) {
            ("", _) => f.write_str("v1alpha1"),
            (kind, "") => f.write_str(kind),
            (kind, name) => write!(f, "{kind} {name}"),
        }
    }
}

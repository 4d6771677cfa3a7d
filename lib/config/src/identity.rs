//! The identity of a document.

use corten_yaml::tree::Node;

use crate::kinds;

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

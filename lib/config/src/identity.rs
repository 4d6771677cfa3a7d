//! The identity of a document, and the table of its fields.

use corten_yaml::read::Section as _;
use corten_yaml::table::Field;
use corten_yaml::tree::Node;

use crate::kinds;
use crate::v1alpha1::V1Alpha1;

/// Identity of a document: its kind, and its name if the kind allows several. Both are empty for the document without a
/// kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Its kind.
    pub kind: String,
    /// Its name among those of its kind.
    pub name: String,
}

/// The identity of a document.
#[must_use]
pub fn identity(node: &Node) -> Identity {
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

/// The fields of a document; `None` for an unknown kind.
#[must_use]
pub fn table_of(node: &Node) -> Option<&'static [Field]> {
    match identity(node).kind.as_str() {
        "" => Some(V1Alpha1::TABLE),
        kind => kinds::kind(kind).map(|info| info.table),
    }
}

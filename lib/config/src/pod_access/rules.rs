//! The rules for access from pods in both forms.

use corten_yaml::read::Reader;
use corten_yaml::tree::{Content, Node};

/// Roles that a pod may have. `os:impersonator` is missing: its holder speaks for other callers.
pub const POD_ROLES: [&str; 6] = [
    "os:admin",
    "os:operator",
    "os:reader",
    "os:etcd:backup",
    "os:image:verifier",
    "os:meta:writer",
];

/// Longest name of a Kubernetes namespace (RFC 1123, label).
const LONGEST: usize = 63;

/// Reports roles that a pod cannot have, and names that no namespace has.
pub(crate) fn check_access(node: &Node, reader: &mut Reader<'_>) {
    let roles = POD_ROLES.join(", ");
    let role = format!("must be one of {roles}");
    each(node, "allowedRoles", is_role, &role, reader);
    let namespace = "must be the name of a namespace: lower case letters, digits and dashes";
    let field = "allowedKubernetesNamespaces";
    each(node, field, is_namespace, namespace, reader);
}

fn is_role(text: &str) -> bool {
    POD_ROLES.contains(&text)
}

fn is_namespace(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends = !text.starts_with('-') && !text.ends_with('-');
    (1..=LONGEST).contains(&text.len()) && ends && text.chars().all(fits)
}

/// Reports each text of the list `field` for which `good` is false.
fn each(node: &Node, field: &str, good: fn(&str) -> bool, what: &str, reader: &mut Reader<'_>) {
    let Some(Content::List(items)) = node.get(field).map(|list| &list.content) else {
        return;
    };
    reader.within(field, |reader| {
        for (index, item) in items.iter().enumerate() {
            if item.text().is_some_and(|text| !good(text)) {
                reader.within(&format!("[{index}]"), |reader| {
                    reader.wrong(item.mark, what);
                });
            }
        }
    });
}

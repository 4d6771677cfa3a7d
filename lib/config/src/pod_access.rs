//! Access to the node's API from pods, in either form of the config.

use corten_yaml::read::Reader;
use corten_yaml::tree::{Content, Node};

use crate::Document;
use crate::kinds::KubeTalosAPIAccessConfig;

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

/// The pods that get access, and their roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodAccess<'a> {
    /// Roles that pods may have at most.
    pub roles: &'a [String],
    /// Namespaces of the allowed pods.
    pub namespaces: &'a [String],
}

impl Document {
    /// The access of pods to the node's API; `None` if it is off, and on a worker.
    #[must_use]
    pub fn pod_access(&self) -> Option<PodAccess<'_>> {
        if !self.machine.kind.is_control_plane() {
            return None;
        }
        let by_kind = self.all::<KubeTalosAPIAccessConfig>().next();
        let by_kind = by_kind.map(|config| PodAccess {
            roles: &config.allowed_roles,
            namespaces: &config.allowed_kubernetes_namespaces,
        });
        by_kind.or_else(|| {
            let old = self.machine.features.kubernetes_talos_api_access.as_ref();
            let old = old.filter(|access| access.enabled)?;
            Some(PodAccess {
                roles: &old.allowed_roles,
                namespaces: &old.allowed_kubernetes_namespaces,
            })
        })
    }
}

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

//! Kubernetes objects of any kind: their identity and their order of creation.

use std::fmt;

use serde_json::{Value, json};

/// Architectures that the images support.
pub(crate) const ARCHITECTURES: &[&str] = &["amd64", "arm64"];

/// Identity of an object in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// API group; empty for the core group.
    pub group: String,
    /// Version of the group, such as `v1`.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty if not given.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A text or an object without the identity of a Kubernetes object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be a non-empty string")]
pub struct Invalid {
    /// The missing field.
    pub field: &'static str,
}

impl Identity {
    /// Reads the identity of an object.
    ///
    /// # Errors
    /// [`Invalid`] if the object has no version, kind or name.
    pub fn of(object: &Value) -> Result<Identity, Invalid> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let needed = |pointer: &str, field: &'static str| {
            let text = text(pointer).filter(|text| !text.is_empty());
            text.ok_or(Invalid { field })
        };
        let api = needed("/apiVersion", "apiVersion")?;
        let (group, version) = api.split_once('/').unwrap_or(("", api));
        Ok(Identity {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: needed("/kind", "kind")?.to_owned(),
            namespace: text("/metadata/namespace").unwrap_or_default().to_owned(),
            name: needed("/metadata/name", "metadata.name")?.to_owned(),
        })
    }

    /// Key in an inventory, `namespace_name_group_kind`, in the format of Kubernetes' cli-utils: a colon in an RBAC
    /// name becomes `__`.
    #[must_use]
    pub fn inventory_key(&self) -> String {
        let colon = if self.group == "rbac.authorization.k8s.io" {
            self.name.replace(':', "__")
        } else {
            self.name.clone()
        };
        format!("{}_{colon}_{}_{}", self.namespace, self.group, self.kind)
    }

    /// Reads an entry of an inventory: the key of [`Identity::inventory_key`], and the version. `None` for other texts.
    #[must_use]
    pub fn of_inventory(key: &str, version: &str) -> Option<Identity> {
        // No name of Kubernetes has a line below, but for the two that stand for a colon.
        let (namespace, rest) = key.split_once('_')?;
        let (rest, kind) = rest.rsplit_once('_')?;
        let (name, group) = rest.rsplit_once('_')?;
        let is_named = !name.is_empty() && !kind.is_empty() && !version.is_empty();
        is_named.then(|| Identity {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.replace("__", ":"),
        })
    }

    /// Rank in the order of creation: namespaces and definitions of kinds precede the objects that need them.
    fn rank(&self) -> (u8, &str) {
        match (self.group.as_str(), self.kind.as_str()) {
            ("", "Namespace") => (0, &self.name),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => (1, &self.name),
            _ => (2, ""),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        f.write_str(" ")?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Sorts objects by dependency: namespaces, then definitions of kinds, then the others in their given order.
#[must_use]
pub fn in_order(mut objects: Vec<(Identity, Value)>) -> Vec<(Identity, Value)> {
    objects.sort_by(|(a, _), (b, _)| a.rank().cmp(&b.rank()));
    objects
}

/// Sets a field of the map at `pointer`, a JSON pointer; does nothing if there is no map.
pub(crate) fn set(object: &mut Value, pointer: &str, name: &str, value: Value) {
    if let Some(Value::Object(fields)) = object.pointer_mut(pointer) {
        fields.insert(name.to_owned(), value);
    }
}

/// A value as YAML; falls back to JSON, which is also YAML, if the writer fails.
pub(crate) fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
}

/// An environment variable from a field of the pod.
pub(crate) fn container_variable(name: &str, field: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": field } } })
}

/// Tolerations with which a daemon runs on every node.
pub(crate) fn daemon_tolerations() -> Value {
    json!([
        { "effect": "NoSchedule", "operator": "Exists" },
        { "effect": "NoExecute", "operator": "Exists" },
    ])
}

/// Node affinity to Linux and these architectures; empty for any architecture.
pub(crate) fn only_on(architectures: &[&str]) -> Value {
    let mut wanted =
        vec![json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] })];
    if !architectures.is_empty() {
        wanted.push(json!({
            "key": "kubernetes.io/arch",
            "operator": "In",
            "values": architectures,
        }));
    }
    json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchExpressions": wanted }],
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(api: &str, kind: &str, name: &str) -> (Identity, Value) {
        let object = json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name } });
        (Identity::of(&object).unwrap(), object)
    }

    #[test]
    fn namespaces_and_definitions_are_applied_before_their_users() {
        let ordered = in_order(vec![
            object("example.org/v1", "Widget", "w"),
            object("v1", "ConfigMap", "c"),
            object(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "widgets",
            ),
            object("v1", "Namespace", "b"),
            object("v1", "Namespace", "a"),
        ]);
        let names: Vec<&str> = ordered.iter().map(|(id, _)| id.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "widgets", "w", "c"]);
    }

    #[test]
    fn an_inventory_names_roles_without_colons() {
        let (role, _) = object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "system:coredns",
        );
        let key = "_system__coredns_rbac.authorization.k8s.io_ClusterRole";
        assert_eq!(role.inventory_key(), key);
        let (map, _) = object("v1", "ConfigMap", "coredns");
        assert_eq!(map.inventory_key(), "_coredns__ConfigMap");
        for identity in [&role, &map] {
            let read = Identity::of_inventory(&identity.inventory_key(), &identity.version);
            assert_eq!(read.as_ref(), Some(identity));
        }
        for text in ["", "_", "a_b_c", "__c_d", "a_b_c_"] {
            assert_eq!(Identity::of_inventory(text, "v1"), None, "{text}");
        }
        assert_eq!(
            role.to_string(),
            "ClusterRole.rbac.authorization.k8s.io system:coredns"
        );
    }

    #[test]
    fn an_object_without_a_name_is_refused_by_the_field() {
        for (object, field) in [
            (json!({}), "apiVersion"),
            (json!({ "apiVersion": 1 }), "apiVersion"),
            (json!({ "apiVersion": "v1" }), "kind"),
            (
                json!({ "apiVersion": "v1", "kind": "Pod" }),
                "metadata.name",
            ),
            (
                json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "" } }),
                "metadata.name",
            ),
        ] {
            assert_eq!(Identity::of(&object), Err(Invalid { field }));
        }
    }
}

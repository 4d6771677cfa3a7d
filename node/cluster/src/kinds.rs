//! Maps objects to API resources, with one discovery request per kind.

use std::collections::HashMap;
use std::fmt::Display;

use corten_manifests::Identity;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, oneshot};

use crate::{Cluster, ClusterError, within};

/// Label of control plane nodes.
pub(crate) const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The kinds that one apply has looked up.
#[derive(Default)]
pub(crate) struct Kinds {
    met: HashMap<GroupVersionKind, (ApiResource, Scope)>,
}

impl Kinds {
    /// API of an object's kind. The namespace is corrected: a namespaced object without a namespace goes to `default`,
    /// and a cluster-scoped object loses its namespace.
    pub(crate) async fn place(
        &mut self,
        cluster: &Cluster,
        identity: &mut Identity,
    ) -> Result<Api<DynamicObject>, ClusterError> {
        let kind = GroupVersionKind::gvk(&identity.group, &identity.version, &identity.kind);
        let (resource, scope) = match self.met.get(&kind) {
            Some(met) => met.clone(),
            None => {
                let asked = oneshot::pinned_kind(&cluster.client, &kind);
                let (resource, can) = within("find the kind of", identity, asked).await?;
                let met = (resource, can.scope);
                self.met.insert(kind, met.clone());
                met
            }
        };
        let client = cluster.client.clone();
        if scope == Scope::Cluster {
            identity.namespace.clear();
            return Ok(Api::all_with(client, &resource));
        }
        if identity.namespace.is_empty() {
            "default".clone_into(&mut identity.namespace);
        }
        Ok(Api::namespaced_with(client, &identity.namespace, &resource))
    }
}

/// A kind of the core group, which needs no discovery.
pub(crate) fn core(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Rejects names that would escape their place in a path, such as `../nodes/n`: the request would affect another object
/// than its message says.
pub(crate) fn check(identity: &Identity) -> Result<(), ClusterError> {
    let fields = [
        ("its group", &identity.group),
        ("its version", &identity.version),
        ("its kind", &identity.kind),
        ("its namespace", &identity.namespace),
        ("its name", &identity.name),
    ];
    for (field, text) in fields {
        let optional = matches!(field, "its group" | "its namespace") && text.is_empty();
        if !optional {
            check_part(identity, field, text)?;
        }
    }
    Ok(())
}

/// [`check`] for one text.
pub(crate) fn check_part(
    object: &(dyn Display + Sync),
    field: &'static str,
    text: &str,
) -> Result<(), ClusterError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if text.is_empty() || text == "." || text == ".." || !text.chars().all(fits) {
        let object = crate::error::short(&object.to_string());
        return Err(ClusterError::Name { object, field });
    }
    Ok(())
}

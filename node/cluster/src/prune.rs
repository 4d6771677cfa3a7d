//! Deletes obsolete objects: those that the inventory lists and no manifest has.

use std::collections::BTreeMap;

use corten_manifests::Identity;
use kube::api::{DeleteParams, DynamicObject, Preconditions};
use serde_json::Value;

use crate::apply::Failed;
use crate::inventory::{self, is_same};
use crate::kinds::{Kinds, check};
use crate::{Cluster, ClusterError, MANAGER, within};

/// Annotations that keep an object whose manifest is gone (Kubernetes' cli-utils, "Lifecycle directives").
const KEEP: [(&str, &str); 2] = [
    ("cli-utils.sigs.k8s.io/on-remove", "keep"),
    ("client.lifecycle.config.k8s.io/deletion", "detach"),
];
/// Kinds that take objects of others with them. An operator deletes them by hand.
const HOLDERS: [(&str, &str); 2] = [
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// Result of a prune.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Objects that were deleted.
    pub deleted: Vec<Identity>,
    /// Objects that stay on purpose, and why. The inventory no longer lists them.
    pub kept: Vec<Failed>,
    /// Objects that could not be deleted. The inventory still lists them.
    pub failed: Vec<Failed>,
}

/// The fate of an obsolete object.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Deleted,
    /// It does not exist, or its kind is no longer served.
    Gone,
    /// It stays for this reason.
    Kept(&'static str),
}

impl Cluster {
    /// Deletes the objects that the inventory lists and that are not `wanted`, and takes them off the inventory. `wanted`
    /// are the objects of all manifests of all nodes.
    ///
    /// Namespaces and definitions of kinds stay, because objects of others would go with them. So do objects that an
    /// annotation keeps, and those that another client has made anew.
    ///
    /// # Errors
    /// The inventory cannot be read or written.
    pub async fn prune(&self, wanted: &[Value]) -> Result<Pruned, ClusterError> {
        let wanted = wanted.iter().filter_map(|object| Identity::of(object).ok());
        let wanted: Vec<Identity> = wanted.collect();
        let listed = self.inventory().await?.unwrap_or_default();
        let mut pruned = Pruned::default();
        let mut released = Vec::new();
        let mut kinds = Kinds::default();
        for (key, object) in obsolete(&listed, &wanted) {
            match self.prune_one(&mut kinds, &object).await {
                Ok(Fate::Deleted) => pruned.deleted.push(object),
                Ok(Fate::Gone) => {}
                Ok(Fate::Kept(why)) => {
                    let reason = why.to_owned();
                    pruned.kept.push(Failed { object, reason });
                }
                Err(error) => {
                    let reason = error.to_string();
                    pruned.failed.push(Failed { object, reason });
                    continue;
                }
            }
            released.push(key);
        }
        self.take_off_inventory(&released).await?;
        Ok(pruned)
    }

    async fn prune_one(
        &self,
        kinds: &mut Kinds,
        identity: &Identity,
    ) -> Result<Fate, ClusterError> {
        check(identity)?;
        let api = match kinds.place(self, &mut identity.clone()).await {
            Err(error) if error.code() == Some(404) => return Ok(Fate::Gone),
            api => api?,
        };
        let found = within("look for", identity, api.get_opt(&identity.name)).await?;
        let Some(found) = found else {
            return Ok(Fate::Gone);
        };
        if HOLDERS.contains(&(&identity.group, &identity.kind)) {
            return Ok(Fate::Kept(
                "objects of others would go with it; delete it by hand if nothing needs it",
            ));
        }
        if let Some(why) = reason_to_keep(&found) {
            return Ok(Fate::Kept(why));
        }
        // Only the object that was looked at: another client may have made a new one meanwhile.
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: found.metadata.uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match within("delete", identity, api.delete(&identity.name, &params)).await {
            Err(error) if error.code() != Some(404) => Err(error),
            _ => Ok(Fate::Deleted),
        }
    }
}

/// The entries of the inventory that no wanted object has, with their keys. An entry that cannot be read stays.
fn obsolete(listed: &BTreeMap<String, String>, wanted: &[Identity]) -> Vec<(String, Identity)> {
    let read = listed.iter().filter_map(|(key, version)| {
        let identity = Identity::of_inventory(key, version)?;
        Some((key.clone(), identity))
    });
    let is_obsolete = |(_, entry): &(String, Identity)| {
        *entry != inventory::identity() && !wanted.iter().any(|wanted| is_same(wanted, entry))
    };
    read.filter(is_obsolete).collect()
}

fn reason_to_keep(object: &DynamicObject) -> Option<&'static str> {
    let annotations = object.metadata.annotations.iter().flatten();
    let mut annotations = annotations.map(|(key, value)| (key.as_str(), value.as_str()));
    if annotations.any(|annotation| KEEP.contains(&annotation)) {
        return Some("its annotation keeps it");
    }
    let managers = object.metadata.managed_fields.iter().flatten();
    let names: Vec<&str> = managers
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    // An object with no field but its name has no manager.
    match names.is_empty() || names.contains(&MANAGER) {
        true => None,
        false => Some("another client has made it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(key: &str) -> Identity {
        Identity::of_inventory(key, "v1").unwrap()
    }

    #[test]
    fn entry_without_a_manifest_is_obsolete() {
        let keys = [
            "kube-system_kube-proxy_apps_DaemonSet",
            "kube-system_old_apps_DaemonSet",
            "default_kept__ConfigMap",
            "_system__old_rbac.authorization.k8s.io_ClusterRole",
            "_system__new_rbac.authorization.k8s.io_ClusterRole",
            "kube-system_talos-bootstrap-manifests-inventory__ConfigMap",
            "not an entry",
        ];
        let listed = keys.map(|key| (key.to_owned(), "v1".to_owned()));
        let mut wanted = [
            identity("kube-system_kube-proxy_apps_DaemonSet"),
            identity("_kept__ConfigMap"),
            identity("kube-system_system__new_rbac.authorization.k8s.io_ClusterRole"),
            identity("other_old_apps_DaemonSet"),
        ];
        // Another version of a kind is the same object.
        wanted[0].version = "v1beta1".to_owned();
        let found = obsolete(&listed.into(), &wanted);
        let found: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(found, [keys[3], keys[1]]);
    }
}

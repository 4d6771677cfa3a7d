//! Inventory of applied objects, in which [`Cluster::prune`] finds obsolete ones.

use std::collections::BTreeMap;

use corten_manifests::Identity;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::{Cluster, ClusterError, MANAGER, kinds, within};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "talos-bootstrap-manifests-inventory";

impl Cluster {
    /// Adds objects to the inventory. Existing entries stay: an object that was not applied this time may still be in
    /// the cluster.
    pub(crate) async fn list_in_inventory(
        &self,
        objects: &[&Identity],
    ) -> Result<(), ClusterError> {
        let found = self.inventory().await?;
        let listed = listed(found.clone().unwrap_or_default(), objects);
        if found.as_ref() == Some(&listed) {
            return Ok(());
        }
        let inventory = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": NAME, "namespace": NAMESPACE },
            "data": listed,
        });
        // Forced, so that our entries win over those of other field managers.
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&inventory);
        within(
            "write",
            &identity(),
            self.inventory_api().patch(NAME, &params, &patch),
        )
        .await?;
        Ok(())
    }

    /// The entries of the inventory, key and version; `None` if there is none.
    pub(crate) async fn inventory(&self) -> Result<Option<BTreeMap<String, String>>, ClusterError> {
        let found = within("read", &identity(), self.inventory_api().get_opt(NAME)).await?;
        Ok(found.map(|found| data(&found.data)))
    }

    /// Removes entries, also those of other field managers.
    pub(crate) async fn take_off_inventory(&self, keys: &[String]) -> Result<(), ClusterError> {
        if keys.is_empty() {
            return Ok(());
        }
        let none: BTreeMap<&str, Value> = keys.iter().map(|key| (&**key, Value::Null)).collect();
        let patch = Patch::Merge(json!({ "data": none }));
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        within(
            "write",
            &identity(),
            self.inventory_api().patch(NAME, &params, &patch),
        )
        .await?;
        Ok(())
    }

    fn inventory_api(&self) -> Api<DynamicObject> {
        let resource = kinds::core("ConfigMap", "configmaps");
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }
}

/// Identity of the inventory.
pub(crate) fn identity() -> Identity {
    Identity {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: NAMESPACE.to_owned(),
        name: NAME.to_owned(),
    }
}

/// The objects that an inventory lists. A key that cannot be read is left out.
pub(crate) fn entries(listed: &BTreeMap<String, String>) -> Vec<Identity> {
    let all = listed.iter();
    all.filter_map(|(key, version)| Identity::of_inventory(key, version))
        .collect()
}

/// Whether an object of a manifest is the one of an entry. A manifest may leave the namespace out, or name one for an
/// object that belongs to none.
pub(crate) fn is_same(wanted: &Identity, entry: &Identity) -> bool {
    let (group, kind, name) = (&entry.group, &entry.kind, &entry.name);
    let is_there = match entry.namespace.as_str() {
        "" => true,
        "default" => ["", "default"].contains(&wanted.namespace.as_str()),
        namespace => wanted.namespace == namespace,
    };
    is_there && (&wanted.group, &wanted.kind, &wanted.name) == (group, kind, name)
}

fn data(map: &Value) -> BTreeMap<String, String> {
    let entries = map
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// The entries, including those of `objects`.
fn listed(
    mut entries: BTreeMap<String, String>,
    objects: &[&Identity],
) -> BTreeMap<String, String> {
    for identity in objects {
        entries.insert(identity.inventory_key(), identity.version.clone());
    }
    entries
}

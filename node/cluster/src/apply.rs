//! Applying objects on the server's side ("Server-Side Apply" of the Kubernetes documentation).

use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;

use corten_manifests::{Identity, in_order};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::{ApiCapabilities, Scope, oneshot};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{Cluster, Error, within};

/// Who applies, in `metadata.managedFields`: the reference's name, whose objects these are.
const MANAGER: &str = "talos";
/// Where the applied objects are listed.
const INVENTORY: &str = "talos-bootstrap-manifests-inventory";
/// A definition of a kind is looked at again so often, until its objects can be made.
const LOOKS: u32 = 30;
const LOOK: Duration = Duration::from_secs(1);

/// What became of the objects.
#[derive(Debug, Default)]
pub struct Report {
    /// Those that were made.
    pub made: Vec<Identity>,
    /// Those that were there, and are as they were.
    pub kept: Vec<Identity>,
    /// Those that could not be made, and why.
    pub failed: Vec<(Identity, String)>,
}

type Known = HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>;

impl Cluster {
    /// Makes those of the objects that are not there; what is there is not touched. One that cannot be made keeps no
    /// other. What was made and found is listed in the inventory of the cluster.
    ///
    /// # Errors
    /// The inventory cannot be written.
    pub async fn make(&self, objects: Vec<(Identity, Value)>) -> Result<Report, Error> {
        let mut report = Report::default();
        let mut known = Known::new();
        for (identity, object) in in_order(objects) {
            match self.make_one(&mut known, &identity, &object).await {
                Ok(true) => report.made.push(identity),
                Ok(false) => report.kept.push(identity),
                Err(error) => report.failed.push((identity, error.to_string())),
            }
        }
        let listed = report.made.iter().chain(&report.kept);
        let inventory = inventory(listed);
        let identity = Identity {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "kube-system".to_owned(),
            name: INVENTORY.to_owned(),
        };
        self.apply(&mut known, &identity, &inventory).await?;
        Ok(report)
    }

    /// Whether the object was made.
    async fn make_one(
        &self,
        known: &mut Known,
        identity: &Identity,
        object: &Value,
    ) -> Result<bool, Error> {
        let api = self.api(known, identity).await?;
        if within(api.get_opt(&identity.name)).await?.is_some() {
            return Ok(false);
        }
        self.apply(known, identity, object).await?;
        if identity.kind == "CustomResourceDefinition" {
            established(&api, &identity.name).await?;
        }
        Ok(true)
    }

    async fn apply(
        &self,
        known: &mut Known,
        identity: &Identity,
        object: &Value,
    ) -> Result<(), Error> {
        let api = self.api(known, identity).await?;
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(object);
        within(api.patch(&identity.name, &params, &patch)).await?;
        Ok(())
    }

    async fn api(
        &self,
        known: &mut Known,
        identity: &Identity,
    ) -> Result<Api<DynamicObject>, Error> {
        let kind = GroupVersionKind::gvk(&identity.group, &identity.version, &identity.kind);
        if !known.contains_key(&kind) {
            let found = within(oneshot::pinned_kind(&self.client, &kind)).await?;
            known.insert(kind.clone(), found);
        }
        let (resource, capabilities) = known.get(&kind).ok_or(Error::NoAnswer)?;
        let client = self.client.clone();
        Ok(match (&capabilities.scope, &*identity.namespace) {
            (Scope::Cluster, _) => Api::all_with(client, resource),
            (Scope::Namespaced, "") => Api::default_namespaced_with(client, resource),
            (Scope::Namespaced, namespace) => Api::namespaced_with(client, namespace, resource),
        })
    }
}

/// Waits until objects of the kind can be made, but not for ever: those of it fail then, and are tried again later.
async fn established(api: &Api<DynamicObject>, name: &str) -> Result<(), Error> {
    for _ in 0..LOOKS {
        let definition = within(api.get(name)).await?;
        let conditions = definition.data.pointer("/status/conditions");
        let conditions = conditions.and_then(Value::as_array);
        let is_established = |condition: &Value| {
            condition.get("type").and_then(Value::as_str) == Some("Established")
                && condition.get("status").and_then(Value::as_str) == Some("True")
        };
        if conditions.is_some_and(|all| all.iter().any(is_established)) {
            return Ok(());
        }
        sleep(LOOK).await;
    }
    Ok(())
}

fn inventory<'a>(objects: impl Iterator<Item = &'a Identity>) -> Value {
    let data: serde_json::Map<String, Value> = objects
        .map(|identity| (identity.inventory_key(), Value::from(&*identity.version)))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": INVENTORY,
            "namespace": "kube-system",
            "labels": { "cli-utils.sigs.k8s.io/inventory-id": INVENTORY },
        },
        "data": data,
    })
}

/// An error with all that caused it.
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        // `/readyz` answers with a line for each part, those that are not ready with a minus (Kubernetes, "API health
        // endpoints").
        let bad = status.message.lines().find(|line| line.starts_with("[-]"));
        let message = bad.unwrap_or(&status.message);
        return format!("{message} ({})", status.code);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

//! Applying objects on the server's side (Kubernetes, "Server-Side Apply").

use std::collections::BTreeMap;
use std::time::Duration;

use corten_manifests::{Identity, in_order};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::error::short;
use crate::kinds::{Kinds, check};
use crate::{Cluster, ClusterError, MANAGER, inventory, within};

/// So long a new kind may take until its objects can be created.
const ESTABLISHED: Duration = Duration::from_secs(30);
/// Between two looks at a new kind.
const LOOK: Duration = Duration::from_millis(250);

/// What is done with an object that is in the cluster already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays as it is, whatever it is.
    Keep,
    /// It becomes as given. Fields that were not given stay.
    Update,
}

/// What became of objects that were applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// They were not in the cluster, and are now.
    pub created: Vec<Identity>,
    /// They were in the cluster, and are changed.
    pub updated: Vec<Identity>,
    /// They were in the cluster, and are as they were.
    pub kept: Vec<Identity>,
    /// They are not as they should be.
    pub failed: Vec<Failed>,
}

/// An object that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The object. A field that it lacks is an empty text.
    pub object: Identity,
    /// Why.
    pub reason: String,
}

enum Done {
    Created,
    Updated,
    Kept,
}

/// One apply under way.
struct Run<'a> {
    cluster: &'a Cluster,
    existing: Existing,
    kinds: Kinds,
    /// Groups of the kinds that this run has seen defined. The server may take until then to serve them.
    defined: BTreeMap<String, Instant>,
}

impl Cluster {
    /// Applies the objects in the order in which a cluster takes them (`corten_manifests::in_order`), then lists
    /// those in the inventory that are in the cluster. An object that cannot be applied stops no other; the
    /// inventory itself can be the one that failed.
    ///
    /// Two nodes must not do so at once: the caller holds the cluster's lock.
    pub async fn apply(&self, objects: &[Value], existing: Existing) -> Report {
        let mut report = Report::default();
        let mut named = Vec::new();
        for object in objects {
            match Identity::of(object) {
                Ok(identity) => named.push((identity, object.clone())),
                Err(error) => report.fail(lenient(object), &error),
            }
        }
        let mut run = Run {
            cluster: self,
            existing,
            kinds: Kinds::default(),
            defined: BTreeMap::new(),
        };
        for (mut identity, object) in in_order(named) {
            match run.one(&mut identity, object).await {
                Ok(Done::Created) => report.created.push(identity),
                Ok(Done::Updated) => report.updated.push(identity),
                Ok(Done::Kept) => report.kept.push(identity),
                Err(error) => report.fail(identity, &error),
            }
        }
        let all = [&report.created, &report.updated, &report.kept];
        let listed: Vec<&Identity> = all.into_iter().flatten().collect();
        if let Err(error) = self.list_in_inventory(&listed).await {
            report.fail(inventory::identity(), &error);
        }
        report
    }
}

impl Report {
    fn fail(&mut self, object: Identity, reason: &impl ToString) {
        let reason = reason.to_string();
        self.failed.push(Failed { object, reason });
    }
}

impl Run<'_> {
    async fn one(
        &mut self,
        identity: &mut Identity,
        mut object: Value,
    ) -> Result<Done, ClusterError> {
        check(identity)?;
        let api = self.place(identity).await?;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("namespace");
            if !identity.namespace.is_empty() {
                let namespace = identity.namespace.as_str().into();
                metadata.insert("namespace".to_owned(), namespace);
            }
            // Applying is not creating: the server refuses these two of an object that was read from a cluster.
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
        let found = within("look for", identity, api.get_opt(&identity.name)).await?;
        let done = match &found {
            Some(_) if self.existing == Existing::Keep => Done::Kept,
            _ => self.write(&api, identity, &object, found.as_ref()).await?,
        };
        if identity.group == "apiextensions.k8s.io" && identity.kind == "CustomResourceDefinition" {
            self.established(&api, identity).await?;
            if let Some(group) = object.pointer("/spec/group").and_then(Value::as_str) {
                let until = Instant::now() + ESTABLISHED;
                self.defined.insert(group.to_owned(), until);
            }
        }
        Ok(done)
    }

    async fn place(&mut self, identity: &mut Identity) -> Result<Api<DynamicObject>, ClusterError> {
        loop {
            let place = self.kinds.place(self.cluster, identity).await;
            let until = self.defined.get(&identity.group);
            match (place, until) {
                (Err(_), Some(until)) if Instant::now() < *until => sleep(LOOK).await,
                (place, _) => return place,
            }
        }
    }

    async fn write(
        &self,
        api: &Api<DynamicObject>,
        identity: &Identity,
        object: &Value,
        found: Option<&DynamicObject>,
    ) -> Result<Done, ClusterError> {
        let mut params = PatchParams::apply(MANAGER);
        // An update is to win over whoever set a field last. A creation has nobody to win over: if another created
        // the object meanwhile, it is not ours to change.
        params.force = self.existing == Existing::Update;
        let patch = Patch::Apply(object);
        let written = within(
            "apply",
            identity,
            api.patch(&identity.name, &params, &patch),
        )
        .await;
        let written = match written {
            Err(error) if self.existing == Existing::Keep && error.code() == Some(409) => {
                let now = within("look for", identity, api.get_opt(&identity.name)).await?;
                return now.map(|_| Done::Kept).ok_or(error);
            }
            written => written?,
        };
        Ok(match found {
            None => Done::Created,
            Some(found) if version(found).is_some() && version(found) == version(&written) => {
                Done::Kept
            }
            Some(_) => Done::Updated,
        })
    }

    /// Waits until objects of a defined kind can be created.
    async fn established(
        &self,
        api: &Api<DynamicObject>,
        identity: &Identity,
    ) -> Result<(), ClusterError> {
        let until = Instant::now() + ESTABLISHED;
        loop {
            let found = within("look at", identity, api.get(&identity.name)).await?;
            match state(&found.data) {
                Ok(()) => return Ok(()),
                Err(why) if Instant::now() >= until => {
                    let object = identity.to_string();
                    return Err(ClusterError::NotServed { object, why });
                }
                Err(_) => sleep(LOOK).await,
            }
        }
    }
}

fn version(object: &DynamicObject) -> Option<&str> {
    object.metadata.resource_version.as_deref()
}

/// Whether a definition of a kind is established, or what its conditions say instead.
fn state(definition: &Value) -> Result<(), String> {
    let conditions = definition.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let mut why = Vec::new();
    for condition in conditions {
        let text = |field: &str| {
            condition
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        match (text("type"), text("status")) {
            ("Established", "True") => return Ok(()),
            (_, "False") => why.push(short(text("message"))),
            _ => (),
        }
    }
    if why.is_empty() {
        why.push("it has no condition Established".to_owned());
    }
    Err(why.join(", "))
}

/// As much of an identity as an object has that names no object.
fn lenient(object: &Value) -> Identity {
    let text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        short(text.unwrap_or_default())
    };
    let api = text("/apiVersion");
    let (group, version) = api.split_once('/').unwrap_or(("", &api));
    Identity {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}

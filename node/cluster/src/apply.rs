//! Server-side apply of objects (Kubernetes, "Server-Side Apply").

use std::collections::BTreeMap;
use std::time::Duration;

use corten_manifests::{Identity, in_order};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::error::short;
use crate::inventory::{self, entries, is_same};
use crate::kinds::{Kinds, check};
use crate::{Cluster, ClusterError, MANAGER, within};

/// Timeout until a new kind is served.
const ESTABLISHED: Duration = Duration::from_secs(30);
/// Poll interval for a new kind.
const LOOK: Duration = Duration::from_millis(250);

/// Policy for objects that already exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Leaves the object unchanged. An apply of manifests also creates no object that the inventory lists: an operator
    /// has deleted it.
    Keep,
    /// Creates a missing object, and updates the given fields of another; the other fields stay.
    Update,
}

/// Result of an apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Objects that were created.
    pub created: Vec<Identity>,
    /// Objects that were changed.
    pub updated: Vec<Identity>,
    /// Objects that stayed as they were.
    pub kept: Vec<Identity>,
    /// Objects that could not be applied.
    pub failed: Vec<Failed>,
}

/// A failed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The object. A missing field is an empty text.
    pub object: Identity,
    /// Reason of the failure.
    pub reason: String,
}

enum Done {
    Created,
    Updated,
    Kept,
}

/// An apply in progress.
struct Run<'a> {
    cluster: &'a Cluster,
    existing: Existing,
    kinds: Kinds,
    /// Deadlines until which the server may start to serve a kind defined in this run, by API group.
    defined: BTreeMap<String, Instant>,
}

impl Cluster {
    /// Applies the objects in dependency order (`corten_manifests::in_order`), then adds those in the cluster to the
    /// inventory. A failed object does not stop the others; the inventory itself may be the failed object.
    ///
    /// The caller must hold the cluster's lock: two nodes must not apply at once.
    pub async fn apply(&self, objects: &[Value], existing: Existing) -> Report {
        let mut report = Report::default();
        let listed = match existing {
            Existing::Keep => self.inventory().await,
            Existing::Update => Ok(None),
        };
        let listed = match listed {
            Ok(listed) => entries(&listed.unwrap_or_default()),
            // Any object may be one that an operator has deleted.
            Err(error) => {
                report.fail(inventory::identity(), &error);
                return report;
            }
        };
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
            if let Some(entry) = listed.iter().find(|entry| is_same(&identity, entry)) {
                identity.namespace.clone_from(&entry.namespace);
                report.kept.push(identity);
                continue;
            }
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

    /// Applies an object that is not one of the manifests: the inventory does not list it.
    ///
    /// # Errors
    /// The object has no identity, or the cluster refuses it.
    pub async fn put(&self, object: Value, existing: Existing) -> Result<(), ClusterError> {
        let identity = Identity::of(&object);
        let mut identity =
            identity.map_err(|error| ClusterError::request("apply", &"an object", error))?;
        let mut run = Run {
            cluster: self,
            existing,
            kinds: Kinds::default(),
            defined: BTreeMap::new(),
        };
        run.one(&mut identity, object).await.map(drop)
    }

    /// Deletes an object if it exists.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn delete(&self, mut identity: Identity) -> Result<(), ClusterError> {
        check(&identity)?;
        let api = Kinds::default().place(self, &mut identity).await?;
        let params = DeleteParams::default();
        match within("delete", &identity, api.delete(&identity.name, &params)).await {
            Err(error) if error.code() != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether an object exists.
    ///
    /// # Errors
    /// [`ClusterError::Name`] or [`ClusterError::Request`].
    pub async fn exists(&self, mut identity: Identity) -> Result<bool, ClusterError> {
        check(&identity)?;
        let api = Kinds::default().place(self, &mut identity).await?;
        let found = within("read", &identity, api.get_metadata_opt(&identity.name)).await?;
        Ok(found.is_some())
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
            // Both fields come from an object read from a cluster; the server refuses them in an apply.
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
        // An update takes over fields from other managers. A creation does not: an object that another client has
        // created meanwhile is left alone.
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

/// Whether the definition of a kind is established; otherwise its conditions.
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
        why.push("its condition Established is missing".to_owned());
    }
    Err(why.join(", "))
}

/// As much of an identity as an invalid object has.
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

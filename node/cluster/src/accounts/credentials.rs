//! The requests about one account: its Secret, its status, and its events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{ACCOUNT_GROUP, ACCOUNT_KIND, ACCOUNT_VERSION, Account, kind};
use crate::error::short;
use crate::kinds::core;
use crate::{Cluster, ClusterError, MANAGER, within};

/// Field of the Secret: the name of the client's config file for the pod.
const FILE: &str = "config";
/// Label of the Secrets, so that the others need not be watched.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", COMPONENT);
/// Source of the events.
const COMPONENT: &str = "talos-sa-controller";

/// Selector of the Secrets.
pub(super) fn label() -> String {
    let (key, value) = LABEL;
    format!("{key}={value}")
}

/// The Secret with the name of an account.
pub(super) struct Credentials {
    /// The client's config, if it has one.
    pub(super) content: Option<String>,
    version: Option<String>,
    /// Identity of the controlling owner.
    owner: Option<String>,
}

impl Credentials {
    /// Whether the Secret was made for the account, and not for a namesake or by a user.
    pub(super) fn is_of(&self, account: &Account) -> bool {
        self.owner.as_ref() == Some(&account.uid)
    }
}

impl From<DynamicObject> for Credentials {
    fn from(object: DynamicObject) -> Credentials {
        let content = object.data.pointer(&format!("/data/{FILE}"));
        let content = content.and_then(|content| STANDARD.decode(content.as_str()?).ok());
        let owners = object.metadata.owner_references.unwrap_or_default();
        let owner = owners
            .into_iter()
            .find(|owner| owner.controller == Some(true));
        Credentials {
            content: content.and_then(|content| String::from_utf8(content).ok()),
            version: object.metadata.resource_version,
            owner: owner.map(|owner| owner.uid),
        }
    }
}

impl Cluster {
    pub(super) async fn credentials(
        &self,
        account: &Account,
    ) -> Result<Option<Credentials>, ClusterError> {
        let (api, object) = self.place_of_secret(account);
        let found = within("read", &object, api.get_opt(&account.name)).await?;
        Ok(found.map(Credentials::from))
    }

    /// Writes the Secret, unless it was changed since `old` was read.
    pub(super) async fn write_credentials(
        &self,
        account: &Account,
        old: Option<&Credentials>,
        content: &str,
    ) -> Result<(), ClusterError> {
        let (api, object) = self.place_of_secret(account);
        let (label, value) = LABEL;
        let labels = json!({ label: value });
        let data = json!({ FILE: STANDARD.encode(content) });
        if let Some(old) = old {
            let patch = json!({
                "metadata": { "labels": labels, "resourceVersion": old.version },
                "data": data,
            });
            let patch = Patch::Merge(&patch);
            let manager = manager();
            let written = api.patch(&account.name, &manager, &patch);
            return within("change", &object, written).await.map(drop);
        }
        let owner = json!({
            "apiVersion": format!("{ACCOUNT_GROUP}/{ACCOUNT_VERSION}"),
            "kind": ACCOUNT_KIND,
            "name": account.name,
            "uid": account.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": account.name,
                "labels": labels,
                "ownerReferences": [owner],
            },
            "data": data,
        });
        create(&api, secret, &object).await
    }

    /// Sets the refusal in the status of an account. Returns whether it was another one.
    pub(super) async fn set_failure(
        &self,
        account: &Account,
        failure: Option<&str>,
    ) -> Result<bool, ClusterError> {
        let failure = failure.map(short);
        if account.failure == failure {
            return Ok(false);
        }
        let client = self.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &account.namespace, &kind());
        let patch = json!({
            "metadata": { "resourceVersion": account.version },
            "status": { "failureReason": failure },
        });
        let patch = Patch::Merge(&patch);
        let manager = manager();
        let patched = api.patch(&account.name, &manager, &patch);
        match within("set the status of", account, patched).await {
            Ok(_) => Ok(true),
            // The account was changed or deleted meanwhile, which is a further change to look at.
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates an event about an account.
    pub(super) async fn tell(
        &self,
        account: &Account,
        kind: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), ClusterError> {
        let events = core("Event", "events");
        let api = Api::namespaced_with(self.client.clone(), &account.namespace, &events);
        let now = Time(Timestamp::now());
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": format!("{}.", account.name) },
            "involvedObject": {
                "apiVersion": format!("{ACCOUNT_GROUP}/{ACCOUNT_VERSION}"),
                "kind": ACCOUNT_KIND,
                "namespace": account.namespace,
                "name": account.name,
                "uid": account.uid,
                "resourceVersion": account.version,
            },
            "type": kind,
            "reason": reason,
            "message": short(message),
            "source": { "component": COMPONENT },
            "reportingComponent": COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        create(&api, event, &format!("an event about {account}")).await
    }

    fn place_of_secret(&self, account: &Account) -> (Api<DynamicObject>, String) {
        let Account {
            namespace, name, ..
        } = account;
        let secrets = core("Secret", "secrets");
        let api = Api::namespaced_with(self.client.clone(), namespace, &secrets);
        (api, format!("Secret {namespace}/{name}"))
    }
}

/// Creates an object.
async fn create(api: &Api<DynamicObject>, object: Value, what: &str) -> Result<(), ClusterError> {
    let object: DynamicObject = serde_json::from_value(object)
        .map_err(|error| ClusterError::request("create", &what, error))?;
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let created = api.create(&params, &object);
    within("create", &what, created).await.map(drop)
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

//! Credentials and bootstrap: an operator's requests to a control plane node.

use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_api::machine as api;
use corten_api::roles::Role;
use corten_config::Document;
use corten_credentials::{certificates, client_config};
use corten_kubernetes::certificates::{Cas, admin_certificate, admin_lifetime};
use corten_kubernetes::etcd::has_data;
use corten_kubernetes::{Settings, admin};
use corten_pki::{CA_LIFETIME, PkiError};
use corten_resources::{Happened, Pointer, Start, Store};
use corten_types::clock::TimeStatus;
use tokio::time::timeout;
use tonic::Status;

use super::duration;
use crate::node::{Begin, Node, Stage, refused};

/// Timeout for time synchronization during bootstrap (the reference's value).
pub(super) const TIME_PATIENCE: Duration = Duration::from_secs(5);

/// A client config with a new certificate for these roles, signed by the API's CA. It has no endpoints, because the
/// node does not know which of its addresses the caller can reach.
pub(super) fn client_config(
    node: &dyn Node,
    request: &api::GenerateClientConfigurationRequest,
) -> Result<api::GenerateClientConfigurationResponse, Status> {
    let document = control_plane(node, "config new")?;
    let roles = roles(&request.roles)?;
    let lifetime = lifetime(request.crt_ttl)?;
    let ca = certificates::signer(&document).map_err(|error| {
        Status::failed_precondition(corten_resources::controller::with_causes(&error))
    })?;
    let client = ca
        .client(&roles, SystemTime::now(), lifetime)
        .map_err(|error| match error {
            PkiError::TooManyRoles(_) => Status::invalid_argument(format!("roles: {error}")),
            PkiError::BadTime => Status::invalid_argument(format!("crt_ttl: {error}")),
            _ => Status::internal(error.to_string()),
        })?;
    let ca_crt = &ca.pem().crt;
    let context = context(&roles, document.cluster_name());
    let reply = api::GenerateClientConfiguration {
        metadata: None,
        ca: ca_crt.clone().into_bytes(),
        talosconfig: client_config::file(&context, &[], ca_crt, &client).into_bytes(),
        crt: client.crt.into_bytes(),
        key: client.key.into_bytes(),
    };
    Ok(api::GenerateClientConfigurationResponse {
        messages: vec![reply],
    })
}

/// Bootstraps a cluster on this node. etcd's data is in `data`; `patience` is the timeout for time synchronization.
pub(super) async fn bootstrap(
    node: &dyn Node,
    request: &api::BootstrapRequest,
    data: &Path,
    patience: Duration,
) -> Result<api::BootstrapResponse, Status> {
    if node.stage() != Stage::Running {
        return Err(Status::failed_precondition(
            "bootstrap is not available yet: the node is not running; see `get machinestatus`",
        ));
    }
    let document = control_plane(node, "bootstrap")?;
    let etcd = document.cluster.etcd.as_ref();
    if etcd.is_none_or(|etcd| etcd.ca.is_none()) {
        let text = "the machine config has no cluster.etcd.ca";
        return Err(Status::invalid_argument(text));
    }
    let snapshot = data.with_extension("snapshot");
    let begin = match request.recover_etcd {
        false => Begin::Empty,
        true => Begin::Snapshot {
            skip_hash_check: request.recover_skip_hash_check,
        },
    };
    if request.recover_etcd && !snapshot.is_file() {
        let path = snapshot.display();
        let text = format!("there is no snapshot {path} to restore: send one first (EtcdRecover)");
        return Err(Status::failed_precondition(text));
    }
    // With a wrong clock, etcd's certificates and leases would have wrong times.
    if !matches!(
        timeout(patience, time_is_known(node.store())).await,
        Ok(true)
    ) {
        return Err(Status::failed_precondition(
            "time is not in sync yet: see `get timestatus`, and check machine.time.servers",
        ));
    }
    if has_data(data) {
        return Err(Status::already_exists(format!(
            "{} has data: this node is a member of etcd already",
            data.display()
        )));
    }
    node.begin_cluster(begin).map_err(|error| refused(&error))?;
    Ok(api::BootstrapResponse {
        messages: vec![api::Bootstrap { metadata: None }],
    })
}

/// The administrator's kubeconfig. Its certificate is valid for a year unless the config says otherwise.
pub(super) fn kubeconfig(node: &dyn Node) -> Result<Vec<u8>, Status> {
    let document = control_plane(node, "kubeconfig")?;
    let missing = |error: &(dyn std::error::Error + 'static)| {
        Status::failed_precondition(corten_resources::controller::with_causes(error))
    };
    let settings = Settings::of(&document).map_err(|error| missing(&error))?;
    let cas = Cas::of(&document).map_err(|error| missing(&error))?;
    let now = SystemTime::now();
    let lifetime = admin_lifetime(&document);
    let certificate =
        admin_certificate(&cas.kubernetes, now, lifetime).map_err(|error| missing(&error))?;
    let kubeconfig = admin(&settings, &settings.endpoint, &certificate);
    Ok(kubeconfig.to_string().into_bytes())
}

/// Waits until the time is synchronized or synchronization is disabled; false if that cannot happen.
async fn time_is_known(store: &Store) -> bool {
    let pointer = Pointer::of::<TimeStatus>(TimeStatus::ID);
    let Ok(mut watch) = store.watch(&pointer, Start::default()) else {
        return false;
    };
    loop {
        let known = store.get_as::<TimeStatus>(TimeStatus::ID);
        if known.is_some_and(|known| known.synced) {
            return true;
        }
        match watch.next().await {
            Some(event) if !matches!(event.happened, Happened::Errored(_)) => {}
            _ => return false,
        }
    }
}

/// The config; an error unless this is a control plane node, which `verb` needs.
fn control_plane(node: &dyn Node, verb: &str) -> Result<Document, Status> {
    node.config()
        .filter(|document| document.machine.kind.is_control_plane())
        .ok_or_else(|| {
            let text = format!("{verb} works only on control plane nodes: name one with -n");
            Status::unimplemented(text)
        })
}

/// Skips unknown roles, which grant nothing. A certificate without a role is useless, so that is an error.
fn roles(asked: &[String]) -> Result<Vec<&'static str>, Status> {
    let mut roles: Vec<&str> = asked
        .iter()
        .filter_map(|name| Role::parse(name))
        .map(Role::name)
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        let known = Role::ALL.map(Role::name).join(", ");
        let text = format!("roles: none of the requested roles exists; the roles are {known}");
        return Err(Status::invalid_argument(text));
    }
    Ok(roles)
}

fn lifetime(asked: Option<prost_types::Duration>) -> Result<Duration, Status> {
    asked
        .and_then(duration)
        .filter(|asked| !asked.is_zero() && *asked <= CA_LIFETIME)
        .ok_or_else(|| {
            let longest = CA_LIFETIME.as_secs() / 3600;
            Status::invalid_argument(format!(
                "crt_ttl: must be more than 0 and at most {longest}h"
            ))
        })
}

fn context(roles: &[&str], cluster: &str) -> String {
    match roles {
        [role] => format!("{}@{cluster}", role.strip_prefix("os:").unwrap_or(role)),
        _ => cluster.to_owned(),
    }
}

//! What an operator asks of a control plane node: credentials, and the cluster's beginning.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_api::machine as api;
use corten_api::roles::Role;
use corten_config::Document;
use corten_pki::{CA_LIFETIME, CertificateAndKey, PkiError};
use tonic::Status;

use super::absent;
use crate::certificates;
use crate::node::{Node, Stage};

/// A client config with a new certificate of these roles, signed by the authority of the API. It names no
/// endpoints: the node does not know by which of its addresses the caller reaches it.
pub(super) fn client_config(
    node: &dyn Node,
    request: &api::GenerateClientConfigurationRequest,
) -> Result<api::GenerateClientConfigurationResponse, Status> {
    let document = control_plane(node)?;
    let roles = roles(&request.roles)?;
    let lifetime = lifetime(request.crt_ttl)?;
    let authority = certificates::signer(&document)
        .map_err(|error| Status::failed_precondition(crate::describe(&error)))?;
    let client = authority
        .client(&roles, SystemTime::now(), lifetime)
        .map_err(|error| match error {
            PkiError::TooManyRoles(_) => Status::invalid_argument(format!("roles: {error}")),
            PkiError::BadTime => Status::invalid_argument(format!("crt_ttl: {error}")),
            _ => Status::internal(error.to_string()),
        })?;
    let ca = &authority.pem().crt;
    let context = context(&roles, document.cluster_name());
    let reply = api::GenerateClientConfiguration {
        metadata: None,
        ca: ca.clone().into_bytes(),
        talosconfig: file(&context, ca, &client).into_bytes(),
        crt: client.crt.into_bytes(),
        key: client.key.into_bytes(),
    };
    Ok(api::GenerateClientConfigurationResponse {
        messages: vec![reply],
    })
}

/// Why the cluster cannot be begun here and now.
pub(super) fn bootstrap(node: &dyn Node) -> Status {
    if node.stage() != Stage::Running {
        return Status::failed_precondition(
            "bootstrap is not available yet: the node is not running",
        );
    }
    let document = match control_plane(node) {
        Ok(document) => document,
        Err(status) => return status,
    };
    let etcd = document.cluster.etcd.as_ref();
    if etcd.is_none_or(|etcd| etcd.ca.is_none()) {
        return Status::invalid_argument("the machine config has no cluster.etcd.ca");
    }
    Status::unimplemented(absent::sentence("/machine.MachineService/Bootstrap"))
}

/// The config of a control plane node.
fn control_plane(node: &dyn Node) -> Result<Document, Status> {
    node.config()
        .filter(|document| document.machine.kind.is_control_plane())
        .ok_or_else(|| Status::unimplemented("only control plane nodes do this"))
}

/// Unknown names grant nothing, so they are left out; a certificate without any role is of no use.
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
        let text = format!("roles: none is asked for that there is; there are {known}");
        return Err(Status::invalid_argument(text));
    }
    Ok(roles)
}

fn lifetime(asked: Option<prost_types::Duration>) -> Result<Duration, Status> {
    asked
        .and_then(|asked| Duration::try_from(asked).ok())
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

/// The file as the field's clients read it. A JSON string is a YAML string, whatever is in it.
fn file(context: &str, ca: &str, client: &CertificateAndKey) -> String {
    let context = serde_json::Value::from(context);
    let [ca, crt, key] = [ca, &client.crt, &client.key].map(|pem| STANDARD.encode(pem));
    format!(
        "context: {context}\ncontexts:\n    {context}:\n        endpoints: []\n        ca: {ca}\n        crt: {crt}\n        key: {key}\n"
    )
}

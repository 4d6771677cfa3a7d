//! machined's client of the Kubernetes API; the objects are JSON of any kind.
//!
//! Owns: objects, inventory, nodes with cordon and drain, workloads, CAs, accounts of pods, static pods, signing requests.
//! Never: decides what is applied (`corten-manifests`) or granted, keeps anything between two calls, or takes a lock.

mod access;
mod accounts;
mod apply;
mod cas;
mod changes;
mod drain;
mod endpoints;
mod error;
mod inventory;
mod kinds;
mod kubelet;
mod members;
mod node;
mod own_node;
mod ownership;
mod pods;
mod prune;
mod readiness;
mod signing_requests;
mod versions;
mod workloads;

use std::fmt::{self, Display};
use std::time::Duration;

use http::Request;
use kube::Client;

pub use access::{Access, from_kubeconfig};
pub use accounts::{Account, Grants, Refusal};
pub use apply::{Existing, Failed, Report};
pub use corten_manifests::Identity;
pub use drain::{Drained, Left};
pub use error::{Cause, ClusterError};
pub use kubelet::static_pods;
pub use members::{Member, MemberWatch};
pub use own_node::{NodeState, NodeWatch};
pub use ownership::{Metadata, Taint};
pub use pods::{Container, ContainerState};
pub use prune::Pruned;
pub use readiness::NodeReadiness;
pub use versions::{Machine, Requested, StaticPod};
pub use workloads::{Pods, Workload};

/// Timeout of one request, including its whole answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Field manager in `metadata.managedFields`. It is the reference's name, so that a migrated cluster has one owner of
/// these fields instead of two.
const MANAGER: &str = "talos";

/// A cluster, reached through one of its API servers. Clones share the connection.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}

impl Cluster {
    /// Creates a client; it sends no request yet. Must be called inside a Tokio runtime, which then drives the
    /// connection.
    ///
    /// # Errors
    /// [`ClusterError::Access`]: the address, a certificate or the key is invalid.
    pub fn connect(access: &Access) -> Result<Cluster, ClusterError> {
        Cluster::connect_with(access, PATIENCE)
    }

    /// Like [`Cluster::connect`], for [`Cluster::serve_accounts`] and [`Cluster::watch_node`]: a watch may be silent for minutes. Other requests
    /// keep their timeout.
    ///
    /// # Errors
    /// Those of [`Cluster::connect`].
    pub fn connect_to_watch(access: &Access) -> Result<Cluster, ClusterError> {
        Cluster::connect_with(access, changes::SILENCE)
    }

    fn connect_with(access: &Access, silence: Duration) -> Result<Cluster, ClusterError> {
        let client = Client::try_from(access.config(silence)?);
        let client =
            client.map_err(|error| ClusterError::access("the certificates or the key", error))?;
        Ok(Cluster { client })
    }

    /// Succeeds if the API server is ready: `/readyz` answers `ok`.
    ///
    /// # Errors
    /// The server is not ready; the error names the failed parts.
    pub async fn is_ready(&self) -> Result<(), ClusterError> {
        let (action, object) = ("check the readiness of", "kube-apiserver");
        let request = Request::get("/readyz").body(Vec::new());
        let request = request.map_err(|error| ClusterError::request(action, &object, error))?;
        let answer = within(action, &object, self.client.request_text(request)).await?;
        match answer.trim() {
            "ok" => Ok(()),
            other => Err(ClusterError::request(action, &object, error::short(other))),
        }
    }
}

/// Awaits a request with a timeout. Errors name `action` and `object`.
async fn within<T>(
    action: &'static str,
    object: &(dyn Display + Sync),
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ClusterError> {
    let cause = match tokio::time::timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => Cause::from(error),
        Err(_) => Cause::NoAnswer,
    };
    Err(ClusterError::Request {
        action,
        object: object.to_string(),
        cause,
    })
}

#[cfg(test)]
mod tests;

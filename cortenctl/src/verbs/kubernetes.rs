//! Connects to the Kubernetes API of the cluster as its administrator.

use corten_cluster::{Cluster, from_kubeconfig};

use super::kubeconfig;
use crate::cli::Global;
use crate::connect::Target;
use crate::failure::Failure;
use crate::stream::each;

/// Connects with the kubeconfig of an endpoint; to `server` instead of the kubeconfig's address, if given.
///
/// # Errors
/// No endpoint returns a kubeconfig, or the kubeconfig is unusable; a sentence.
pub(crate) async fn connect(
    global: &Global,
    server: Option<&str>,
) -> Result<Result<Cluster, String>, Failure> {
    let endpoint = Target {
        nodes: Vec::new(),
        ..Target::of(global)?
    };
    let mut text = String::new();
    let failed = each(endpoint.open().await?, async |node| {
        text = kubeconfig::fetch(node).await?;
        Ok(())
    })
    .await?;
    if let Some((endpoint, why)) = failed.first() {
        return Ok(Err(format!(
            "endpoint {endpoint} gives no kubeconfig: {why}"
        )));
    }
    let connected = from_kubeconfig(&text).and_then(|mut access| {
        if let Some(server) = server {
            server.clone_into(&mut access.server);
        }
        Cluster::connect(&access)
    });
    Ok(connected.map_err(|error| error.to_string()))
}

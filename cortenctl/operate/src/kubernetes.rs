//! Connects to the Kubernetes API of the cluster as its administrator.

use corten_client::connect::Target;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::kubeconfig;
use corten_client::stream::each;
use corten_cluster::{Access, Cluster, from_kubeconfig};
use serde_json::Value;

/// Connects with the kubeconfig of an endpoint; to `server` instead of the kubeconfig's address, if given.
///
/// # Errors
/// No endpoint returns a kubeconfig, or the kubeconfig is unusable; a sentence.
pub(crate) async fn connect(
    global: &Global,
    server: Option<&str>,
) -> Result<Result<Cluster, String>, Failure> {
    let access = access(Target::of(global)?, server).await?;
    Ok(access.and_then(|access| Cluster::connect(&access).map_err(|error| error.to_string())))
}

/// The administrator's access in the kubeconfig of an endpoint; to `server` instead of the kubeconfig's address, if
/// given.
///
/// # Errors
/// No endpoint returns a kubeconfig, or the kubeconfig is unusable; a sentence.
pub(crate) async fn access(
    target: Target,
    server: Option<&str>,
) -> Result<Result<Access, String>, Failure> {
    let endpoint = Target {
        nodes: Vec::new(),
        ..target
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
    let access = from_kubeconfig(&text).map(|access| match server {
        Some(server) => Access {
            server: server.to_owned(),
            ..access
        },
        None => access,
    });
    Ok(access.map_err(|error| error.to_string()))
}

/// The nodes and the pods of `kube-system` in full, each list with its name.
///
/// # Errors
/// No endpoint can be reached. The inner error says why the cluster gives no objects; a sentence.
pub async fn objects(
    global: &Global,
) -> Result<Result<Vec<(&'static str, Vec<Value>)>, String>, Failure> {
    let cluster = match connect(global, None).await? {
        Ok(cluster) => cluster,
        Err(why) => return Ok(Err(why)),
    };
    let listed = async {
        let nodes = cluster.nodes_in_full().await?;
        let pods = cluster.pods_in_full("kube-system").await?;
        Ok(vec![("nodes", nodes), ("pods", pods)])
    };
    let listed: Result<_, corten_cluster::ClusterError> = listed.await;
    Ok(listed.map_err(|error| error.to_string()))
}

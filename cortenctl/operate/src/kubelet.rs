//! The kubelet of a node, as a change that restarts it sees it.

use corten_client::resources;
use corten_client::stream::{Node, Trouble};

/// PID of a node's kubelet.
pub(crate) async fn pid(node: &Node) -> Result<Option<u64>, Trouble> {
    let kind = "ServicePIDs.runtime.talos.dev";
    let found = resources::find(node, "runtime", kind, "kubelet").await?;
    Ok(found.and_then(|spec| spec.get("pid")?.as_u64()))
}

/// Checks that the kubelet is healthy and is no longer the process `former`. The error is a sentence.
pub(crate) async fn has_restarted(
    node: &Node,
    former: Option<u64>,
) -> Result<Result<(), String>, Trouble> {
    let kind = "Services.v1alpha1.talos.dev";
    let service = resources::find(node, "runtime", kind, "kubelet").await?;
    let healthy = service.and_then(|service| service.get("healthy")?.as_bool());
    if healthy != Some(true) {
        return Ok(Err(
            "its kubelet is not healthy; see `logs kubelet`".to_owned()
        ));
    }
    let now = pid(node).await?;
    Ok(match now.is_some() && now == former {
        true => Err("its kubelet has not restarted".to_owned()),
        false => Ok(()),
    })
}

//! `health`: the checks a control plane node makes of its cluster.

use corten_api::cluster::{ClusterInfo, HealthCheckProgress, HealthCheckRequest};

use crate::answers::finish;
use crate::cli::Health;
use crate::clients::Cluster;
use crate::connect::Route;
use crate::failure::Failure;
use crate::stream::stream;
use crate::table::{print, printable};

pub(crate) async fn run(routes: Vec<Route>, args: &Health) -> Result<(), Failure> {
    if !args.server {
        return Err(Failure::usage(
            "the checks are made by a control plane node; leave --server=false out",
        ));
    }
    let body = HealthCheckRequest {
        wait_timeout: prost_types::Duration::try_from(args.wait_timeout).ok(),
        cluster_info: Some(ClusterInfo {
            control_plane_nodes: args.control_plane_nodes.clone(),
            worker_nodes: args.worker_nodes.clone(),
            force_endpoint: args.k8s_endpoint.clone(),
        }),
    };
    let call = |mut client: Cluster, request| async move { client.health_check(request).await };
    let failed = stream(routes, body, call, |_, progress: HealthCheckProgress| {
        // The first frame only says that the stream has begun.
        if progress.message.is_empty() {
            return Ok(());
        }
        Ok(print(&format!("{}\n", printable(&progress.message)))?)
    })
    .await?;
    finish(&failed)
}

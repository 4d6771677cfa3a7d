//! `cluster.ClusterService`: checks the health of nodes, as far as this node can ask them.
//!
//! The checks run in order. Each polls every node until all pass, and reports changes meanwhile. It acts as an ordinary
//! caller with the reader role, and reaches other nodes through this node's apid.

mod ask;
mod cluster;
mod judge;
mod question;
#[cfg(test)]
mod tests;
mod together;

use std::sync::Arc;
use std::time::Duration;

use corten_api::cluster::cluster_service_server::ClusterService;
use corten_api::cluster::{ClusterInfo, HealthCheckProgress, HealthCheckRequest};
use corten_observe::stream;
use corten_types::cluster::Member;
use corten_types::secrets::CertSans;
use http::Uri;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::places::Places;
use super::{Paths, duration, is_host};
use crate::node::Node;
use ask::{Asking, Target};

/// Limit of concurrent health checks.
const AT_A_TIME: usize = 16;
/// Limit of nodes in one health check, equal to apid's limit.
const MOST_NODES: usize = 1024;
/// Pause between polls.
const PAUSE: Duration = Duration::from_secs(2);
/// Default timeout, the reference client's value.
const USUAL_PATIENCE: Duration = Duration::from_secs(20 * 60);
const LONGEST_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Messages queued between the checks and the connection.
const QUEUE: usize = 4;
/// Limits of a report: number of nodes, and characters per node.
const TOLD: usize = 8;
const TOLD_EACH: usize = 200;

/// The checks, in order. The names are the reference's where it has the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Apid,
    Memory,
    Disks,
    Diagnostics,
    Etcd,
    /// The members of etcd, compared between nodes.
    Members,
    /// The members of etcd, compared with the control plane nodes.
    Strangers,
    Services,
    Boot,
    Registered,
    StaticPods,
    Components,
    Nodes,
    Proxy,
    Dns,
    Schedulable,
}

impl Check {
    const ALL: [Check; 16] = [
        Check::Apid,
        Check::Memory,
        Check::Disks,
        Check::Diagnostics,
        Check::Etcd,
        Check::Members,
        Check::Strangers,
        Check::Services,
        Check::Boot,
        Check::Registered,
        Check::StaticPods,
        Check::Components,
        Check::Nodes,
        Check::Proxy,
        Check::Dns,
        Check::Schedulable,
    ];

    const fn name(self) -> &'static str {
        match self {
            Check::Apid => "apid to be ready",
            Check::Memory => "all nodes memory sizes",
            Check::Disks => "all nodes disk sizes",
            Check::Diagnostics => "no diagnostics",
            Check::Etcd => "etcd to be healthy",
            Check::Members => "etcd members to be consistent across nodes",
            Check::Strangers => "etcd members to be control plane nodes",
            Check::Services => "all services to be healthy",
            Check::Boot => "all nodes to finish boot sequence",
            Check::Registered => "all k8s nodes to report",
            Check::StaticPods => "all control plane static pods to be running",
            Check::Components => "all control plane components to be ready",
            Check::Nodes => "all k8s nodes to report ready",
            Check::Proxy => "kube-proxy to report ready",
            Check::Dns => "coredns to report ready",
            Check::Schedulable => "all k8s nodes to report schedulable",
        }
    }
}

/// Source of the nodes' states.
trait Nodes: Send + Sync {
    /// Problems of the nodes that fail a check, each with the node's name.
    fn lacking(&self, check: Check) -> impl Future<Output = Vec<String>> + Send;
}

type Sender = mpsc::Sender<Result<HealthCheckProgress, Status>>;

/// The service.
pub(super) struct HealthChecks {
    node: Arc<dyn Node>,
    paths: Paths,
    places: Places,
}

impl HealthChecks {
    pub(super) fn new(node: Arc<dyn Node>, paths: Paths) -> HealthChecks {
        HealthChecks {
            node,
            paths,
            places: Places::new("health checks", AT_A_TIME),
        }
    }

    /// The nodes of the cluster by their first addresses, or else names; none where this node does not know them.
    fn members(&self) -> ClusterInfo {
        let mut info = ClusterInfo::default();
        for member in self.node.store().list_as::<Member>() {
            let names = match member.control_plane {
                Some(_) => &mut info.control_plane_nodes,
                None => &mut info.worker_nodes,
            };
            let address = member.addresses.first().map(ToString::to_string);
            names.push(address.unwrap_or_else(|| member.hostname.clone()));
        }
        info
    }

    /// The nodes to ask: the named ones, or all, or this one.
    fn targets(&self, info: &ClusterInfo) -> Result<Vec<Target>, Status> {
        let named = [
            ("control_plane_nodes", &info.control_plane_nodes),
            ("worker_nodes", &info.worker_nodes),
        ];
        if named.iter().map(|(_, names)| names.len()).sum::<usize>() > MOST_NODES {
            let text = format!("cluster_info: more than {MOST_NODES} nodes");
            return Err(Status::invalid_argument(text));
        }
        let sans = self.node.store().get_as::<CertSans>(CertSans::ID);
        let own = sans.map(|sans| sans.names()).unwrap_or_default();
        let config = self.node.config();
        let asks_others = config.is_some_and(|config| config.machine.kind.is_control_plane());
        let mut targets = Vec::new();
        for (field, names) in named {
            for name in names {
                if !is_host(name) {
                    return Err(Status::invalid_argument(format!(
                        "cluster_info.{field}: {name:?} is neither a host name nor an IP address"
                    )));
                }
                let target = if own.contains(name) {
                    Target::Itself
                } else if asks_others {
                    Target::Other(name.clone())
                } else {
                    return Err(Status::failed_precondition(format!(
                        "cluster_info.{field}: this node is not a control plane node, so it cannot ask {name}; use \
                         one as endpoint"
                    )));
                };
                if !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
        if targets.is_empty() {
            targets.push(Target::Itself);
        }
        Ok(targets)
    }
}

fn patience(asked: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(asked) = asked else {
        return Ok(USUAL_PATIENCE);
    };
    duration(asked)
        .filter(|asked| !asked.is_zero() && *asked <= LONGEST_PATIENCE)
        .ok_or_else(|| {
            Status::invalid_argument("wait_timeout: must be more than 0 and at most 24h")
        })
}

/// The URL of the API server to ask, where the caller names one.
fn endpoint(forced: String) -> Result<Option<String>, Status> {
    if forced.is_empty() {
        return Ok(None);
    }
    let url: Result<Uri, _> = forced.parse();
    let is_server = url.is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some());
    if is_server {
        return Ok(Some(forced));
    }
    Err(Status::invalid_argument(format!(
        "cluster_info.force_endpoint: {forced:?} is not the URL of an API server, such as https://192.0.2.1:6443"
    )))
}

#[async_trait]
impl ClusterService for HealthChecks {
    async fn health_check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckProgress>>, Status> {
        let place = self.places.enter(request.extensions())?;
        let request = request.into_inner();
        let patience = patience(request.wait_timeout)?;
        let mut info = request.cluster_info.unwrap_or_default();
        let endpoint = endpoint(std::mem::take(&mut info.force_endpoint))?;
        if info.control_plane_nodes.is_empty() && info.worker_nodes.is_empty() {
            info = self.members();
        }
        let targets = self.targets(&info)?;
        let nodes = Asking::new(self.node.clone(), self.paths.clone(), targets, endpoint);
        let (sender, receiver) = mpsc::channel(QUEUE);
        stream::task(sender.clone(), async move {
            let _place = place;
            tokio::select! {
                () = checks(&nodes, &sender, patience, PAUSE) => {}
                () = sender.closed() => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Runs the checks, and ends the stream with an error after the timeout.
async fn checks(nodes: &impl Nodes, sender: &Sender, patience: Duration, pause: Duration) {
    let mut waiting = String::new();
    let ended = timeout(patience, pass(nodes, sender, pause, &mut waiting)).await;
    if ended.is_err() {
        let text = format!(
            "timeout after {} s: waiting for {waiting}",
            patience.as_secs()
        );
        let _ = sender.send(Err(Status::deadline_exceeded(text))).await;
    }
}

/// Returns when all checks have passed. `waiting` describes the pending check and its problems.
async fn pass(nodes: &impl Nodes, sender: &Sender, pause: Duration, waiting: &mut String) {
    for check in Check::ALL {
        let name = check.name();
        *waiting = format!("{name}: ...");
        say(sender, format!("waiting for {waiting}")).await;
        loop {
            let lacking = nodes.lacking(check).await;
            if lacking.is_empty() {
                break;
            }
            let now = format!("{name}: {}", summary(&lacking));
            if now != *waiting {
                *waiting = now;
                say(sender, format!("waiting for {waiting}")).await;
            }
            sleep(pause).await;
        }
        say(sender, format!("waiting for {name}: OK")).await;
    }
}

/// Sends a message; waits for room. If the caller disconnects, the task is cancelled from outside.
async fn say(sender: &Sender, message: String) {
    let metadata = None;
    let _ = sender
        .send(Ok(HealthCheckProgress { metadata, message }))
        .await;
}

fn summary(lacking: &[String]) -> String {
    let told = lacking.iter().take(TOLD).map(|text| {
        let end = text.floor_char_boundary(TOLD_EACH);
        text.get(..end).unwrap_or_default()
    });
    let mut summary = told.collect::<Vec<_>>().join("; ");
    if let Some(more @ 1..) = lacking.len().checked_sub(TOLD) {
        summary.push_str(&format!("; and {more} more"));
    }
    summary
}

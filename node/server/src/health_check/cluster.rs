//! Checks that ask the cluster about its nodes and add-ons. Only a control plane node asks: a worker's kubelet may not
//! read other nodes.

use std::time::Duration;

use corten_cluster::{Cluster, NodeReadiness, Workload};
use corten_config::Document;
use corten_credentials::access::{connect, of_node};
use corten_kubernetes::{ControlPlane, Settings};
use corten_resources::controller::with_causes as describe;
use tokio::time::timeout;

use super::together::{Registration, unlabelled, unregistered};
use crate::node::Node;

/// Timeout of all requests of one check.
const PATIENCE: Duration = Duration::from_secs(15);
/// Namespace of kube-proxy and CoreDNS.
const NAMESPACE: &str = "kube-system";

/// A check that the cluster answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum OfCluster {
    Registered,
    Components,
    Ready,
    Schedulable,
    Proxy,
    Dns,
}

/// The asked nodes of the cluster, and what its control plane runs.
#[derive(Debug)]
pub(super) struct Components {
    pub(super) nodes: Vec<Registration>,
    /// Names of the static pods, without those of the nodes.
    pub(super) names: Vec<&'static str>,
}

/// The config of a node that asks; `None` of a worker, or of a node without Kubernetes, which passes.
pub(super) fn asking(node: &dyn Node) -> Option<(Document, Settings)> {
    let config = node.config();
    let config = config.filter(|config| config.machine.kind.is_control_plane())?;
    let settings = Settings::of(&config).ok()?;
    Some((config, settings))
}

impl OfCluster {
    /// Problems that the cluster reports to a node with this config, through the API server of `endpoint` or any.
    pub(super) async fn lacking(
        self,
        (config, settings): (Document, Settings),
        endpoint: Option<&str>,
        components: &Components,
    ) -> Vec<String> {
        let images = ControlPlane::of(&config).map(|own| own.images);
        let (has_proxy, has_dns) = images.map_or((false, false), |images| {
            (images.proxy.is_some(), images.dns.is_some())
        });
        let asked = async {
            let cluster = match endpoint {
                Some(server) => connect(&config, &settings, server)?,
                None => of_node(&config, &settings)?,
            };
            match self {
                OfCluster::Registered => {
                    Ok(unregistered(&components.nodes, &nodes(&cluster).await?))
                }
                OfCluster::Components => control_planes(&cluster, components).await,
                OfCluster::Ready => Ok(not_ready(&nodes(&cluster).await?)),
                OfCluster::Schedulable => Ok(cordoned(&nodes(&cluster).await?)),
                OfCluster::Proxy if has_proxy => {
                    pods(&cluster, Workload::DaemonSet, "kube-proxy").await
                }
                OfCluster::Dns if has_dns => pods(&cluster, Workload::Deployment, "coredns").await,
                OfCluster::Proxy | OfCluster::Dns => Ok(Vec::new()),
            }
        };
        match timeout(PATIENCE, asked).await {
            Ok(Ok(lacking)) => lacking,
            Ok(Err(why)) => vec![why],
            Err(_) => vec![format!("no answer within {} s", PATIENCE.as_secs())],
        }
    }
}

/// Each asked control plane node has its label, and a ready pod of each component.
async fn control_planes(cluster: &Cluster, components: &Components) -> Result<Vec<String>, String> {
    let mut lacking = unlabelled(&components.nodes, &nodes(cluster).await?);
    for node in components.nodes.iter().filter(|node| node.is_control_plane) {
        for component in &components.names {
            let pod = cluster.static_pod(component, &node.name).await;
            let pod = pod.map_err(|error| describe(&error))?;
            let why = match pod.map(|pod| pod.ready) {
                Some(Ok(())) => continue,
                Some(Err(why)) => why,
                None => "Kubernetes does not know the pod yet".to_owned(),
            };
            lacking.push(format!("{component}-{}: {why}", node.name));
        }
    }
    Ok(lacking)
}

async fn nodes(cluster: &Cluster) -> Result<Vec<NodeReadiness>, String> {
    cluster.nodes().await.map_err(|error| describe(&error))
}

fn not_ready(nodes: &[NodeReadiness]) -> Vec<String> {
    if nodes.is_empty() {
        return vec!["no node has registered yet".to_owned()];
    }
    let lacking = nodes.iter().filter_map(|node| {
        let why = node.ready.as_ref().err()?;
        Some(format!("{}: {why}", node.name))
    });
    lacking.collect()
}

fn cordoned(nodes: &[NodeReadiness]) -> Vec<String> {
    let cordoned = nodes.iter().filter(|node| !node.is_schedulable);
    let told = cordoned.map(|node| format!("{}: it is cordoned", node.name));
    told.collect()
}

/// A cluster with a replacement for the program has no workload of that name, and passes.
async fn pods(cluster: &Cluster, workload: Workload, name: &str) -> Result<Vec<String>, String> {
    let found = cluster.pods_of(workload, NAMESPACE, name).await;
    Ok(match found.map_err(|error| describe(&error))? {
        // No node is to run the DaemonSet.
        Some(pods) if pods.wanted == 0 && workload == Workload::DaemonSet => Vec::new(),
        Some(pods) if pods.ready < pods.wanted || pods.wanted == 0 => {
            let late = pods.late.map(|late| format!(": {late}"));
            let late = late.unwrap_or_default();
            vec![format!(
                "{} of {} pods are ready{late}",
                pods.ready, pods.wanted
            )]
        }
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use corten_pki::{Algorithm, Ca};
    use tokio::net::TcpListener;

    use super::*;

    /// A config of a control plane node, with one CA for all purposes.
    fn config() -> Document {
        let ca = Ca::generate(Algorithm::EcdsaP256, "test", "", SystemTime::now()).unwrap();
        let [crt, key] = [&ca.pem().crt, &ca.pem().key].map(|text| STANDARD.encode(text));
        let text = format!(
            "version: v1alpha1\nmachine:\n  type: controlplane\n  token: very.secret\n  ca: &ca\n    crt: {crt}\n    key: {key}\n\
             cluster:\n  controlPlane: {{endpoint: 'https://192.0.2.1:6443'}}\n  ca: *ca\n  aggregatorCA: *ca\n\
             \x20 etcd: {{ca: *ca}}\n"
        );
        Document::parse(text.as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn cluster_is_asked_at_the_endpoint_that_the_caller_names() {
        let config = config();
        let settings = Settings::of(&config).unwrap();
        let server = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoint = format!("https://{}", server.local_addr().unwrap());
        let components = Components {
            nodes: Vec::new(),
            names: Vec::new(),
        };
        let asked =
            OfCluster::Ready.lacking((config, settings), Some(endpoint.as_str()), &components);
        let hung_up = async {
            let (connection, _) = server.accept().await.unwrap();
            drop(connection);
        };
        let (lacking, ()) = tokio::join!(asked, hung_up);
        assert_eq!(lacking.len(), 1, "{lacking:?}");
    }

    #[test]
    fn nodes_that_are_not_ready_or_cordoned_are_named_with_the_reason() {
        let node = |name: &str, ready: Result<(), &str>, is_schedulable| NodeReadiness {
            name: name.to_owned(),
            ready: ready.map_err(str::to_owned),
            is_schedulable,
            is_control_plane: false,
        };
        let nodes = [
            node("a", Ok(()), true),
            node("b", Err("no network"), true),
            node("c", Ok(()), false),
        ];
        assert_eq!(not_ready(&nodes), ["b: no network"]);
        assert_eq!(cordoned(&nodes), ["c: it is cordoned"]);
        assert_eq!(not_ready(&[]), ["no node has registered yet"]);
    }
}

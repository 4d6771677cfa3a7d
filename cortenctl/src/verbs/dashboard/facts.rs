//! Identity of a node: its cluster, its type and stage, its part in Kubernetes; and its diagnostics.

use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::resources::{find, list, machine_type, spec};
use corten_client::stream::{Node, Trouble, each};
use serde_json::Value;
use tonic::Code;

/// Components of a control plane: the name of the pod, and the title.
const COMPONENTS: [(&str, &str); 3] = [
    ("kube-apiserver", "APISERVER"),
    ("kube-controller-manager", "CONTROLLER-MANAGER"),
    ("kube-scheduler", "SCHEDULER"),
];

/// Limit of shown diagnostics.
const DIAGNOSTICS: usize = 4;

/// Titles and values; a value that the node does not tell is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The node in its cluster.
    pub(super) node: Vec<(&'static str, String)>,
    /// Kubernetes on the node; empty without a running kubelet.
    pub(super) kubernetes: Vec<(&'static str, String)>,
    /// Misconfigurations that the node has found.
    pub(super) diagnostics: Vec<String>,
}

/// Asks the chosen node. A node that does not answer has no facts.
pub(super) async fn of(routes: Vec<Route>, chosen: &str) -> Result<Facts, Failure> {
    let mut facts = Facts::default();
    each(routes, async |node| {
        if node.name == chosen {
            facts = ask(node).await?;
        }
        Ok(())
    })
    .await?;
    Ok(facts)
}

async fn ask(node: &Node) -> Result<Facts, Trouble> {
    let cluster = find(node, "cluster", "Infos.cluster.talos.dev", "current").await?;
    let members = list(node, "cluster", "Members.cluster.talos.dev").await?;
    let kind = machine_type(node).await?;
    let status = find(
        node,
        "runtime",
        "MachineStatuses.runtime.talos.dev",
        "machine",
    )
    .await?;
    let kubelet = find(
        node,
        "k8s",
        "KubeletStatuses.kubernetes.talos.dev",
        "kubelet",
    )
    .await?;
    let service = find(node, "runtime", "Services.v1alpha1.talos.dev", "kubelet").await?;
    let mut pods = Vec::new();
    for pod in list(node, "k8s", "StaticPodStatuses.kubernetes.talos.dev").await? {
        let status = spec(&pod)?;
        pods.push((pod.metadata.unwrap_or_default().id, status));
    }
    Ok(Facts {
        node: of_node(cluster.as_ref(), members.len(), kind, status.as_ref()),
        kubernetes: of_kubernetes(kubelet.as_ref(), service.as_ref(), &pods),
        diagnostics: diagnostics(node).await?,
    })
}

/// The first diagnostics; none of a node of a version without this type.
async fn diagnostics(node: &Node) -> Result<Vec<String>, Trouble> {
    let found = match list(node, "runtime", "Diagnostics.runtime.talos.dev").await {
        Err(Trouble::Call(status)) if status.code() == Code::PermissionDenied => Vec::new(),
        found => found?,
    };
    let mut told = Vec::new();
    for resource in found.into_iter().take(DIAGNOSTICS) {
        let message = text(Some(&spec(&resource)?), "/message").unwrap_or_default();
        let id = resource.metadata.unwrap_or_default().id;
        told.push(format!("{id}: {message}"));
    }
    Ok(told)
}

fn text(value: Option<&Value>, path: &str) -> Option<String> {
    let text = value?.pointer(path)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn of_node(
    cluster: Option<&Value>,
    members: usize,
    kind: Option<String>,
    status: Option<&Value>,
) -> Vec<(&'static str, String)> {
    let name = text(cluster, "/clusterName").map(|name| match members {
        // A worker does not know them.
        0 => name,
        1 => format!("{name} (1 machine)"),
        members => format!("{name} ({members} machines)"),
    });
    let ready = status.and_then(|status| status.pointer("/status/ready")?.as_bool());
    let all = [
        ("CLUSTER", name),
        ("TYPE", kind),
        ("STAGE", text(status, "/stage")),
        ("READY", ready.map(|ready| ready.to_string())),
    ];
    all.into_iter()
        .filter_map(|(title, value)| Some((title, value?)))
        .collect()
}

fn of_kubernetes(
    kubelet: Option<&Value>,
    service: Option<&Value>,
    pods: &[(String, Value)],
) -> Vec<(&'static str, String)> {
    let Some(image) = text(kubelet, "/image") else {
        return Vec::new();
    };
    let image = image.split('@').next().unwrap_or_default();
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|name| name.split_once(':'));
    let healthy = service.and_then(|service| service.get("healthy")?.as_bool());
    let mut all = vec![
        ("KUBERNETES", tag.map_or("n/a", |(_, tag)| tag).to_owned()),
        ("KUBELET", health(healthy)),
    ];
    let is_control_plane = !pods.is_empty();
    for (name, title) in COMPONENTS.iter().filter(|_| is_control_plane) {
        let start = format!("kube-system/{name}-");
        let pod = pods.iter().find(|(id, _)| id.starts_with(&start));
        all.push((title, health(pod.and_then(|(_, status)| is_ready(status)))));
    }
    all
}

fn health(healthy: Option<bool>) -> String {
    match healthy {
        Some(true) => "healthy",
        Some(false) => "unhealthy",
        None => "n/a",
    }
    .to_owned()
}

/// The condition Ready of a pod.
fn is_ready(status: &Value) -> Option<bool> {
    let mut conditions = status.get("conditions")?.as_array()?.iter();
    let ready = conditions.find(|one| one.get("type").and_then(Value::as_str) == Some("Ready"))?;
    Some(ready.get("status")?.as_str()? == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(facts: &[(&str, String)]) -> String {
        let facts = facts
            .iter()
            .map(|(title, value)| format!("{title}={value}"));
        facts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn facts_of_a_node_leave_out_what_it_does_not_tell() {
        let cluster = json!({ "clusterId": "", "clusterName": "demo" });
        let status = json!({ "stage": "running", "status": { "ready": true } });
        let kind = Some("controlplane".to_owned());
        let whole = of_node(Some(&cluster), 3, kind, Some(&status));
        assert_eq!(
            shown(&whole),
            "CLUSTER=demo (3 machines) TYPE=controlplane STAGE=running READY=true"
        );
        let worker = of_node(Some(&cluster), 0, None, None);
        assert_eq!(shown(&worker), "CLUSTER=demo");
        let bare = json!({ "clusterName": "" });
        assert_eq!(of_node(Some(&bare), 1, None, Some(&json!(7))), []);
    }

    #[test]
    fn kubernetes_is_shown_with_its_version_and_the_health_of_its_components() {
        let kubelet = json!({ "image": "registry.example:5000/kubelet:v1.37.2@sha256:00" });
        let service = json!({ "running": true, "healthy": false });
        let ready = |status: &str| json!({ "conditions": [{ "type": "Ready", "status": status }] });
        let pods = [
            ("kube-system/kube-apiserver-n1".to_owned(), ready("True")),
            ("kube-system/kube-scheduler-n1".to_owned(), ready("False")),
            ("default/web-n1".to_owned(), json!("nonsense")),
        ];
        let control_plane = of_kubernetes(Some(&kubelet), Some(&service), &pods);
        assert_eq!(
            shown(&control_plane),
            "KUBERNETES=v1.37.2 KUBELET=unhealthy APISERVER=healthy CONTROLLER-MANAGER=n/a SCHEDULER=unhealthy"
        );
        let worker = of_kubernetes(Some(&kubelet), None, &[]);
        assert_eq!(shown(&worker), "KUBERNETES=v1.37.2 KUBELET=n/a");
        assert_eq!(of_kubernetes(None, Some(&service), &pods), []);
    }
}

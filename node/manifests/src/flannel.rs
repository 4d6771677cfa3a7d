//! flannel, the pod network.

use serde_json::{Map, Value, json};

use crate::access::{account_has_role, role, service_account};
use crate::object::{container_variable, daemon_tolerations, only_on, set};
use crate::{Flannel, NAMESPACE};

const NAME: &str = "flannel";

pub(crate) fn objects(flannel: &Flannel, pod_subnets: &[String]) -> Vec<Value> {
    let mut objects = vec![
        role(NAME, &rules(flannel.policies_image.is_some())),
        account_has_role(NAME, NAME, NAME),
        service_account(NAME),
    ];
    for object in &mut objects {
        set(object, "/metadata", "labels", json!({ "k8s-app": NAME }));
    }
    objects.push(config(flannel, pod_subnets));
    objects.push(daemon_set(flannel));
    objects
}

fn rules(policies: bool) -> Value {
    let mut rules = vec![
        json!({
            "apiGroups": [""],
            "resources": ["pods", "nodes", "namespaces"],
            "verbs": ["get", "list", "watch"],
        }),
        json!({ "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] }),
    ];
    if policies {
        for (group, resources) in [
            ("networking.k8s.io", vec!["networkpolicies"]),
            (
                "policy.networking.k8s.io",
                vec!["adminnetworkpolicies", "baselineadminnetworkpolicies"],
            ),
        ] {
            rules.push(json!({
                "apiGroups": [group],
                "resources": resources,
                "verbs": ["list", "watch"],
            }));
        }
    }
    json!(rules)
}

/// Configuration of flannel and of its CNI plug-in (flannel, "Configuration").
fn config(flannel: &Flannel, pod_subnets: &[String]) -> Value {
    let cni = json!({
        "name": "cbr0",
        "cniVersion": "1.0.0",
        "plugins": [
            { "type": NAME, "delegate": { "hairpinMode": true, "isDefaultGateway": true } },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "kube-flannel-cfg", "namespace": NAMESPACE, "labels": labels() },
        "data": {
            "cni-conf.json": format!("{cni:#}"),
            "net-conf.json": format!("{:#}", Value::Object(network(flannel, pod_subnets))),
        },
    })
}

fn network(flannel: &Flannel, pod_subnets: &[String]) -> Map<String, Value> {
    let mut network = Map::new();
    let (ipv6, ipv4): (Vec<&String>, Vec<&String>) =
        pod_subnets.iter().partition(|subnet| subnet.contains(':'));
    if let Some(subnet) = ipv4.first() {
        network.insert("Network".to_owned(), json!(subnet));
    }
    if let Some(subnet) = ipv6.first() {
        network.insert("IPv6Network".to_owned(), json!(subnet));
        network.insert("EnableIPv6".to_owned(), json!(true));
    }
    if ipv4.is_empty() {
        network.insert("EnableIPv4".to_owned(), json!(false));
    }
    network.insert("EnableNFTables".to_owned(), json!(true));
    let mut backend = Map::new();
    if let Some(mtu) = flannel.mtu {
        backend.insert("MTU".to_owned(), json!(mtu));
    }
    if let Some(port) = flannel.port {
        backend.insert("Port".to_owned(), json!(port));
    }
    backend.insert("Type".to_owned(), json!(flannel.backend));
    for (name, value) in &flannel.extra {
        backend.insert(name.clone(), value.clone());
    }
    network.insert("Backend".to_owned(), Value::Object(backend));
    network
}

fn labels() -> Value {
    json!({ "k8s-app": NAME, "tier": "node" })
}

fn daemon(flannel: &Flannel) -> Value {
    let mut args = vec!["--ip-masq".to_owned(), "--kube-subnet-mgr".to_owned()];
    args.extend(flannel.args.iter().cloned());
    let mut env = vec![
        container_variable("POD_NAME", "metadata.name"),
        container_variable("POD_NAMESPACE", "metadata.namespace"),
        json!({ "name": "EVENT_QUEUE_DEPTH", "value": "5000" }),
        json!({ "name": "CONT_WHEN_CACHE_NOT_READY", "value": "false" }),
    ];
    if let Some((host, port)) = flannel.api {
        env.push(json!({ "name": "KUBERNETES_SERVICE_HOST", "value": host.to_string() }));
        env.push(json!({ "name": "KUBERNETES_SERVICE_PORT", "value": port.to_string() }));
    }
    env.extend(flannel.resources.memory_limit());
    json!({
        "name": "kube-flannel",
        "image": flannel.image,
        "command": ["/opt/bin/flanneld"],
        "args": args,
        "env": env,
        "resources": flannel.resources.field("100m", "50Mi"),
        "securityContext": {
            "privileged": false,
            "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] },
        },
        "volumeMounts": [
            { "name": "run", "mountPath": "/run/flannel" },
            { "name": "flannel-cfg", "mountPath": "/etc/kube-flannel/" },
        ],
    })
}

fn policies(image: &str) -> Value {
    json!({
        "name": "kube-network-policies",
        "image": image,
        "command": ["/bin/netpol", "--hostname-override=$(MY_NODE_NAME)", "--v=2"],
        "env": [container_variable("MY_NODE_NAME", "spec.nodeName")],
        "resources": { "requests": { "cpu": "100m", "memory": "50Mi" } },
        "securityContext": { "privileged": true, "capabilities": { "add": ["NET_ADMIN"] } },
        "volumeMounts": [
            { "name": "lib-modules", "mountPath": "/lib/modules", "readOnly": true },
        ],
    })
}

/// Init container that copies the CNI configuration to containerd's directory. The image provides `cp`.
fn install_config(image: &str) -> Value {
    json!({
        "name": "install-config",
        "image": image,
        "command": ["cp"],
        "args": ["-f", "/etc/kube-flannel/cni-conf.json", "/etc/cni/net.d/10-flannel.conflist"],
        "volumeMounts": [
            { "name": "cni", "mountPath": "/etc/cni/net.d" },
            { "name": "flannel-cfg", "mountPath": "/etc/kube-flannel/" },
        ],
    })
}

fn daemon_set(flannel: &Flannel) -> Value {
    let mut containers = vec![daemon(flannel)];
    let mut volumes = vec![
        json!({ "name": "run", "hostPath": { "path": "/run/flannel" } }),
        json!({ "name": "cni", "hostPath": { "path": "/etc/cni/net.d" } }),
        json!({ "name": "flannel-cfg", "configMap": { "name": "kube-flannel-cfg" } }),
    ];
    if let Some(image) = &flannel.policies_image {
        containers.push(policies(image));
        volumes.push(json!({ "name": "lib-modules", "hostPath": { "path": "/usr/lib/modules" } }));
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "kube-flannel", "namespace": NAMESPACE, "labels": labels() },
        "spec": {
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "affinity": only_on(&[]),
                    "hostNetwork": true,
                    "priorityClassName": "system-node-critical",
                    "serviceAccountName": NAME,
                    "tolerations": daemon_tolerations(),
                    "initContainers": [install_config(&flannel.image)],
                    "containers": containers,
                    "volumes": volumes,
                },
            },
        },
    })
}

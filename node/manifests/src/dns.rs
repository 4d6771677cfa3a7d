//! CoreDNS, the DNS server of the cluster.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::access::{account_has_role, mark_as_default, role, service_account};
use crate::object::{ARCHITECTURES, only_on, set};
use crate::{Dns, NAMESPACE};

const NAME: &str = "coredns";
const ROLE: &str = "system:coredns";
/// Label that the service selects its pods by; the name predates CoreDNS.
const APP: &str = "kube-dns";

pub(crate) fn objects(dns: &Dns, domain: &str) -> Vec<Value> {
    let mut role = role(
        ROLE,
        &json!([
            {
                "apiGroups": [""],
                "resources": ["endpoints", "services", "pods", "namespaces"],
                "verbs": ["list", "watch"],
            },
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["list", "watch"],
            },
        ]),
    );
    let mut binding = account_has_role(ROLE, ROLE, NAME);
    mark_as_default(&mut role);
    mark_as_default(&mut binding);
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": NAME, "namespace": NAMESPACE },
        "data": { "Corefile": corefile(domain) },
    });
    vec![
        service_account(NAME),
        role,
        binding,
        config,
        deployment(dns),
    ]
}

fn corefile(domain: &str) -> String {
    let uncached = if domain.is_empty() {
        String::new()
    } else {
        // Answers about the cluster come from memory; a cache would only make them stale.
        format!(" {{\n        disable success {domain}\n        disable denial {domain}\n    }}")
    };
    format!(
        ".:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    log . {{
        class error
    }}
    prometheus :9153
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    forward . /etc/resolv.conf {{
        max_concurrent 1000
    }}
    cache 30{uncached}
    loop
    reload
    loadbalance
}}
"
    )
}

fn container(image: &str) -> Value {
    let port = |name: &str, protocol: &str, port: u16| json!({ "name": name, "protocol": protocol, "containerPort": port });
    json!({
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        // 95 % of the limit below.
        "env": [{ "name": "GOMEMLIMIT", "value": "161MiB" }],
        "resources": {
            "limits": { "memory": "170Mi" },
            "requests": { "cpu": "100m", "memory": "70Mi" },
        },
        "ports": [
            port("dns", "UDP", 53),
            port("dns-tcp", "TCP", 53),
            port("metrics", "TCP", 9153),
        ],
        "livenessProbe": {
            "httpGet": { "path": "/health", "port": 8080, "scheme": "HTTP" },
            "initialDelaySeconds": 60,
            "timeoutSeconds": 5,
            "successThreshold": 1,
            "failureThreshold": 5,
        },
        "readinessProbe": {
            "httpGet": { "path": "/ready", "port": 8181, "scheme": "HTTP" },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "add": ["NET_BIND_SERVICE"], "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [
            { "name": "config-volume", "mountPath": "/etc/coredns", "readOnly": true },
        ],
    })
}

fn deployment(dns: &Dns) -> Value {
    let app = || json!({ "k8s-app": APP });
    let tolerate = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoSchedule" });
    let mut affinity = only_on(ARCHITECTURES);
    let apart = json!({
        "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {
                    "matchExpressions": [
                        { "key": "k8s-app", "operator": "In", "values": [APP] },
                    ],
                },
                "topologyKey": "kubernetes.io/hostname",
            },
        }],
    });
    set(&mut affinity, "", "podAntiAffinity", apart);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": { "k8s-app": APP, "kubernetes.io/name": "CoreDNS" },
        },
        "spec": {
            "replicas": 2,
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
            "selector": { "matchLabels": app() },
            "template": {
                "metadata": { "labels": app() },
                "spec": {
                    "nodeSelector": { "kubernetes.io/os": "linux" },
                    "affinity": affinity,
                    "serviceAccountName": NAME,
                    "priorityClassName": "system-cluster-critical",
                    "tolerations": [
                        tolerate("node-role.kubernetes.io/control-plane"),
                        tolerate("node.cloudprovider.kubernetes.io/uninitialized"),
                    ],
                    "dnsPolicy": "Default",
                    "containers": [container(&dns.image)],
                    "volumes": [{
                        "name": "config-volume",
                        "configMap": {
                            "name": NAME,
                            "items": [{ "key": "Corefile", "path": "Corefile" }],
                        },
                    }],
                },
            },
        },
    })
}

/// The service, with the addresses that pods query; `None` without addresses.
pub(crate) fn service(dns: &Dns) -> Option<Value> {
    let ipv4 = dns.ipv4.map(IpAddr::V4);
    let addresses: Vec<IpAddr> = ipv4.into_iter().chain(dns.ipv6.map(IpAddr::V6)).collect();
    let first = addresses.first()?;
    let families: Vec<&str> = addresses
        .iter()
        .map(|address| if address.is_ipv4() { "IPv4" } else { "IPv6" })
        .collect();
    let policy = if addresses.len() > 1 {
        "RequireDualStack"
    } else {
        "SingleStack"
    };
    let port = |name: &str, protocol: &str, port: u16| json!({ "name": name, "protocol": protocol, "port": port, "targetPort": port });
    Some(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": APP,
            "namespace": NAMESPACE,
            "labels": {
                "k8s-app": APP,
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
            "annotations": { "prometheus.io/port": "9153", "prometheus.io/scrape": "true" },
        },
        "spec": {
            "selector": { "k8s-app": APP },
            "clusterIP": first,
            "clusterIPs": addresses,
            "ipFamilies": families,
            "ipFamilyPolicy": policy,
            "ports": [
                port("dns", "UDP", 53),
                port("dns-tcp", "TCP", 53),
                port("metrics", "TCP", 9153),
            ],
        },
    }))
}

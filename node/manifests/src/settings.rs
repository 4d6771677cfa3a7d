//! Settings of the bootstrap manifests.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::Resources;

/// Settings of the bootstrap manifests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// URL of the Kubernetes API for pods on the host network.
    pub server: String,
    /// Domain of the cluster's DNS.
    pub domain: String,
    /// Pod subnets, such as `10.244.0.0/16`; at most one of each family.
    pub pod_subnets: Vec<String>,
    /// kube-proxy; `None` if the cluster does not run it.
    pub proxy: Option<Proxy>,
    /// CoreDNS; `None` if the cluster does not run it.
    pub dns: Option<Dns>,
    /// flannel; `None` if the cluster has another network plug-in, or none.
    pub flannel: Option<Flannel>,
    /// Whether pods have access to the node's API, by accounts of a kind of their own.
    pub has_pod_access: bool,
    /// Group whose pods share a process of containerd's shim on a node; `None` if each pod has its own.
    pub shim_group: Option<String>,
}

/// kube-proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proxy {
    /// Image.
    pub image: String,
    /// Arguments, each with two dashes.
    pub args: Vec<String>,
    /// Fields of the `KubeProxyConfiguration`; `None` for arguments only.
    pub config: Option<Value>,
    /// Resources of the container.
    pub resources: Resources,
}

/// CoreDNS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dns {
    /// Image.
    pub image: String,
    /// Address of the DNS service in the IPv4 service subnet.
    pub ipv4: Option<Ipv4Addr>,
    /// Address of the DNS service in the IPv6 service subnet.
    pub ipv6: Option<Ipv6Addr>,
}

/// flannel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flannel {
    /// Image.
    pub image: String,
    /// Backend that carries packets between nodes, such as `vxlan`.
    pub backend: String,
    /// UDP port of the backend; `None` for flannel's default.
    pub port: Option<u16>,
    /// MTU of the nodes in bytes; `None` for automatic detection.
    pub mtu: Option<u32>,
    /// Further options of the backend.
    pub extra: BTreeMap<String, Value>,
    /// Further arguments.
    pub args: Vec<String>,
    /// Address and port of the Kubernetes API; `None` for the service `kubernetes`.
    pub api: Option<(IpAddr, u16)>,
    /// Resources of the container.
    pub resources: Resources,
    /// Image that enforces network policies; `None` without enforcement.
    pub policies_image: Option<String>,
}

//! What bootstrap manifests are rendered from.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use crate::Resources;

/// What bootstrap manifests are rendered from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// The URL at which pods of the host's network find the Kubernetes API.
    pub server: String,
    /// The domain of the cluster's DNS.
    pub domain: String,
    /// Networks of pods, such as `10.244.0.0/16`; at most one of each family.
    pub pod_subnets: Vec<String>,
    /// kube-proxy; `None`: the cluster runs none.
    pub proxy: Option<Proxy>,
    /// CoreDNS; `None`: the cluster runs none.
    pub dns: Option<Dns>,
    /// flannel; `None`: the cluster has another network plugin, or none.
    pub flannel: Option<Flannel>,
}

/// kube-proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proxy {
    /// Its image.
    pub image: String,
    /// Its arguments, each with its two dashes.
    pub args: Vec<String>,
    /// The fields of its `KubeProxyConfiguration`; `None`: it has arguments alone.
    pub config: Option<Value>,
    /// What its container asks for.
    pub resources: Resources,
}

/// CoreDNS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dns {
    /// Its image.
    pub image: String,
    /// Address of its service in the IPv4 network of services.
    pub ipv4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub ipv6: Option<Ipv6Addr>,
}

/// flannel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flannel {
    /// Its image.
    pub image: String,
    /// How packets go from node to node, such as `vxlan`.
    pub backend: String,
    /// UDP port of the backend; `None`: flannel's choice.
    pub port: Option<u16>,
    /// Bytes of the nodes' largest packet; `None`: as flannel finds.
    pub mtu: Option<u32>,
    /// Further options of the backend.
    pub extra: BTreeMap<String, Value>,
    /// Further arguments.
    pub args: Vec<String>,
    /// Where the Kubernetes API is; `None`: at the service `kubernetes`.
    pub api: Option<(IpAddr, u16)>,
    /// What its container asks for.
    pub resources: Resources,
    /// The image of what enforces network policies; `None`: nothing does.
    pub policies_image: Option<String>,
}

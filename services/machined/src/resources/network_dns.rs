//! The name cache of the node.

use std::net::{IpAddr, SocketAddr};

use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

const NAMESPACE: &str = "network";

/// What the cache shall be; id [`HostDnsConfig::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDnsConfig {
    /// Whether there shall be one.
    pub enabled: bool,
    /// Where it answers.
    pub listen_addresses: Vec<SocketAddr>,
    /// Where the cluster's DNS asks it.
    #[serde(
        rename = "serviceHostDNSAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_address: Option<IpAddr>,
    /// The same in a cluster that has IPv6.
    #[serde(
        rename = "serviceHostDNSAddressV6",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_address_v6: Option<IpAddr>,
    /// Whether it knows the cluster's nodes.
    pub resolve_member_names: bool,
}

impl HostDnsConfig {
    /// There is one.
    pub const ID: &str = "config";
}

impl Spec for HostDnsConfig {
    const DEFINITION: Definition = open(
        "HostDNSConfigs.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Enabled", ".enabled")],
    );
}

/// A name server the cache asks; its id is its address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DnsUpstream {
    /// Whether it answered when it was last asked.
    pub healthy: bool,
    /// Its address and port.
    pub addr: SocketAddr,
}

impl Spec for DnsUpstream {
    const DEFINITION: Definition = open(
        "DNSUpstreams.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Healthy", ".healthy"), column("Address", ".addr")],
    );
}

/// An address the cache answers at; its id is that address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DnsResolveCache {
    /// `running`.
    pub status: &'static str,
}

impl Spec for DnsResolveCache {
    const DEFINITION: Definition = open(
        "DNSResolveCaches.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Status", ".status")],
    );
}

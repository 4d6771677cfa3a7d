//! The name cache of the node.

use std::net::{IpAddr, SocketAddr};

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::{net_ip, net_ip_port};
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

    type Message = wire::HostDnsConfigSpec;

    fn message(&self) -> wire::HostDnsConfigSpec {
        let listen = self.listen_addresses.iter().copied();
        wire::HostDnsConfigSpec {
            enabled: self.enabled,
            listen_addresses: listen.map(net_ip_port).collect(),
            service_host_dns_address: self.service_address.map(net_ip),
            resolve_member_names: self.resolve_member_names,
            service_host_dns_address_v6: self.service_address_v6.map(net_ip),
        }
    }
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

    // No client has a message for it.
    type Message = ();

    fn message(&self) {}
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

    type Message = wire::DnsResolveCacheSpec;

    fn message(&self) -> wire::DnsResolveCacheSpec {
        wire::DnsResolveCacheSpec {
            status: self.status.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_cache_answers_is_bytes() {
        let config = HostDnsConfig {
            enabled: true,
            listen_addresses: vec!["127.0.0.53:53".parse().unwrap()],
            service_address: Some("169.254.116.108".parse().unwrap()),
            ..HostDnsConfig::default()
        };
        let message = config.message();
        assert!(message.enabled && !message.resolve_member_names);
        let listen = &message.listen_addresses[0];
        assert_eq!((&*listen.ip, listen.port), (&[127, 0, 0, 53][..], 53));
        let service = message.service_host_dns_address.unwrap();
        assert_eq!(service.ip, [169, 254, 116, 108]);
        assert_eq!(message.service_host_dns_address_v6, None);
        let cache = DnsResolveCache { status: "running" };
        assert_eq!(cache.message().status, "running");
    }
}

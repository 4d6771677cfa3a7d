//! The node's caching DNS resolver.

use std::net::{IpAddr, SocketAddr};

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::{net_ip, net_ip_port};
use super::{column, open};

const NAMESPACE: &str = "network";

/// Settings of the DNS cache; id [`HostDnsConfig::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDnsConfig {
    /// Whether the cache runs.
    pub enabled: bool,
    /// Addresses and ports at which it listens.
    pub listen_addresses: Vec<SocketAddr>,
    /// Address at which the cluster's DNS forwards queries to it.
    #[serde(
        rename = "serviceHostDNSAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_address: Option<IpAddr>,
    /// The same address for a cluster with IPv6.
    #[serde(
        rename = "serviceHostDNSAddressV6",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_address_v6: Option<IpAddr>,
    /// Whether it resolves the names of the cluster's nodes.
    pub resolve_member_names: bool,
}

impl HostDnsConfig {
    /// Id of the only resource of this type.
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

/// A name server upstream of the cache; its id is its address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DnsUpstream {
    /// Whether it answered the last query.
    pub healthy: bool,
    /// Address and port of the server.
    pub addr: SocketAddr,
}

impl Spec for DnsUpstream {
    const DEFINITION: Definition = open(
        "DNSUpstreams.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Healthy", ".healthy"), column("Address", ".addr")],
    );

    // Clients define no message for this type.
    type Message = ();

    fn message(&self) {}
}

/// A listen address of the cache; its id is that address and port.
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
    fn dns_cache_address_is_encoded_as_bytes() {
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

//! Names, resolvers, time servers and who asks for addresses: what they shall be and what they are.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::network::{StatusSpec, TimeServerStatusSpec};
use corten_resources::{Definition, Sensitivity, Spec};
use prost::Message as _;
use serde::Serialize;

use super::network_spec::Layer;
use super::{column, message, open};

const NAMESPACE: &str = "network";

/// The node's name; id `hostname`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostnameSpec {
    /// Up to the first dot.
    pub hostname: String,
    /// Behind it; often empty.
    pub domainname: String,
    /// Who said so.
    pub layer: Layer,
}

impl Spec for HostnameSpec {
    const DEFINITION: Definition = open("HostnameSpecs.net.talos.dev", NAMESPACE, &[], &[]);
}

/// Who answers names; id `resolvers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolverSpec {
    /// Name servers, the best first.
    pub dns_servers: Vec<IpAddr>,
    /// Who said so.
    pub layer: Layer,
    /// Tried behind short names.
    pub search_domains: Vec<String>,
    /// Whether the domain of the node's own name is not tried.
    #[serde(rename = "searchDomainsOverridden")]
    pub no_own_domain: bool,
}

impl Spec for ResolverSpec {
    const DEFINITION: Definition = open(
        "ResolverSpecs.net.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Layer", ".layer"),
            column("Resolvers", ".dnsServers"),
            column("Search Domains", ".searchDomains"),
        ],
    );
}

/// Who answers names, as `/etc/resolv.conf` has it; id `resolvers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolverStatus {
    /// Name servers, the best first.
    pub dns_servers: Vec<IpAddr>,
    /// Tried behind short names.
    pub search_domains: Vec<String>,
}

impl ResolverStatus {
    /// There is one.
    pub const ID: &str = "resolvers";
}

impl Spec for ResolverStatus {
    const DEFINITION: Definition = open(
        "ResolverStatuses.net.talos.dev",
        NAMESPACE,
        &["resolvers"],
        &[
            column("Resolvers", ".dnsServers"),
            column("Search Domains", ".searchDomains"),
        ],
    );

    fn to_proto(&self) -> Option<Vec<u8>> {
        Some(message::resolvers(self))
    }
}

/// Who tells the time; id `timeservers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeServerSpec {
    /// Names or addresses, the best first.
    pub time_servers: Vec<String>,
    /// Who said so.
    pub layer: Layer,
}

impl Spec for TimeServerSpec {
    const DEFINITION: Definition = open(
        "TimeServerSpecs.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Timeservers", ".timeServers")],
    );
}

/// Who is asked for the time; id `timeservers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeServerStatus {
    /// Names or addresses, the best first.
    pub time_servers: Vec<String>,
}

impl TimeServerStatus {
    /// There is one.
    pub const ID: &str = "timeservers";
}

impl Spec for TimeServerStatus {
    const DEFINITION: Definition = open(
        "TimeServerStatuses.net.talos.dev",
        NAMESPACE,
        &["timeserver", "timeservers"],
        &[column("Timeservers", ".timeServers")],
    );

    fn to_proto(&self) -> Option<Vec<u8>> {
        let ntp_servers = self.time_servers.clone();
        Some(TimeServerStatusSpec { ntp_servers }.encode_to_vec())
    }
}

/// How a node says who it is to a DHCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIdentifier {
    /// `none`, `mac`, `duid`.
    pub client_identifier: &'static str,
    /// The DUID in hexadecimal (RFC 8415, section 11).
    #[serde(rename = "duidRawHex", skip_serializing_if = "String::is_empty")]
    pub duid: String,
}

/// How a link asks for addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dhcp {
    /// Metric of the routes offered.
    pub route_metric: u32,
    /// Whether the name offered is not taken.
    #[serde(rename = "skipHostnameRequest")]
    pub skip_hostname: bool,
    /// Whether the routes offered are not taken.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_routes: bool,
    /// Who the node says it is.
    pub client_identifier: ClientIdentifier,
}

/// A link that asks a server for addresses; id `<operator>/<link>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorSpec {
    /// `dhcp4`, `dhcp6`.
    pub operator: &'static str,
    /// The link.
    pub link_name: String,
    /// Whether it waits for a carrier.
    pub require_up: bool,
    /// How it asks.
    pub dhcp: Dhcp,
    /// Who said so.
    pub layer: Layer,
}

impl Spec for OperatorSpec {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("OperatorSpecs.net.talos.dev", NAMESPACE, &[], &[])
    };
}

/// A line of `/etc/hosts`; its id is the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaticHost {
    /// The name's addresses.
    pub addresses: Vec<IpAddr>,
}

impl Spec for StaticHost {
    const DEFINITION: Definition = open(
        "StaticHosts.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Addresses", ".addresses")],
    );
}

/// Whether the network is what a node needs; id `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Somebody can reach the node.
    pub address_ready: bool,
    /// All probes succeed; without probes: there is a default route.
    pub connectivity_ready: bool,
    /// The node has its name.
    pub hostname_ready: bool,
    /// `/etc/hosts` and `/etc/resolv.conf` are written.
    pub etc_files_ready: bool,
}

impl NetworkStatus {
    /// There is one.
    pub const ID: &str = "status";
}

impl Spec for NetworkStatus {
    const DEFINITION: Definition = open(
        "NetworkStatuses.net.talos.dev",
        NAMESPACE,
        &["netstatus", "netstatuses"],
        &[
            column("Address", ".addressReady"),
            column("Connectivity", ".connectivityReady"),
            column("Hostname", ".hostnameReady"),
            column("Etc", ".etcFilesReady"),
        ],
    );

    fn to_proto(&self) -> Option<Vec<u8>> {
        let message = StatusSpec {
            address_ready: self.address_ready,
            connectivity_ready: self.connectivity_ready,
            hostname_ready: self.hostname_ready,
            etc_files_ready: self.etc_files_ready,
        };
        Some(message.encode_to_vec())
    }
}

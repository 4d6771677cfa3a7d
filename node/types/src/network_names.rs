//! Host names, resolvers, time servers and address operators: their specs and statuses.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};

use super::message::net_ip;
use super::names::{CLIENT_IDENTIFIERS, OPERATORS, number};
use super::network_spec::Layer;
use super::{column, open};

const NAMESPACE: &str = "network";

/// Host name of the node; id `hostname`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostnameSpec {
    /// Host name up to the first dot.
    pub hostname: String,
    /// Domain after the first dot; often empty.
    pub domainname: String,
    /// Layer that set it.
    pub layer: Layer,
}

impl HostnameSpec {
    /// Id of the host name that the node uses.
    pub const ID: &str = "hostname";
}

impl Spec for HostnameSpec {
    const DEFINITION: Definition = open("HostnameSpecs.net.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::HostnameSpecSpec;

    fn message(&self) -> wire::HostnameSpecSpec {
        wire::HostnameSpecSpec {
            hostname: self.hostname.clone(),
            domainname: self.domainname.clone(),
            config_layer: self.layer.number(),
        }
    }
}

/// Name servers to use; id `resolvers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolverSpec {
    /// Name servers in order of preference.
    pub dns_servers: Vec<IpAddr>,
    /// Layer that set it.
    pub layer: Layer,
    /// Domains appended to short names.
    pub search_domains: Vec<String>,
    /// Whether the search omits the domain of the node's own name.
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

    type Message = wire::ResolverSpecSpec;

    fn message(&self) -> wire::ResolverSpecSpec {
        wire::ResolverSpecSpec {
            dns_servers: self.dns_servers.iter().copied().map(net_ip).collect(),
            config_layer: self.layer.number(),
            search_domains: self.search_domains.clone(),
            search_domains_overridden: self.no_own_domain,
        }
    }
}

/// Name servers in `/etc/resolv.conf`; id `resolvers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolverStatus {
    /// Name servers in order of preference.
    pub dns_servers: Vec<IpAddr>,
    /// Domains appended to short names.
    pub search_domains: Vec<String>,
}

impl ResolverStatus {
    /// Id of the only resource of this type.
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

    type Message = wire::ResolverStatusSpec;

    fn message(&self) -> wire::ResolverStatusSpec {
        wire::ResolverStatusSpec {
            dns_servers: self.dns_servers.iter().copied().map(net_ip).collect(),
            search_domains: self.search_domains.clone(),
        }
    }
}

/// Time servers to use; id `timeservers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeServerSpec {
    /// Names or addresses in order of preference.
    pub time_servers: Vec<String>,
    /// Layer that set it.
    pub layer: Layer,
}

impl Spec for TimeServerSpec {
    const DEFINITION: Definition = open(
        "TimeServerSpecs.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Timeservers", ".timeServers")],
    );

    type Message = wire::TimeServerSpecSpec;

    fn message(&self) -> wire::TimeServerSpecSpec {
        wire::TimeServerSpecSpec {
            ntp_servers: self.time_servers.clone(),
            config_layer: self.layer.number(),
        }
    }
}

/// Time servers in use; id `timeservers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeServerStatus {
    /// Names or addresses in order of preference.
    pub time_servers: Vec<String>,
}

impl TimeServerStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "timeservers";
}

impl Spec for TimeServerStatus {
    const DEFINITION: Definition = open(
        "TimeServerStatuses.net.talos.dev",
        NAMESPACE,
        &["timeserver", "timeservers"],
        &[column("Timeservers", ".timeServers")],
    );

    type Message = wire::TimeServerStatusSpec;

    fn message(&self) -> wire::TimeServerStatusSpec {
        let ntp_servers = self.time_servers.clone();
        wire::TimeServerStatusSpec { ntp_servers }
    }
}

/// Client identifier a node sends to a DHCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIdentifier {
    /// Kind of identifier: `none`, `mac`, `duid`.
    pub client_identifier: &'static str,
    /// DUID in hexadecimal (RFC 8415, section 11).
    #[serde(rename = "duidRawHex", skip_serializing_if = "String::is_empty")]
    pub duid: String,
}

/// DHCP options of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dhcp {
    /// Metric of the routes from the lease.
    pub route_metric: u32,
    /// Whether the node ignores the offered host name.
    #[serde(rename = "skipHostnameRequest")]
    pub skip_hostname: bool,
    /// Whether the node ignores the offered routes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_routes: bool,
    /// Client identifier to send.
    pub client_identifier: ClientIdentifier,
}

impl ClientIdentifier {
    fn message(&self) -> wire::ClientIdentifierSpec {
        wire::ClientIdentifierSpec {
            client_identifier: number(self.client_identifier, CLIENT_IDENTIFIERS)
                .unwrap_or_default(),
            duid_raw_hex: self.duid.clone(),
        }
    }
}

/// A link that obtains addresses from a server, or shares one with other nodes; id `<operator>/<link>`, followed by
/// `/<address>` for a shared address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorSpec {
    /// Protocol: `dhcp4`, `dhcp6`, `vip`.
    pub operator: &'static str,
    /// Name of the link.
    pub link_name: String,
    /// Whether the operator waits for a carrier.
    pub require_up: bool,
    /// DHCP options.
    pub dhcp: Dhcp,
    /// Shared address of a `vip`.
    pub shared: Option<IpAddr>,
    /// Layer that set it.
    pub layer: Layer,
}

/// A shared address, as clients see it.
#[derive(Serialize)]
struct Vip {
    ip: IpAddr,
    #[serde(rename = "gratuitousARP")]
    gratuitous_arp: bool,
}

impl OperatorSpec {
    fn vip(&self) -> Option<Vip> {
        let ip = self.shared?;
        Some(Vip {
            ip,
            gratuitous_arp: true,
        })
    }
}

/// Serializes the options under the operator's name.
impl Serialize for OperatorSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("OperatorSpec", 5)?;
        fields.serialize_field("operator", self.operator)?;
        fields.serialize_field("linkName", &self.link_name)?;
        fields.serialize_field("requireUp", &self.require_up)?;
        match self.vip() {
            Some(vip) => fields.serialize_field("vip", &vip)?,
            None => fields.serialize_field(self.operator, &self.dhcp)?,
        }
        fields.serialize_field("layer", &self.layer)?;
        fields.end()
    }
}

impl Spec for OperatorSpec {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("OperatorSpecs.net.talos.dev", NAMESPACE, &[], &[])
    };

    type Message = wire::OperatorSpecSpec;

    fn message(&self) -> wire::OperatorSpecSpec {
        let identifier = Some(self.dhcp.client_identifier.message());
        let v4 = || wire::Dhcp4OperatorSpec {
            route_metric: self.dhcp.route_metric,
            skip_hostname_request: self.dhcp.skip_hostname,
            client_identifier: identifier.clone(),
            skip_routes: self.dhcp.skip_routes,
        };
        let v6 = || wire::Dhcp6OperatorSpec {
            route_metric: self.dhcp.route_metric,
            skip_hostname_request: self.dhcp.skip_hostname,
            client_identifier: identifier.clone(),
        };
        wire::OperatorSpecSpec {
            operator: number(self.operator, OPERATORS).unwrap_or_default(),
            link_name: self.link_name.clone(),
            require_up: self.require_up,
            dhcp4: (self.operator == "dhcp4").then(v4),
            dhcp6: (self.operator == "dhcp6").then(v6),
            vip: self.vip().map(|vip| wire::VipOperatorSpec {
                ip: Some(net_ip(vip.ip)),
                gratuitous_arp: vip.gratuitous_arp,
            }),
            config_layer: self.layer.number(),
        }
    }
}

/// An entry of `/etc/hosts`; its id is the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaticHost {
    /// Addresses of the name.
    pub addresses: Vec<IpAddr>,
}

impl Spec for StaticHost {
    const DEFINITION: Definition = open(
        "StaticHosts.net.talos.dev",
        NAMESPACE,
        &[],
        &[column("Addresses", ".addresses")],
    );

    type Message = wire::StaticHostSpec;

    fn message(&self) -> wire::StaticHostSpec {
        wire::StaticHostSpec {
            addresses: self.addresses.iter().copied().map(net_ip).collect(),
        }
    }
}

/// Readiness of the network; id `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Whether the node has an address that others can reach.
    pub address_ready: bool,
    /// Whether all probes succeed; without probes, whether there is a default route.
    pub connectivity_ready: bool,
    /// Whether the node has its host name.
    pub hostname_ready: bool,
    /// Whether `/etc/hosts` and `/etc/resolv.conf` are written.
    pub etc_files_ready: bool,
}

impl NetworkStatus {
    /// Id of the only resource of this type.
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

    type Message = wire::StatusSpec;

    fn message(&self) -> wire::StatusSpec {
        wire::StatusSpec {
            address_ready: self.address_ready,
            connectivity_ready: self.connectivity_ready,
            hostname_ready: self.hostname_ready,
            etc_files_ready: self.etc_files_ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;

    fn operator(operator: &'static str) -> OperatorSpec {
        OperatorSpec {
            operator,
            link_name: "eth0".to_owned(),
            require_up: true,
            dhcp: Dhcp {
                route_metric: 1024,
                skip_hostname: false,
                skip_routes: false,
                client_identifier: ClientIdentifier {
                    client_identifier: "mac",
                    duid: String::new(),
                },
            },
            shared: None,
            layer: Layer::Default,
        }
    }

    #[test]
    fn shared_address_is_shown_instead_of_dhcp_settings() {
        let vip = OperatorSpec {
            shared: Some([10, 0, 0, 9].into()),
            ..operator("vip")
        };
        assert_eq!(
            vip.to_yaml().unwrap(),
            "operator: vip\nlinkName: eth0\nrequireUp: true\nvip:\n  ip: \"10.0.0.9\"\n  gratuitousARP: true\n\
             layer: default\n"
        );
        let message = vip.message();
        assert_eq!(
            (message.operator, message.dhcp4, message.dhcp6),
            (2, None, None)
        );
        assert_eq!(message.vip.unwrap().ip.unwrap().ip, [10, 0, 0, 9]);
    }

    #[test]
    fn dhcp_settings_are_shown_under_their_operator() {
        let (v4, v6) = (operator("dhcp4"), operator("dhcp6"));
        assert_eq!(
            v4.to_yaml().unwrap(),
            "operator: dhcp4\nlinkName: eth0\nrequireUp: true\ndhcp4:\n  routeMetric: 1024\n  \
             skipHostnameRequest: false\n  clientIdentifier:\n    clientIdentifier: mac\n\
             layer: default\n"
        );
        assert!(v6.to_yaml().unwrap().contains("\ndhcp6:\n"));
        let message = v4.message();
        assert_eq!((message.operator, message.dhcp6), (0, None));
        let asking = message.dhcp4.unwrap();
        assert_eq!(asking.route_metric, 1024);
        assert_eq!(asking.client_identifier.unwrap().client_identifier, 1);
        let message = v6.message();
        assert_eq!((message.operator, message.dhcp4), (1, None));
        assert_eq!(message.dhcp6.unwrap().route_metric, 1024);
    }

    #[test]
    fn config_layer_is_encoded_as_a_number() {
        let hostname = HostnameSpec {
            hostname: "node".to_owned(),
            domainname: "example.org".to_owned(),
            layer: Layer::Cmdline,
        };
        let message = hostname.message();
        assert_eq!(
            (&*message.domainname, message.config_layer),
            ("example.org", 1)
        );
        let resolvers = ResolverSpec {
            dns_servers: vec!["192.0.2.53".parse().unwrap()],
            layer: Layer::Operator,
            search_domains: vec!["example.org".to_owned()],
            no_own_domain: true,
        };
        let message = resolvers.message();
        assert_eq!(message.dns_servers[0].ip, [192, 0, 2, 53]);
        assert_eq!((message.config_layer, message.search_domains.len()), (3, 1));
        assert!(message.search_domains_overridden);
        let servers = TimeServerSpec {
            time_servers: vec!["ntp.example.org".to_owned()],
            layer: Layer::Configuration,
        };
        let message = servers.message();
        assert_eq!((message.ntp_servers.len(), message.config_layer), (1, 4));
        let host = StaticHost {
            addresses: vec!["fd00::1".parse().unwrap()],
        };
        assert_eq!(host.message().addresses[0].ip.len(), 16);
    }
}

//! Desired state of the network. Namespace `network-config` has the specs of each layer, with the layer's name in front
//! of the id. Namespace `network` has the merged specs.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::{Serialize, Serializer};

use super::message::{net_ip, net_prefix};
use super::names::{FAMILIES, LINK_TYPES, ROUTE_PROTOCOLS, ROUTE_TYPES, SCOPES, number};
use super::network_kind::{colons, table};
use super::network_wireguard::Wireguard;
use super::open;
use super::prefix::Prefix;

pub use super::network_kind::{Bond, Bridge, Enabled, Filtering, Veth, Vlan, Vrf};

const NAMESPACE: &str = "network";

/// Namespace of the layers' specs.
pub const LAYERS: &str = "network-config";

/// Source of a spec; later layers override earlier ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Built-in default of the node.
    #[default]
    Default,
    /// Kernel command line.
    Cmdline,
    /// Platform: a cloud's seed, or the network settings in META.
    Platform,
    /// A server of the network, by DHCP.
    Operator,
    /// Machine config.
    Configuration,
}

impl Layer {
    /// Number on the wire; clients know this order.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Prefix of the layer's ids.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layer::Default => "default",
            Layer::Cmdline => "cmdline",
            Layer::Platform => "platform",
            Layer::Operator => "operator",
            Layer::Configuration => "configuration",
        }
    }
}

/// Address family: `inet4`, `inet6`.
#[must_use]
pub fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

/// Serializes an absent address as empty text.
fn or_empty<S: Serializer>(value: &Option<IpAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(""),
    }
}

/// Serializes an unset link state as up.
fn unless_off<S: Serializer>(value: &Option<bool>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*value != Some(false))
}

const fn secret(type_name: &'static str) -> Definition {
    Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(type_name, NAMESPACE, &[], &[])
    }
}

/// The link of which another link is a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Master {
    /// Name of the link.
    pub master_name: String,
}

/// A desired link; its id is its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSpec {
    /// Name of the link.
    pub name: String,
    /// Whether the node creates the link; otherwise it belongs to a device.
    pub logical: bool,
    /// Administrative state; `None` means unset, so the link is up.
    #[serde(serialize_with = "unless_off")]
    pub up: Option<bool>,
    /// MTU in bytes; 0 leaves it unchanged.
    pub mtu: u32,
    /// Kind of a link that the node creates: `bond`, `bridge`, `dummy`, `veth`, `vlan`, `vrf`, `wireguard`.
    pub kind: &'static str,
    /// Hardware type: `ether`; `none` for a tunnel.
    #[serde(rename = "type")]
    pub link_type: &'static str,
    /// Hardware address; absent leaves it unchanged.
    #[serde(serialize_with = "colons", skip_serializing_if = "Option::is_none")]
    pub hardware_addr: Option<[u8; 6]>,
    /// Lower link of a VLAN.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent_name: String,
    /// Bond of which the link is a member.
    #[serde(rename = "masterName", skip_serializing_if = "String::is_empty")]
    pub bond_name: String,
    /// Bridge of which the link is a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_slave: Option<Master>,
    /// VRF of which the link is a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_slave: Option<Master>,
    /// Settings of a VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// Settings of a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_master: Option<Bond>,
    /// Settings of a bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_master: Option<Bridge>,
    /// Settings of a VRF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_master: Option<Vrf>,
    /// Settings of a WireGuard tunnel. Its keys are the reason why only administrators may read links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wireguard: Option<Wireguard>,
    /// Settings of one end of a veth pair; its creation creates the other end as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub veth: Option<Veth>,
    /// Layer that set it last.
    pub layer: Layer,
    /// Whether the link accepts multicast packets; absent leaves it unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<bool>,
}

impl LinkSpec {
    /// The bond, bridge or VRF of which the link is a member.
    #[must_use]
    pub fn master(&self) -> Option<&str> {
        let of_bond = Some(self.bond_name.as_str()).filter(|name| !name.is_empty());
        let other = self.bridge_slave.as_ref().or(self.vrf_slave.as_ref());
        of_bond.or(other.map(|master| master.master_name.as_str()))
    }
}

impl Spec for LinkSpec {
    const DEFINITION: Definition = secret("LinkSpecs.net.talos.dev");

    type Message = wire::LinkSpecSpec;

    fn message(&self) -> wire::LinkSpecSpec {
        let bond_slave = || wire::BondSlave {
            master_name: self.bond_name.clone(),
        };
        wire::LinkSpecSpec {
            name: self.name.clone(),
            logical: self.logical,
            up: self.up != Some(false),
            mtu: self.mtu,
            kind: self.kind.to_owned(),
            r#type: number(self.link_type, LINK_TYPES).unwrap_or_default(),
            parent_name: self.parent_name.clone(),
            bond_slave: (!self.bond_name.is_empty()).then(bond_slave),
            bridge_slave: self.bridge_slave.clone().map(|of| wire::BridgeSlave {
                master_name: of.master_name,
            }),
            vlan: self.vlan.map(Vlan::message),
            bond_master: self.bond_master.as_ref().map(Bond::message),
            bridge_master: self.bridge_master.map(Bridge::message),
            wireguard: self.wireguard.as_ref().map(Wireguard::message),
            config_layer: self.layer.number(),
            hardware_address: self.hardware_addr.map(Vec::from).unwrap_or_default(),
            multicast: self.multicast,
            vrf_master: self.vrf_master.map(Vrf::message),
            vrf_slave: self.vrf_slave.clone().map(|of| wire::VrfSlave {
                master_name: of.master_name,
            }),
            veth: self.veth.as_ref().map(Veth::message),
        }
    }
}

/// A desired address of a link; its id is `<link>/<address>/<prefix length>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressSpec {
    /// The address with the length of its prefix.
    pub address: Prefix,
    /// Name of the link.
    pub link_name: String,
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// Scope: `global`, or `host` for an address that is local to the machine and unreachable from outside.
    pub scope: &'static str,
    /// Whether the node announces it by gratuitous ARP, because another node may have had it before.
    #[serde(rename = "announceWithARP", skip_serializing_if = "std::ops::Not::not")]
    pub announce_with_arp: bool,
    /// Metric of the route to its network; 0 for the kernel's default.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Layer that set it.
    pub layer: Layer,
}

impl Spec for AddressSpec {
    const DEFINITION: Definition = open("AddressSpecs.net.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::AddressSpecSpec;

    fn message(&self) -> wire::AddressSpecSpec {
        wire::AddressSpecSpec {
            address: Some(net_prefix(self.address)),
            link_name: self.link_name.clone(),
            family: number(self.family, FAMILIES).unwrap_or_default(),
            scope: number(self.scope, SCOPES).unwrap_or_default(),
            announce_with_arp: self.announce_with_arp,
            config_layer: self.layer.number(),
            priority: self.priority,
        }
    }
}

/// A desired route. Its id is `[<table>/][<link>/]<family>/<gateway>/<destination>/<metric>`, with the link for IPv6
/// only and without the main table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// Destination.
    #[serde(serialize_with = "unless_everywhere")]
    pub dst: Prefix,
    /// Preferred source address.
    #[serde(serialize_with = "or_empty")]
    pub src: Option<IpAddr>,
    /// Gateway; absent if the destination is on the link.
    #[serde(serialize_with = "or_empty")]
    pub gateway: Option<IpAddr>,
    /// Outgoing link; empty for a blackhole route.
    pub out_link_name: String,
    /// Routing table.
    #[serde(serialize_with = "table")]
    pub table: u32,
    /// Metric; the lowest wins.
    pub priority: u32,
    /// Scope: `global`, `link`.
    pub scope: &'static str,
    /// `unicast`, `blackhole`.
    #[serde(rename = "type")]
    pub route_type: &'static str,
    /// Origin of the route: `static`, `boot`, `dhcp`.
    pub protocol: &'static str,
    /// Layer that set it.
    pub layer: Layer,
    /// MTU in bytes; 0 for the link's.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: u32,
}

impl Spec for RouteSpec {
    const DEFINITION: Definition = open("RouteSpecs.net.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::RouteSpecSpec;

    fn message(&self) -> wire::RouteSpecSpec {
        wire::RouteSpecSpec {
            family: number(self.family, FAMILIES).unwrap_or_default(),
            // A default route has no destination, as in the YAML.
            destination: (self.dst.length != 0).then(|| net_prefix(self.dst)),
            source: self.src.map(net_ip),
            gateway: self.gateway.map(net_ip),
            out_link_name: self.out_link_name.clone(),
            table: self.table,
            priority: self.priority,
            scope: number(self.scope, SCOPES).unwrap_or_default(),
            r#type: number(self.route_type, ROUTE_TYPES).unwrap_or_default(),
            protocol: number(self.protocol, ROUTE_PROTOCOLS).unwrap_or_default(),
            config_layer: self.layer.number(),
            mtu: self.mtu,
        }
    }
}

/// The main routing table.
pub const MAIN_TABLE: u32 = 254;

fn unless_everywhere<S: Serializer>(value: &Prefix, serializer: S) -> Result<S::Ok, S::Error> {
    if value.length == 0 {
        serializer.serialize_str("")
    } else {
        serializer.collect_str(value)
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;
    use crate::network_wireguard::WireguardPeer;
    use corten_values::{WireguardKey, WireguardSecret};

    #[test]
    fn link_spec_omits_unset_kinds() {
        let link = LinkSpec {
            name: "eth0".to_owned(),
            link_type: "ether",
            bond_name: "bond0".to_owned(),
            ..LinkSpec::default()
        };
        assert_eq!(
            link.to_yaml().unwrap(),
            "name: eth0\nlogical: false\nup: true\nmtu: 0\nkind: \"\"\ntype: ether\n\
             masterName: bond0\nlayer: default\n"
        );
        assert_eq!(link.master(), Some("bond0"));
        let message = link.message();
        assert_eq!(
            (&*message.name, message.r#type, message.up),
            ("eth0", 1, true)
        );
        assert_eq!(message.bond_slave.unwrap().master_name, "bond0");
        assert_eq!((message.bridge_slave, message.multicast), (None, None));
        assert!(message.hardware_address.is_empty());
    }

    #[test]
    fn addresses_and_routes_are_encoded_as_numbers_and_bytes() {
        let address = AddressSpec {
            address: Prefix::host("10.0.0.1".parse().unwrap()),
            link_name: "lo".to_owned(),
            family: "inet4",
            scope: "host",
            announce_with_arp: false,
            priority: 0,
            layer: Layer::Configuration,
        };
        let message = address.message();
        let sent = message.address.unwrap();
        assert_eq!((&*sent.ip, sent.prefix_length), (&[10, 0, 0, 1][..], 32));
        assert_eq!(
            (message.family, message.scope, message.config_layer),
            (2, 254, 4)
        );
        let gateway: IpAddr = "fd00::1".parse().unwrap();
        let route = RouteSpec {
            family: "inet6",
            dst: Prefix::everywhere(gateway),
            src: None,
            gateway: Some(gateway),
            out_link_name: "eth0".to_owned(),
            table: 100,
            priority: 1024,
            scope: "global",
            route_type: "unicast",
            protocol: "dhcp",
            layer: Layer::Operator,
            mtu: 0,
        };
        let message = route.message();
        assert_eq!((message.destination, message.source), (None, None));
        assert_eq!(message.gateway.unwrap().ip.len(), 16);
        assert_eq!(
            (message.table, message.r#type, message.protocol),
            (100, 1, 16)
        );
        assert_eq!(message.config_layer, 3);
    }

    #[test]
    fn wireguard_keys_are_in_the_spec_and_in_no_debug_output() {
        let tunnel = Wireguard {
            private_key: WireguardSecret::new([1; 32]),
            listen_port: 51820,
            firewall_mark: 0,
            peers: vec![WireguardPeer {
                public_key: WireguardKey([2; 32]),
                preshared_key: Some(WireguardSecret::new([3; 32])),
                endpoint: Some("[fd00::9]:51820".parse().unwrap()),
                keepalive: 25,
                allowed_ips: vec![Prefix::host("10.8.0.1".parse().unwrap())],
            }],
        };
        let link = LinkSpec {
            wireguard: Some(tunnel),
            ..LinkSpec::default()
        };
        let yaml = link.to_yaml().unwrap();
        let expected = "wireguard:\n  privateKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n  \
             listenPort: 51820\n  firewallMark: 0\n  peers:\n  \
             - publicKey: AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n    \
             presharedKey: AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=\n    \
             endpoint: \"[fd00::9]:51820\"\n    persistentKeepaliveInterval: 25s\n    \
             allowedIPs:\n    - 10.8.0.1/32\n";
        assert!(yaml.contains(expected), "{yaml}");
        let debug = format!("{link:?}");
        assert!(
            !debug.contains("1, 1") && !debug.contains("3, 3"),
            "{debug}"
        );
        assert_eq!(debug.matches("<secret>").count(), 2, "{debug}");
        let message = link.message().wireguard.unwrap();
        assert!(message.private_key.starts_with("AQEB") && message.public_key.is_empty());
        assert!(message.peers[0].preshared_key.starts_with("AwMD"));
        assert_eq!(message.peers[0].endpoint, "[fd00::9]:51820");
        assert_eq!(LinkSpec::DEFINITION.sensitivity, Sensitivity::Sensitive);
    }

    #[test]
    fn network_of_a_prefix_has_no_host_bits() {
        let of = |text: &str, length| Prefix {
            address: text.parse().unwrap(),
            length,
        };
        assert_eq!(of("10.1.2.3", 16).network(), of("10.1.0.0", 16));
        assert_eq!(of("10.1.2.3", 0).network(), of("0.0.0.0", 0));
        assert_eq!(of("10.1.2.3", 32).network(), of("10.1.2.3", 32));
        assert_eq!(of("fd00::1", 64).network(), of("fd00::", 64));
        assert_eq!(of("fd00::1", 0).network(), of("::", 0));
        assert_eq!(of("fd00::1", 128).network().to_string(), "fd00::1/128");
    }
}

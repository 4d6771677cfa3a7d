//! Status resources of the network: its current state.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::{hardware, ip, prefix};
use super::names::{
    ADDRESS_FLAGS, DUPLEXES, FAMILIES, LINK_FLAGS, LINK_TYPES, OPERATIONAL_STATES, PORTS,
    ROUTE_PROTOCOLS, ROUTE_TYPES, ROUTING_TABLES, SCOPES, SORT_ALGORITHMS, bits, number,
};
use super::network_kind::{Bond, Bridge, Veth, Vlan, Vrf};
use super::network_wireguard::WireguardStatus;
use super::{column, is_default, open};

pub(super) const NAMESPACE: &str = "network";

/// Current host name of the node; id [`HostnameStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostnameStatus {
    /// Host name up to the first dot.
    pub hostname: String,
    /// Domain after the first dot; often empty.
    pub domainname: String,
}

impl HostnameStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "hostname";

    /// The host name with its domain.
    #[must_use]
    pub fn full(&self) -> String {
        if self.domainname.is_empty() {
            self.hostname.clone()
        } else {
            format!("{}.{}", self.hostname, self.domainname)
        }
    }
}

impl Spec for HostnameStatus {
    const DEFINITION: Definition = open(
        "HostnameStatuses.net.talos.dev",
        NAMESPACE,
        &["hostname"],
        &[
            column("Hostname", ".hostname"),
            column("Domainname", ".domainname"),
        ],
    );

    type Message = wire::HostnameStatusSpec;

    fn message(&self) -> wire::HostnameStatusSpec {
        wire::HostnameStatusSpec {
            hostname: self.hostname.clone(),
            domainname: self.domainname.clone(),
        }
    }
}

/// A link in the kernel; its id is its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkStatus {
    /// Alias from a `LinkAliasConfig`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// Alternative names.
    pub alt_names: Vec<String>,
    /// The kernel's index of the link.
    pub index: u32,
    /// Hardware type: `ether`, `loopback`.
    #[serde(rename = "type")]
    pub link_type: String,
    /// Index of the lower link, or 0.
    pub link_index: u32,
    /// The kernel's flag names without `IFF_`, joined by commas.
    pub flags: String,
    /// Hardware address, hexadecimal with colons.
    pub hardware_addr: String,
    /// Factory hardware address, if the address can be changed.
    pub permanent_addr: String,
    /// Hardware broadcast address.
    pub broadcast_addr: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Name of the queueing discipline.
    pub queue_disc: String,
    /// Index of the bond or bridge of which the link is a member.
    #[serde(skip_serializing_if = "is_default")]
    pub master_index: u32,
    /// Operational state (RFC 2863): `up`, `down`, `unknown`.
    pub operational_state: &'static str,
    /// Kind of a virtual link: `vlan`, `bridge`; otherwise empty.
    pub kind: String,
    /// Kind of membership in a bond or bridge.
    pub slave_kind: String,
    /// Bus address of the device.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bus_path: String,
    /// Vendor and product of the device on its bus, in hexadecimal with a colon.
    #[serde(rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
    /// Driver of the device.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Vendor and product of the device, each in the form `0x1af4`.
    #[serde(rename = "vendorID", skip_serializing_if = "String::is_empty")]
    pub vendor_id: String,
    #[serde(rename = "productID", skip_serializing_if = "String::is_empty")]
    pub product_id: String,
    /// Whether there is a carrier.
    pub link_state: bool,
    /// Speed in Mbit/s from the driver; also absent without a carrier.
    #[serde(rename = "speedMbit", skip_serializing_if = "is_default")]
    pub speed: Option<u32>,
    /// Connector type: `TwistedPair`; `Other` if no driver reports one.
    pub port: String,
    /// Duplex mode: `Full`, `Half`, `Unknown`.
    pub duplex: String,
    /// Settings of a VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// Settings of a bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_master: Option<Bridge>,
    /// Settings of a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_master: Option<Bond>,
    /// Settings of a VRF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_master: Option<Vrf>,
    /// The peer of a veth link, if the peer is on this node as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub veth: Option<Veth>,
    /// State of a WireGuard tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wireguard: Option<WireguardStatus>,
}

impl LinkStatus {
    /// A network card that is up, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn with_device() -> LinkStatus {
        LinkStatus {
            alias: String::new(),
            alt_names: Vec::new(),
            index: 2,
            link_type: "ether".to_owned(),
            link_index: 0,
            flags: String::new(),
            hardware_addr: "52:54:00:00:00:01".to_owned(),
            permanent_addr: String::new(),
            broadcast_addr: String::new(),
            mtu: 1500,
            queue_disc: String::new(),
            master_index: 0,
            operational_state: "up",
            kind: String::new(),
            slave_kind: String::new(),
            bus_path: "virtio0".to_owned(),
            pci_id: String::new(),
            driver: "virtio_net".to_owned(),
            vendor_id: String::new(),
            product_id: String::new(),
            link_state: true,
            speed: None,
            port: "Other".to_owned(),
            duplex: "Unknown".to_owned(),
            vlan: None,
            bridge_master: None,
            bond_master: None,
            vrf_master: None,
            veth: None,
            wireguard: None,
        }
    }

    /// Whether the link is a hardware device rather than a bridge or a container's veth.
    #[must_use]
    pub fn is_physical(&self) -> bool {
        self.link_type == "ether" && self.kind.is_empty() && !self.bus_path.is_empty()
    }

    /// The hardware address as bytes.
    #[must_use]
    pub fn mac(&self) -> Vec<u8> {
        bytes(&self.hardware_addr)
    }
}

/// Parses a hardware address into bytes.
pub fn bytes(address: &str) -> Vec<u8> {
    let byte = |text| u8::from_str_radix(text, 16).ok();
    address.split(':').filter_map(byte).collect()
}

fn without_prefix(address: &str) -> Option<IpAddr> {
    address.split('/').next()?.parse().ok()
}

impl Spec for LinkStatus {
    const DEFINITION: Definition = open(
        "LinkStatuses.net.talos.dev",
        NAMESPACE,
        &["link", "links"],
        &[
            column("Alias", ".alias"),
            column("Type", ".type"),
            column("Kind", ".kind"),
            column("Hw Addr", ".hardwareAddr"),
            column("Oper State", ".operationalState"),
            column("Link State", ".linkState"),
        ],
    );

    type Message = wire::LinkStatusSpec;

    fn message(&self) -> wire::LinkStatusSpec {
        wire::LinkStatusSpec {
            index: self.index,
            r#type: number(&self.link_type, LINK_TYPES).unwrap_or(0xffff),
            link_index: self.link_index,
            flags: bits(&self.flags, LINK_FLAGS),
            hardware_addr: hardware(&self.hardware_addr),
            broadcast_addr: hardware(&self.broadcast_addr),
            mtu: self.mtu,
            queue_disc: self.queue_disc.clone(),
            master_index: self.master_index,
            operational_state: number(self.operational_state, OPERATIONAL_STATES)
                .unwrap_or_default(),
            kind: self.kind.clone(),
            slave_kind: self.slave_kind.clone(),
            bus_path: self.bus_path.clone(),
            pciid: self.pci_id.clone(),
            driver: self.driver.clone(),
            link_state: self.link_state,
            permanent_addr: hardware(&self.permanent_addr),
            alt_names: self.alt_names.clone(),
            alias: self.alias.clone(),
            wireguard: self.wireguard.as_ref().map(WireguardStatus::message),
            product_id: self.product_id.clone(),
            vendor_id: self.vendor_id.clone(),
            speed_megabits: self.speed.unwrap_or_default().into(),
            port: number(&self.port, PORTS).unwrap_or_default(),
            duplex: number(&self.duplex, DUPLEXES).unwrap_or_default(),
            vlan: self.vlan.map(Vlan::message),
            bridge_master: self.bridge_master.map(Bridge::message),
            bond_master: self.bond_master.as_ref().map(Bond::message),
            vrf_master: self.vrf_master.map(Vrf::message),
            veth: self.veth.as_ref().map(Veth::message),
        }
    }
}

/// An address of a link; its id is `<link>/<address>/<prefix length>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// Address with the length of its prefix.
    pub address: String,
    /// Local address, if `address` is the peer's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub local: String,
    /// Broadcast address of the network.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub broadcast: String,
    /// Index of the link.
    pub link_index: u32,
    /// Name of the link.
    pub link_name: String,
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// Scope: `global`, `link`, `host`.
    pub scope: &'static str,
    /// Flags joined by commas: `permanent`, `tentative`.
    pub flags: String,
}

impl AddressStatus {
    /// The address without its prefix length.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        without_prefix(&self.address)
    }
}

impl Spec for AddressStatus {
    const DEFINITION: Definition = open(
        "AddressStatuses.net.talos.dev",
        NAMESPACE,
        &["address", "addresses"],
        &[column("Address", ".address"), column("Link", ".linkName")],
    );

    type Message = wire::AddressStatusSpec;

    fn message(&self) -> wire::AddressStatusSpec {
        wire::AddressStatusSpec {
            address: prefix(&self.address),
            local: ip(&self.local),
            broadcast: ip(&self.broadcast),
            link_index: self.link_index,
            link_name: self.link_name.clone(),
            family: number(self.family, FAMILIES).unwrap_or_default(),
            scope: number(self.scope, SCOPES).unwrap_or_default(),
            flags: bits(&self.flags, ADDRESS_FLAGS),
        }
    }
}

/// A route in the kernel; its id has the form of [`super::network_spec::RouteSpec`]'s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// Destination; empty for a default route.
    pub dst: String,
    /// Preferred source address.
    pub src: String,
    /// Gateway; empty if the destination is on the link.
    pub gateway: String,
    /// Index of the outgoing link.
    pub out_link_index: u32,
    /// Name of the outgoing link.
    pub out_link_name: String,
    /// Name or number of the routing table.
    pub table: String,
    /// Metric; the lowest wins.
    pub priority: u32,
    /// Scope: `global`, `link`, `host`.
    pub scope: &'static str,
    /// `unicast`, `blackhole`.
    #[serde(rename = "type")]
    pub route_type: &'static str,
    /// Origin of the route: `kernel`, `static`, `dhcp`.
    pub protocol: String,
}

impl Spec for RouteStatus {
    const DEFINITION: Definition = open(
        "RouteStatuses.net.talos.dev",
        NAMESPACE,
        &["route", "routes"],
        &[
            column("Destination", ".dst"),
            column("Gateway", ".gateway"),
            column("Link", ".outLinkName"),
            column("Metric", ".priority"),
        ],
    );

    type Message = wire::RouteStatusSpec;

    fn message(&self) -> wire::RouteStatusSpec {
        wire::RouteStatusSpec {
            family: number(self.family, FAMILIES).unwrap_or_default(),
            destination: prefix(&self.dst),
            source: ip(&self.src),
            gateway: ip(&self.gateway),
            out_link_index: self.out_link_index,
            out_link_name: self.out_link_name.clone(),
            table: number(&self.table, ROUTING_TABLES).unwrap_or_default(),
            priority: self.priority,
            scope: number(self.scope, SCOPES).unwrap_or_default(),
            r#type: number(self.route_type, ROUTE_TYPES).unwrap_or_default(),
            protocol: number(&self.protocol, ROUTE_PROTOCOLS).unwrap_or_default(),
        }
    }
}

/// A selection of the node's addresses: ids [`NodeAddress::DEFAULT`], [`NodeAddress::CURRENT`],
/// [`NodeAddress::ROUTED`], [`NodeAddress::ACCUMULATIVE`], and for each filter those of
/// [`super::network_filter::NodeAddressFilter::filtered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddress {
    /// Addresses with the lengths of their prefixes, in the order of the algorithm.
    pub addresses: Vec<String>,
    /// Algorithm that sorted them: `v1`, `v2`.
    pub sort_algorithm: &'static str,
}

impl NodeAddress {
    /// Id of the default address. It stays the same as long as the node has it.
    pub const DEFAULT: &str = "default";
    /// Id of all addresses by which others can reach the node.
    pub const CURRENT: &str = "current";
    /// Id of the current addresses that are the node's own: without those that its platform translates, or that it
    /// shares with other nodes.
    pub const ROUTED: &str = "routed";
    /// Id of all addresses since boot.
    pub const ACCUMULATIVE: &str = "accumulative";

    /// The addresses without their prefix lengths.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses
            .iter()
            .filter_map(|text| without_prefix(text))
    }
}

impl Spec for NodeAddress {
    const DEFINITION: Definition = open(
        "NodeAddresses.net.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Addresses", ".addresses"),
            column("SortAlgorithm", ".sortAlgorithm"),
        ],
    );

    type Message = wire::NodeAddressSpec;

    fn message(&self) -> wire::NodeAddressSpec {
        wire::NodeAddressSpec {
            addresses: self
                .addresses
                .iter()
                .filter_map(|one| prefix(one))
                .collect(),
            sort_algorithm: number(self.sort_algorithm, SORT_ALGORITHMS).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;

    #[test]
    fn default_route_is_encoded_without_a_destination() {
        let status = RouteStatus {
            family: "inet4",
            dst: String::new(),
            src: "10.0.2.15".to_owned(),
            gateway: "10.0.2.2".to_owned(),
            out_link_index: 2,
            out_link_name: "eth0".to_owned(),
            table: "main".to_owned(),
            priority: 1024,
            scope: "global",
            route_type: "unicast",
            protocol: "dhcp".to_owned(),
        };
        let message = status.message();
        assert_eq!(message.destination, None);
        assert_eq!(message.gateway.unwrap().ip, [10, 0, 2, 2]);
        assert_eq!((message.family, message.table), (2, 254));
        assert_eq!((message.r#type, message.protocol), (1, 16));
    }

    #[test]
    fn link_status_shows_its_kind_and_device() {
        let link = LinkStatus {
            speed: Some(25_000),
            port: "Fibre".to_owned(),
            duplex: "Full".to_owned(),
            vendor_id: "0x1af4".to_owned(),
            vlan: Some(Vlan {
                id: 5,
                protocol: "802.1q",
            }),
            ..LinkStatus::with_device()
        };
        let message = link.message();
        assert_eq!(message.speed_megabits, 25_000);
        assert_eq!((message.port, message.duplex), (3, 1));
        let vlan = message.vlan.unwrap();
        assert_eq!((vlan.vid, vlan.protocol), (5, 0x8100));
        assert_eq!((message.bond_master, message.veth), (None, None));
        let yaml = link.to_yaml().unwrap();
        let expected = "vendorID: \"0x1af4\"\nlinkState: true\nspeedMbit: 25000\nport: Fibre\n\
             duplex: Full\nvlan:\n  vlanID: 5\n  vlanProtocol: 802.1q\n";
        assert!(yaml.contains(expected), "{yaml}");
    }

    #[test]
    fn invalid_addresses_are_left_out_of_the_message() {
        let node = NodeAddress {
            addresses: vec!["10.0.2.15/24".to_owned(), "nonsense".to_owned()],
            sort_algorithm: "v1",
        };
        let message = node.message();
        assert_eq!(message.addresses.len(), 1);
        assert_eq!(message.addresses[0].prefix_length, 24);
    }
}

//! What the network is.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::network::HostnameStatusSpec;
use corten_resources::{Definition, Spec};
use prost::Message as _;
use serde::Serialize;

use super::network_wireguard::WireguardStatus;
use super::{column, is_default, message, open};

const NAMESPACE: &str = "network";

/// The node's name; id [`HostnameStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostnameStatus {
    /// Up to the first dot.
    pub hostname: String,
    /// Behind it; often empty.
    pub domainname: String,
}

impl HostnameStatus {
    /// There is one.
    pub const ID: &str = "hostname";

    /// With its domain.
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        let message = HostnameStatusSpec {
            hostname: self.hostname.clone(),
            domainname: self.domainname.clone(),
        };
        Some(message.encode_to_vec())
    }
}

/// A link as the kernel has it; its id is its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkStatus {
    /// What the config calls it, where a `LinkAliasConfig` does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// Other names of it.
    pub alt_names: Vec<String>,
    /// The kernel's number.
    pub index: u32,
    /// Of the hardware: `ether`, `loopback`.
    #[serde(rename = "type")]
    pub link_type: String,
    /// The link below it, or 0.
    pub link_index: u32,
    /// As the kernel's names without `IFF_`, joined by commas.
    pub flags: String,
    /// As hexadecimal bytes with colons.
    pub hardware_addr: String,
    /// The one it was built with, if another can be set.
    pub permanent_addr: String,
    /// The address of all.
    pub broadcast_addr: String,
    /// In bytes.
    pub mtu: u32,
    /// The name of its queueing.
    pub queue_disc: String,
    /// The bond or bridge it is part of.
    #[serde(skip_serializing_if = "is_default")]
    pub master_index: u32,
    /// RFC 2863: `up`, `down`, `unknown`.
    pub operational_state: &'static str,
    /// Of a virtual link: `vlan`, `bridge`. Else empty.
    pub kind: String,
    /// Of the part of a bond or bridge.
    pub slave_kind: String,
    /// Where the device sits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bus_path: String,
    /// The device's vendor and product on its bus, in hexadecimal with a colon.
    #[serde(rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
    /// The device's driver.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Whether there is a carrier.
    pub link_state: bool,
    /// Of a tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wireguard: Option<WireguardStatus>,
}

impl LinkStatus {
    /// A network card that is up.
    #[cfg(test)]
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
            link_state: true,
            wireguard: None,
        }
    }

    /// Whether a device stands behind it: not a bridge, not a container's cable.
    #[must_use]
    pub fn is_physical(&self) -> bool {
        self.link_type == "ether" && self.kind.is_empty() && !self.bus_path.is_empty()
    }

    /// Its hardware address as bytes.
    #[must_use]
    pub fn mac(&self) -> Vec<u8> {
        bytes(&self.hardware_addr)
    }
}

/// A hardware address as bytes.
pub(crate) fn bytes(address: &str) -> Vec<u8> {
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        Some(message::link(self))
    }
}

/// An address on a link; its id is `<link>/<address>/<prefix length>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// With the length of its prefix.
    pub address: String,
    /// Ours, where `address` is the peer's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub local: String,
    /// The address of all in the network.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub broadcast: String,
    /// The link's number.
    pub link_index: u32,
    /// The link's name.
    pub link_name: String,
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// How far it reaches: `global`, `link`, `host`.
    pub scope: &'static str,
    /// Joined by commas: `permanent`, `tentative`.
    pub flags: String,
}

impl AddressStatus {
    /// Without its prefix.
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        Some(message::address(self))
    }
}

/// A route as the kernel has it; its id is as [`super::network_spec::RouteSpec`]'s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// Where it leads; empty: everywhere.
    pub dst: String,
    /// The address packets are sent from.
    pub src: String,
    /// Through whom; empty: it is on the link.
    pub gateway: String,
    /// The link's number.
    pub out_link_index: u32,
    /// The link's name.
    pub out_link_name: String,
    /// The routing table's name or number.
    pub table: String,
    /// Lower wins.
    pub priority: u32,
    /// How far it reaches: `global`, `link`, `host`.
    pub scope: &'static str,
    /// `unicast`, `blackhole`.
    #[serde(rename = "type")]
    pub route_type: &'static str,
    /// Where it comes from: `kernel`, `static`, `dhcp`.
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        Some(message::route(self))
    }
}

/// Addresses of the node, chosen: ids [`NodeAddress::DEFAULT`], [`NodeAddress::CURRENT`],
/// [`NodeAddress::ROUTED`], [`NodeAddress::ACCUMULATIVE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddress {
    /// With the lengths of their prefixes, IPv4 first.
    pub addresses: Vec<String>,
    /// How they were put in order.
    pub sort_algorithm: &'static str,
}

impl NodeAddress {
    /// One, and the same as long as it is there.
    pub const DEFAULT: &str = "default";
    /// All that others can reach the node by.
    pub const CURRENT: &str = "current";
    /// Those of them that are in a network, so without addresses that stand alone (/32, /128).
    pub const ROUTED: &str = "routed";
    /// All that ever were, since this boot.
    pub const ACCUMULATIVE: &str = "accumulative";

    /// Without prefixes.
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

    fn to_proto(&self) -> Option<Vec<u8>> {
        Some(message::node_address(self))
    }
}

/// The hardware address of a link with a device; id [`HardwareAddress::FIRST`] for the first of them by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareAddress {
    /// The link's name.
    pub name: String,
    /// Hexadecimal, with colons.
    pub hardware_addr: String,
}

impl HardwareAddress {
    /// There is this one.
    pub const FIRST: &str = "first";
}

impl Spec for HardwareAddress {
    const DEFINITION: Definition = open("HardwareAddresses.net.talos.dev", NAMESPACE, &[], &[]);

    fn to_proto(&self) -> Option<Vec<u8>> {
        Some(message::hardware_address(self))
    }
}

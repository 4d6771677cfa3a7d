//! The links of a config, from documents of both forms.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_values::{Cidr, LinkName, Mac, vlan_name};
use corten_yaml::problem::printable;

use corten_config::Document;
use corten_config::kinds::{
    BondConfig, BondMode, BridgeConfig, DHCPv4Config, DHCPv6Config, DummyLinkConfig, Link,
    LinkConfig, LinkRoute, VLANConfig, VRFConfig, VethConfig, VlanMode, WireguardConfig,
};
use corten_config::v1alpha1::{DeviceSelector, DhcpOptions, Interface, LegacyRoute, asked};

/// The settings of a link; several documents can contribute.
#[derive(Debug, Default)]
pub(super) struct Described {
    pub(super) addresses: Vec<Cidr>,
    /// Routes, normalized by [`normal`].
    pub(super) routes: Vec<LinkRoute>,
    /// Whether the link is left down.
    pub(super) down: bool,
    /// Links that belong to this one and have no addresses of their own.
    pub(super) members: Vec<String>,
    /// Settings of each DHCP client; empty: no DHCP.
    pub(super) dhcp: Vec<String>,
    /// Settings of a virtual link. Empty: a physical link, or a tunnel.
    pub(super) made: String,
    /// Settings that a virtual link takes while it exists.
    pub(super) set: String,
    /// Whether the link is physical; without any settings such a link uses DHCP.
    pub(super) physical: bool,
    pub(super) mtu: Option<u32>,
    pub(super) hardware_addr: Option<Mac>,
}

/// Links by name.
pub(super) type Links = BTreeMap<String, Described>;

/// All links in the config.
pub(super) fn links(document: &Document) -> Links {
    let mut all = Links::new();
    // The old form comes first: for a link in both forms the document with a kind wins, as on the node.
    for interface in &document.machine.network.interfaces {
        old_form(interface, &mut all);
    }
    for config in document.all::<LinkConfig>() {
        common(&mut all, &config.name, &config.link).physical = true;
    }
    for config in document.all::<DummyLinkConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.hardware_addr = config.hardware_addr;
        "a dummy".clone_into(&mut link.made);
    }
    for config in document.all::<BondConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.hardware_addr = config.hardware_addr;
        link.members.extend(names(&config.links));
        (link.made, link.set) = bond(config.clone(), None, &[]);
    }
    for config in document.all::<BridgeConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.hardware_addr = config.hardware_addr;
        link.members.extend(names(&config.links));
        link.made = bridge(config.stp.enabled, config.vlan.filtering);
    }
    for config in document.all::<VLANConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.made = vlan(&config.parent, config.vlan_id, &config.vlan_mode);
    }
    for config in document.all::<VRFConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.hardware_addr = config.hardware_addr;
        link.members.extend(names(&config.links));
        link.made = format!("table {}", config.table);
    }
    for config in document.all::<VethConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.made = format!("peer {}", config.peer.name);
        let peer = common(&mut all, &config.peer.name, &config.peer.link);
        peer.made = format!("peer {}", config.name);
    }
    for config in document.all::<WireguardConfig>() {
        common(&mut all, &config.name, &config.link);
    }
    for config in document.all::<DHCPv4Config>() {
        let how = DHCPv4Config {
            name: LinkName::default(),
            ..config.clone()
        };
        asks(&mut all, &config.name, settings(&how));
    }
    for config in document.all::<DHCPv6Config>() {
        let how = DHCPv6Config {
            name: LinkName::default(),
            ..config.clone()
        };
        asks(&mut all, &config.name, settings(&how));
    }
    all
}

/// Settings in a form for comparison only.
fn settings(config: &impl Debug) -> String {
    format!("{config:?}")
}

/// Settings with which the node makes a bond, and those that the bond takes later
/// (`node/network/src/apply/bond_table.rs`). Only the old form has the last two arguments.
fn bond(config: BondConfig, system: Option<Mac>, selectors: &[DeviceSelector]) -> (String, String) {
    let made = (
        config.mode,
        config.fail_over_mac.unwrap_or_default(),
        config.ad_user_port_key.unwrap_or_default(),
    );
    let set = BondConfig {
        name: LinkName::default(),
        hardware_addr: None,
        links: Vec::new(),
        link: Link::default(),
        mode: BondMode::default(),
        fail_over_mac: None,
        ad_user_port_key: None,
        ..config
    };
    (settings(&made), settings(&(set, system, selectors)))
}

fn vlan(parent: &str, id: u16, mode: &impl Debug) -> String {
    format!("{id} on {parent}, {mode:?}")
}

fn bridge(stp: bool, filtering: bool) -> String {
    format!("stp {stp}, filtering {filtering}")
}

fn names(links: &[LinkName]) -> Vec<String> {
    links.iter().map(ToString::to_string).collect()
}

/// A route in canonical form; a document has several spellings for it.
fn normal(route: LinkRoute) -> LinkRoute {
    let everywhere = |gateway: IpAddr| Cidr {
        address: match gateway {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        },
        prefix: 0,
    };
    let destination = route.destination.map(|network| network.network());
    LinkRoute {
        destination: destination.or(route.gateway.map(everywhere)),
        metric: asked(route.metric),
        table: asked(route.table),
        ..route
    }
}

fn asks(all: &mut Links, name: &LinkName, how: String) {
    let link = all.entry(name.to_string()).or_insert_with(|| Described {
        physical: true,
        ..Described::default()
    });
    link.dhcp.push(how);
}

fn common<'a>(all: &'a mut Links, name: &LinkName, config: &Link) -> &'a mut Described {
    let link = all.entry(name.to_string()).or_default();
    let addresses = config.addresses.iter().map(|address| address.address);
    link.addresses.extend(addresses);
    link.routes
        .extend(config.routes.iter().cloned().map(normal));
    link.down |= config.up == Some(false);
    link.mtu = config.mtu;
    link
}

/// A link of `machine.network.interfaces`, with its VLANs.
fn old_form(interface: &Interface, all: &mut Links) {
    let name = match (&interface.interface, &interface.device_selector) {
        (Some(name), _) => name.to_string(),
        (None, selector) => selector.as_ref().map(selected).unwrap_or_default(),
    };
    let link = all.entry(name.clone()).or_default();
    link.down |= interface.ignore;
    link.addresses
        .extend(interface.addresses.iter().chain(&interface.cidr));
    link.routes.extend(routes(&interface.routes));
    if interface.dhcp == Some(true) {
        link.dhcp.extend(ways(&interface.dhcp_options));
    }
    link.mtu = asked(interface.mtu);
    let mut is_made = interface.dummy || interface.wireguard.is_some();
    if interface.dummy {
        "a dummy".clone_into(&mut link.made);
    }
    if let Some(said) = &interface.bond {
        is_made = true;
        link.members.extend(names(&said.interfaces));
        (link.made, link.set) = bond(said.config(), said.ad_actor_system, &said.device_selectors);
    }
    if let Some(said) = &interface.bridge {
        is_made = true;
        link.members.extend(names(&said.interfaces));
        link.made = bridge(said.stp.enabled, said.vlan.vlan_filtering);
    }
    link.physical |= !is_made;
    for said in &interface.vlans {
        // The name behind a selector is unknown, and its description is not shortened.
        let vlan_of_link = match &interface.interface {
            Some(link) => vlan_name(link, said.vlan_id),
            None => format!("{name}.{}", said.vlan_id),
        };
        let link = all.entry(vlan_of_link).or_default();
        link.addresses
            .extend(said.addresses.iter().chain(&said.cidr));
        link.routes.extend(routes(&said.routes));
        if said.dhcp {
            link.dhcp.extend(ways(&said.dhcp_options));
        }
        link.down |= interface.ignore;
        link.made = vlan(&name, said.vlan_id, &VlanMode::default());
        link.mtu = asked(said.mtu);
    }
    if let Some(port) = interface.bridge_port.as_ref().filter(|_| !interface.ignore) {
        let bridge = all.entry(port.master.to_string()).or_default();
        bridge.members.push(name);
    }
}

/// A name for the link of a selector, from its patterns: another selector is another link.
fn selected(selector: &DeviceSelector) -> String {
    let patterns = [
        ("busPath", &selector.bus_path),
        ("hardwareAddr", &selector.hardware_addr),
        ("permanentAddr", &selector.permanent_addr),
        ("pciID", &selector.pci_id),
        ("driver", &selector.driver),
    ];
    let given = patterns.iter();
    let given = given.filter_map(|(field, pattern)| Some((*field, printable(pattern.as_ref()?))));
    let physical = selector
        .physical
        .map(|physical| ("physical", physical.to_string()));
    let said: Vec<String> = given
        .chain(physical)
        .map(|(field, pattern)| format!("{field} {pattern}"))
        .collect();
    format!("the link with {}", said.join(", "))
}

fn routes(said: &[LegacyRoute]) -> impl Iterator<Item = LinkRoute> {
    said.iter().map(LinkRoute::from).map(normal)
}

/// DHCP clients in the form of their documents.
fn ways(options: &DhcpOptions) -> impl Iterator<Item = String> {
    let v4 = DHCPv4Config {
        route_metric: options.route_metric,
        ..DHCPv4Config::default()
    };
    let v6 = DHCPv6Config {
        route_metric: options.route_metric,
        duid_raw: options.duidv6.clone(),
        ..DHCPv6Config::default()
    };
    let asks = [
        (options.ipv4 != Some(false)).then(|| settings(&v4)),
        (options.ipv6 == Some(true)).then(|| settings(&v6)),
    ];
    asks.into_iter().flatten()
}

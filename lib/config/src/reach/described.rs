//! Links as documents of any form describe them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::Document;
use crate::kinds::{
    BondConfig, BridgeConfig, DHCPv4Config, DHCPv6Config, DummyLinkConfig, Link, LinkConfig,
    LinkRoute, VLANConfig, VRFConfig, VethConfig, WireguardConfig,
};
use crate::v1alpha1::{Interface, LegacyRoute};
use crate::values::{Cidr, LinkName, Mac};

/// What documents say of a link; several can speak of one.
#[derive(Debug, Default)]
pub(super) struct Described {
    pub(super) addresses: Vec<Cidr>,
    pub(super) routes: Vec<LinkRoute>,
    /// It is left down.
    pub(super) down: bool,
    /// Links that stand under this one and have no addresses of their own.
    pub(super) members: Vec<String>,
    /// How it asks for addresses, one line for each way; empty: it does not.
    pub(super) dhcp: Vec<String>,
    /// What is made of others or of nothing: how. Empty: a link of a device, or a tunnel.
    pub(super) made: String,
    /// A link of a device, which asks for addresses when nothing is said of it.
    pub(super) physical: bool,
    pub(super) mtu: Option<u32>,
    pub(super) hardware_addr: Option<Mac>,
}

/// By name.
pub(super) type Links = BTreeMap<String, Described>;

/// Every link that is described.
pub(super) fn links(document: &Document) -> Links {
    let mut all = Links::new();
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
        link.members = names(&config.links);
        link.made = settings(&BondConfig {
            link: Link::default(),
            links: Vec::new(),
            ..config.clone()
        });
    }
    for config in document.all::<BridgeConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.hardware_addr = config.hardware_addr;
        link.members = names(&config.links);
        link.made = bridge(config.stp.enabled, config.vlan.filtering);
    }
    for config in document.all::<VLANConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.made = vlan(&config.parent, config.vlan_id, &config.vlan_mode);
    }
    for config in document.all::<VRFConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.hardware_addr = config.hardware_addr;
        link.members = names(&config.links);
        link.made = format!("table {}", config.table);
    }
    for config in document.all::<VethConfig>() {
        let link = common(&mut all, &config.name, &config.link);
        link.made = format!("peer {}", config.peer.name);
    }
    for config in document.all::<WireguardConfig>() {
        common(&mut all, &config.name, &config.link);
    }
    for interface in &document.machine.network.interfaces {
        old_form(interface, &mut all);
    }
    for config in document.all::<DHCPv4Config>() {
        asks(&mut all, &config.name, settings(config));
    }
    for config in document.all::<DHCPv6Config>() {
        asks(&mut all, &config.name, settings(config));
    }
    all
}

/// For comparing: nobody reads it.
fn settings(config: &impl Debug) -> String {
    format!("{config:?}")
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
    link.routes.extend(config.routes.iter().cloned());
    link.down = config.up == Some(false);
    link.mtu = config.mtu;
    link
}

/// A link of `machine.network.interfaces`, and the VLANs on it.
fn old_form(interface: &Interface, all: &mut Links) {
    let name = match &interface.interface {
        Some(name) => name.to_string(),
        None => "the selected link".to_owned(),
    };
    let routes = |routes: &[LegacyRoute]| routes.iter().map(LinkRoute::from).collect::<Vec<_>>();
    let dhcp = |asks: bool, options: &dyn Debug| {
        let how = asks.then(|| format!("{options:?}"));
        how.into_iter().collect::<Vec<_>>()
    };
    for said in &interface.vlans {
        let link = all.entry(format!("{name}.{}", said.vlan_id)).or_default();
        link.addresses
            .extend(said.addresses.iter().chain(&said.cidr));
        link.routes.extend(routes(&said.routes));
        link.dhcp = dhcp(said.dhcp, &said.dhcp_options);
        link.made = vlan(&name, said.vlan_id, &crate::kinds::VlanMode::default());
        link.mtu = said.mtu;
    }
    if let Some(port) = &interface.bridge_port {
        let bridge = all.entry(port.master.to_string()).or_default();
        bridge.members.push(name.clone());
    }
    let link = all.entry(name).or_default();
    link.addresses
        .extend(interface.addresses.iter().chain(&interface.cidr));
    link.routes.extend(routes(&interface.routes));
    link.down |= interface.ignore;
    link.dhcp
        .extend(dhcp(interface.dhcp == Some(true), &interface.dhcp_options));
    link.mtu = interface.mtu;
    let mut is_made = interface.dummy || interface.wireguard.is_some();
    if interface.dummy {
        "a dummy".clone_into(&mut link.made);
    }
    if let Some(bond) = &interface.bond {
        is_made = true;
        link.members.extend(names(&bond.interfaces));
        link.made = settings(&crate::v1alpha1::LegacyBond {
            interfaces: Vec::new(),
            ..bond.clone()
        });
    }
    if let Some(said) = &interface.bridge {
        is_made = true;
        link.members.extend(names(&said.interfaces));
        link.made = bridge(said.stp.enabled, said.vlan.vlan_filtering);
    }
    link.physical |= !is_made;
}

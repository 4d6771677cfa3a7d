//! Version 1 of `network-config`: a list of links, name servers and routes (cloud-init: "Networking config
//! Version 1").

use std::net::IpAddr;

use corten_config::kinds::{LinkRoute, check_mtu, check_vlan};
use corten_values::{Cidr, HostName, LinkName, Mac, Object};
use corten_yaml::read::{LEFT_OUT, Reader};
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use crate::bond::ParamsV1;
use crate::model::{SeedDhcp, SeedLink, SeedMatch, SeedNetwork, SeedRoute, SeedShape};
use crate::values::{Mask, OneOrMore, Place, Truth, width};

section! {
    /// A `network-config` of version 1.
    pub struct NetworkV1 {
        Held "version" version: u8 = "Version, always 1";
        Acted "config" config: Vec<Entry> = "Links, name servers, routes";
    }
}

choices! {
    /// Type of an entry.
    pub enum EntryKind {
        Physical = "physical", Bond = "bond", Bridge = "bridge", Vlan = "vlan", Nameserver = "nameserver", Route = "route",
        Loopback = "loopback",
    }
}

section! {
    /// An entry.
    pub struct Entry [check_entry] {
        Acted "type" kind: EntryKind = "Type of the entry", required;
        Acted "name" name: LinkName = "Name of the link, for references by other entries";
        Acted "mac_address" mac: Option<Mac> = "Permanent hardware address of a card; hardware address to set on another link";
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
        Acted "subnets" subnets: Vec<Subnet> = "Addresses";
        Acted "bond_interfaces" members: Vec<LinkName> = "Links of the bond";
        Acted "bridge_interfaces" bridged: Vec<LinkName> = "Links of the bridge";
        Acted "params" params: ParamsV1 = "Settings of the bond or bridge";
        Acted "vlan_link" parent: LinkName = "Parent link of a VLAN";
        Acted "vlan_id" vlan_id: Option<u16> = "VLAN number";
        Acted "address" address: OneOrMore<IpAddr> = "Name servers";
        Acted "search" search: OneOrMore<HostName> = "Search domains for short names";
        Acted "destination" destination: Option<Place> = "Destination network of a route";
        Acted "network" network: Option<Place> = "Alternative name of the previous field";
        Acted "netmask" netmask: Option<Mask> = "Mask of the destination";
        Acted "gateway" gateway: Option<IpAddr> = "Address of the gateway";
        Acted "metric" metric: Option<u32> = "Metric; a lower one is preferred";
        Acted "accept-ra" accept_ra: Option<Truth> = "Whether router advertisements are accepted; the kernel always accepts them";
        Held "interface" interface: String = "Link of the name servers; all links use them";
        Held "keep_configuration" keep: Truth = "Setting of other systems";
    }
}

fn check_entry(entry: &Entry, node: &Node, reader: &mut Reader<'_>) {
    let is_link = matches!(
        entry.kind,
        EntryKind::Physical | EntryKind::Bond | EntryKind::Bridge | EntryKind::Vlan
    );
    if is_link && !node.given("name") {
        reader.wrong_in(node, "name", "is required");
    }
    if entry.accept_ra == Some(Truth(false)) {
        reader.leave_out_in(node, "accept-ra", LEFT_OUT);
    }
    match entry.kind {
        EntryKind::Physical | EntryKind::Bridge => {}
        EntryKind::Loopback => {
            let why = "is left out: the node configures the loopback link itself";
            if entry.subnets.iter().any(|subnet| subnet.address.is_some()) {
                reader.leave_out_in(node, "subnets", why);
            }
        }
        EntryKind::Bond => {
            if !node.given("bond_interfaces") {
                reader.wrong_in(node, "bond_interfaces", "is required");
            }
            let primary = entry.params.primary.as_ref();
            let is_member = |primary: &String| entry.members.iter().any(|link| **link == *primary);
            if primary.is_some_and(|primary| !is_member(primary)) {
                let what = "has a bond-primary that is none of bond_interfaces";
                reader.wrong_in(node, "params", what);
            }
        }
        EntryKind::Vlan => {
            check_vlan(entry.vlan_id, "vlan_id", node, reader);
            if !node.given("vlan_link") {
                reader.wrong_in(node, "vlan_link", "is required");
            } else if entry.parent == entry.name {
                reader.wrong_in(node, "vlan_link", "must be another link");
            }
        }
        EntryKind::Nameserver => {
            if !node.given("address") && !node.given("search") {
                reader.wrong_in(node, "address", "is required");
            }
        }
        EntryKind::Route => {
            if node.given("destination") == node.given("network") {
                let what = "is required, or network in its place";
                reader.wrong_in(node, "destination", what);
            }
            if !node.given("gateway") {
                reader.wrong_in(node, "gateway", "is required");
            }
            entry.place().check_mask(entry.netmask, node, reader);
            entry.route().check(node, reader);
        }
    }
    check_mtu(entry.mtu, node, reader);
}

choices! {
    /// Source of a link's address.
    pub enum SubnetKind {
        Dhcp = "dhcp", Dhcp4 = "dhcp4", Dhcp6 = "dhcp6", Stateful = "ipv6_dhcpv6-stateful",
        Stateless = "ipv6_dhcpv6-stateless", Slaac = "ipv6_slaac", Static = "static", Static6 = "static6",
        Manual = "manual",
    }
}

section! {
    /// An address of a link with its settings.
    pub struct Subnet [check_subnet] {
        Acted "type" kind: SubnetKind = "Source of the address", required;
        Acted "address" address: Option<Place> = "Address";
        Acted "netmask" netmask: Option<Mask> = "Mask of the network";
        Acted "gateway" gateway: Option<IpAddr> = "Address of the default gateway";
        Acted "metric" metric: Option<u32> = "Metric of the default route; a lower one is preferred";
        Acted "dns_nameservers" dns_servers: OneOrMore<IpAddr> = "Name servers";
        Acted "dns_search" search: OneOrMore<HostName> = "Search domains for short names";
        Acted "routes" routes: Vec<SubnetRoute> = "Routes through the link";
        Later "mtu" mtu: Option<Object> = "MTU in bytes of one family; use the link's";
        Held "broadcast" broadcast: String = "Derived from the mask";
        Held "control" control: String = "Setting of other systems";
        Held "scope" scope: String = "Setting of other systems";
        Held "ipv4" ipv4: Truth = "Derived from the address";
        Held "ipv6" ipv6: Truth = "Derived from the address";
    }
}

impl Subnet {
    fn cidr(&self) -> Option<Cidr> {
        let place = self.address?;
        let address = place.address?;
        let prefix = place.prefix.or(self.netmask.map(|mask| mask.0))?;
        (prefix <= width(address)).then_some(Cidr { address, prefix })
    }
}

fn check_subnet(subnet: &Subnet, node: &Node, reader: &mut Reader<'_>) {
    let is_static = matches!(subnet.kind, SubnetKind::Static | SubnetKind::Static6);
    // An unreadable value was reported already.
    let is_read = subnet.address.is_some() || !node.given("address");
    if is_static && is_read && subnet.cidr().is_none() {
        let what = "must be an address with a prefix, or one beside a netmask";
        reader.wrong_in(node, "address", what);
    }
    if let (Some(own), Some(gateway)) = (subnet.cidr(), subnet.gateway)
        && own.address.is_ipv4() != gateway.is_ipv4()
    {
        reader.wrong_in(node, "gateway", "must be of the family of the address");
    }
}

section! {
    /// A route through a link.
    pub struct SubnetRoute [check_subnet_route] {
        Acted "network" network: Option<Place> = "Destination network";
        Acted "destination" destination: Option<Place> = "Alternative name of the previous field";
        Acted "netmask" netmask: Option<Mask> = "Mask of the destination";
        Acted "gateway" gateway: Option<IpAddr> = "Address of the gateway";
        Acted "metric" metric: Option<u32> = "Metric; a lower one is preferred";
    }
}

impl SubnetRoute {
    fn place(&self) -> Place {
        self.network.or(self.destination).unwrap_or_default()
    }

    fn route(&self) -> LinkRoute {
        LinkRoute {
            destination: self.place().network(self.netmask),
            gateway: self.gateway,
            metric: self.metric,
            ..LinkRoute::default()
        }
    }
}

fn check_subnet_route(route: &SubnetRoute, node: &Node, reader: &mut Reader<'_>) {
    if node.given("network") == node.given("destination") {
        reader.wrong(node.mark, "needs exactly one of network, destination");
    }
    route.place().check_mask(route.netmask, node, reader);
    let route = route.route();
    if route.destination.is_none() && !node.given("gateway") {
        reader.wrong_in(node, "gateway", "is required for a default route");
    }
    route.check(node, reader);
}

impl Entry {
    fn place(&self) -> Place {
        self.destination.or(self.network).unwrap_or_default()
    }

    fn route(&self) -> LinkRoute {
        LinkRoute {
            destination: self.place().network(self.netmask),
            gateway: self.gateway,
            metric: self.metric,
            ..LinkRoute::default()
        }
    }

    fn bond(&self) -> SeedShape {
        SeedShape::Bond {
            members: self.members.iter().map(ToString::to_string).collect(),
            primary: self.params.primary.clone(),
            config: Box::new(self.params.bond()),
        }
    }

    fn link(&self) -> Option<SeedLink> {
        let (shape, hardware_addr) = match self.kind {
            EntryKind::Physical => (
                SeedShape::Card(SeedMatch {
                    mac: self.mac,
                    ..SeedMatch::default()
                }),
                None,
            ),
            EntryKind::Bond => (self.bond(), self.mac),
            EntryKind::Bridge => (
                SeedShape::Bridge {
                    members: self.bridged.iter().map(ToString::to_string).collect(),
                    stp: self.params.bridge.stp.0,
                },
                self.mac,
            ),
            EntryKind::Vlan => (
                SeedShape::Vlan {
                    parent: self.parent.to_string(),
                    id: self.vlan_id.unwrap_or_default(),
                },
                self.mac,
            ),
            EntryKind::Nameserver | EntryKind::Route | EntryKind::Loopback => return None,
        };
        let mut link = SeedLink {
            mtu: self.mtu,
            hardware_addr,
            ..SeedLink::new(&self.name, shape)
        };
        for subnet in &self.subnets {
            let dhcp = || {
                Some(SeedDhcp {
                    route_metric: subnet.metric,
                    ..SeedDhcp::default()
                })
            };
            match subnet.kind {
                SubnetKind::Dhcp | SubnetKind::Dhcp4 => link.dhcp4 = dhcp(),
                SubnetKind::Dhcp6 | SubnetKind::Stateful => link.dhcp6 = dhcp(),
                SubnetKind::Static | SubnetKind::Static6 => link.addresses.extend(subnet.cidr()),
                // The kernel itself configures addresses from router advertisements.
                SubnetKind::Stateless | SubnetKind::Slaac | SubnetKind::Manual => {}
            }
            let everywhere = subnet.gateway.map(|gateway| LinkRoute {
                gateway: Some(gateway),
                metric: subnet.metric,
                ..LinkRoute::default()
            });
            let routes = subnet.routes.iter().map(SubnetRoute::route);
            let routes = everywhere.into_iter().chain(routes);
            link.routes.extend(routes.map(SeedRoute::from));
        }
        Some(link)
    }
}

impl From<NetworkV1> for SeedNetwork {
    fn from(said: NetworkV1) -> SeedNetwork {
        let mut network = SeedNetwork::default();
        for entry in &said.config {
            network.links.extend(entry.link());
            if entry.kind == EntryKind::Route {
                network.routes.push(entry.route().into());
            }
            if entry.kind == EntryKind::Nameserver {
                network.dns_servers.extend(&entry.address.0);
            }
            let search = entry.subnets.iter().map(|subnet| &subnet.search);
            let domains = search.chain([&entry.search]).flat_map(|search| &search.0);
            network
                .search_domains
                .extend(domains.map(ToString::to_string));
            let servers = entry
                .subnets
                .iter()
                .flat_map(|subnet| &subnet.dns_servers.0);
            network.dns_servers.extend(servers);
        }
        network
    }
}

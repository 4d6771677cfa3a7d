//! Version 2 of `network-config`: netplan's links by name (cloud-init: "Networking config Version 2"; netplan's YAML
//! reference).

use std::collections::BTreeMap;
use std::net::IpAddr;

use corten_config::kinds::{
    LinkRoute, RULE_PRIORITIES, RULE_TABLES, check_mtu, check_number, check_routes_fit, check_vlan,
};
use corten_values::{HostName, LinkPattern, Mac, Object, is_link_name};
use corten_yaml::read::{LEFT_OUT, Reader};
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::bond::ParametersV2;
use crate::bridge::BridgeV2;
use crate::model::{SeedDhcp, SeedLink, SeedMatch, SeedNetwork, SeedRoute, SeedRule, SeedShape};
use crate::values::{OneOrMore, Own, Place, Truth};

section! {
    /// A `network-config` of version 2.
    pub struct NetworkV2 [check_network] {
        Held "version" version: u8 = "Version, always 2";
        Held "renderer" renderer: String = "Program of another system that applies the file";
        Acted "ethernets" ethernets: BTreeMap<String, Ethernet> = "Network cards";
        Acted "bonds" bonds: BTreeMap<String, Bond> = "Bonds";
        Acted "bridges" bridges: BTreeMap<String, Bridge> = "Bridges";
        Acted "vlans" vlans: BTreeMap<String, Vlan> = "VLANs";
        Later "tunnels" tunnels: Option<Object> = "Tunnels";
        Later "vrfs" vrfs: Option<Object> = "VRFs";
        Later "wifis" wifis: Option<Object> = "Wireless links";
        Later "modems" modems: Option<Object> = "Wireless links";
        Later "dummy-devices" dummies: Option<Object> = "Links without a device";
        Later "virtual-ethernets" pairs: Option<Object> = "Pairs of links";
    }
}

fn check_network(network: &NetworkV2, node: &Node, reader: &mut Reader<'_>) {
    let named = network.ethernets.iter();
    let named = named.filter(|(_, card)| card.found.is_none());
    let cards = named.map(|(name, _)| ("ethernets", name));
    let bonds = network.bonds.keys().map(|name| ("bonds", name));
    let bridges = network.bridges.keys().map(|name| ("bridges", name));
    let vlans = network.vlans.keys().map(|name| ("vlans", name));
    for (section, name) in cards.chain(bonds).chain(bridges).chain(vlans) {
        if !is_link_name(name) {
            let section_node = node.entry(section).unwrap_or(node);
            reader.within(section, |reader| {
                let what = "must be a valid name of a network link, at most 15 characters";
                reader.wrong_in(section_node, name, what);
            });
        }
    }
    let is_known = |id: &String| {
        network.ethernets.contains_key(id)
            || network.bonds.contains_key(id)
            || network.bridges.contains_key(id)
            || network.vlans.contains_key(id)
            || is_link_name(id)
    };
    let members = network.bonds.iter();
    let members =
        members.map(|(name, bond)| ("bonds", name, "interfaces", bond.interfaces.as_slice()));
    let bridged = network.bridges.iter();
    let bridged =
        bridged.map(|(name, bridge)| ("bridges", name, "interfaces", bridge.interfaces.as_slice()));
    let parents = network.vlans.iter();
    let parents =
        parents.map(|(name, vlan)| ("vlans", name, "link", std::slice::from_ref(&vlan.parent)));
    for (section, name, field, ids) in members.chain(bridged).chain(parents) {
        let Some(link) = node.entry(section).and_then(|links| links.entry(name)) else {
            continue;
        };
        // A missing one was reported already.
        if link.given(field) && !ids.iter().all(is_known) {
            let what = "must name links by their key in this file, or by their own names";
            reader.within(&format!("{section}.{name}"), |reader| {
                reader.wrong_in(link, field, what);
            });
        }
    }
}

section! {
    /// Settings of every kind of link.
    pub struct Common [check_common] {
        Acted "dhcp4" dhcp4: Truth = "Whether DHCPv4 is used";
        Acted "dhcp6" dhcp6: Truth = "Whether DHCPv6 is used";
        Acted "dhcp4-overrides" dhcp4_overrides: Overrides = "Used parts of the response";
        Acted "dhcp6-overrides" dhcp6_overrides: Overrides = "Used parts of the response";
        Acted "addresses" addresses: Vec<Own> = "Addresses";
        Acted "gateway4" gateway4: Option<IpAddr> = "Address of the IPv4 default gateway";
        Acted "gateway6" gateway6: Option<IpAddr> = "Address of the IPv6 default gateway";
        Acted "nameservers" nameservers: Nameservers = "Name servers";
        Acted "routes" routes: Vec<Route> = "Routes through the link";
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
        Acted "macaddress" mac: Option<Mac> = "Hardware address to set";
        Acted "accept-ra" accept_ra: Option<Truth> = "Whether router advertisements are accepted; the kernel always accepts them";
        Held "optional" optional: Truth = "Whether the boot of another system waits for the link";
        Held "optional-addresses" optional_addresses: Option<Object> = "Addresses that the boot of another system does not wait for";
        Held "critical" critical: Truth = "Setting of other systems";
        Acted "dhcp-identifier" identifier: String = "Identifier for DHCPv4: `mac`, which the node always sends";
        Held "renderer" renderer: String = "Program of another system that applies the file";
        Later "ipv6-privacy" privacy: Option<Object> = "Whether temporary addresses are used";
        Later "ipv6-mtu" ipv6_mtu: Option<Object> = "MTU of IPv6 alone";
        Later "ipv6-address-generation" generation: Option<Object> = "Form of link-local addresses";
        Later "ipv6-address-token" token: Option<Object> = "Host part of addresses";
        Later "link-local" link_local: Option<Object> = "Families with link-local addresses";
        Later "ra-overrides" ra_overrides: Option<Object> = "Used parts of router advertisements";
        Later "ignore-carrier" ignore_carrier: Option<Object> = "Whether the link is configured without a carrier";
        Later "activation-mode" activation: Option<Object> = "Whether the link is brought up";
        Acted "routing-policy" policy: Vec<Rule> = "Routing rules";
    }
}

fn check_common(link: &Common, node: &Node, reader: &mut Reader<'_>) {
    if link.accept_ra == Some(Truth(false)) {
        reader.leave_out_in(node, "accept-ra", LEFT_OUT);
    }
    if !matches!(&*link.identifier, "" | "mac") {
        reader.leave_out_in(node, "dhcp-identifier", LEFT_OUT);
    }
    check_mtu(link.mtu, node, reader);
    check_routes_fit(link.mtu, node, reader);
    if link.gateway4.is_some_and(|gateway| gateway.is_ipv6()) {
        reader.wrong_in(node, "gateway4", "must be an IPv4 address");
    }
    if link.gateway6.is_some_and(|gateway| gateway.is_ipv4()) {
        reader.wrong_in(node, "gateway6", "must be an IPv6 address");
    }
}

section! {
    /// Uses of a DHCP server's response.
    pub struct Overrides [check_overrides] {
        Acted "route-metric" route_metric: Option<u32> = "Metric of the offered routes";
        Acted "use-routes" use_routes: Option<Truth> = "Whether the offered routes are used";
        Acted "use-hostname" use_hostname: Option<Truth> = "Whether the offered host name is used";
        Acted "use-dns" use_dns: Option<Truth> = "Whether the offered name servers are used; they always are";
        Acted "use-domains" use_domains: String = "Whether the offered search domains are used; they always are";
        Acted "use-mtu" use_mtu: Option<Truth> = "Whether the offered MTU is used; it always is";
        Acted "use-ntp" use_ntp: Option<Truth> = "Whether the offered time servers are used; they always are";
        Acted "send-hostname" send_hostname: Option<Truth> = "Whether the node's host name is sent; it never is";
        Later "hostname" hostname: Option<HostName> = "Host name to send to the DHCP server";
    }
}

/// Reports what differs from the node's own behaviour.
fn check_overrides(overrides: &Overrides, node: &Node, reader: &mut Reader<'_>) {
    let domains = overrides.use_domains.to_ascii_lowercase();
    for (field, differs) in [
        ("use-dns", overrides.use_dns == Some(Truth(false))),
        (
            "use-domains",
            !matches!(&*domains, "" | "true" | "yes" | "on"),
        ),
        ("use-mtu", overrides.use_mtu == Some(Truth(false))),
        ("use-ntp", overrides.use_ntp == Some(Truth(false))),
        (
            "send-hostname",
            overrides.send_hostname == Some(Truth(true)),
        ),
    ] {
        if differs {
            reader.leave_out_in(node, field, LEFT_OUT);
        }
    }
}

section! {
    /// Name servers.
    pub struct Nameservers {
        Acted "addresses" addresses: Vec<IpAddr> = "Name servers in order of preference";
        Acted "search" search: Vec<HostName> = "Search domains for short names";
    }
}

section! {
    /// A route through a link.
    pub struct Route [check_route] {
        Acted "to" to: Place = "Destination network", required;
        Acted "via" via: Option<IpAddr> = "Address of the gateway";
        Acted "from" from: Option<IpAddr> = "Source address";
        Acted "metric" metric: Option<u32> = "Metric; a lower one is preferred";
        Acted "table" table: Option<u32> = "Routing table; absent: the main one";
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
        Acted "on-link" on_link: Truth = "Whether the gateway is on the link without an address of its network";
        Held "scope" scope: String = "Derived from the gateway";
        Later "advertised-mss" mss: Option<Object> = "Segment size";
        Later "congestion-window" window: Option<Object> = "Window of new connections";
        Later "advertised-receive-window" receive_window: Option<Object> = "Window of new connections";
        Acted "type" kind: String = "Type of the route, always unicast";
    }
}

impl Route {
    /// Whether the node has this type of route. Another one in its place would be a different route.
    fn is_usual(&self) -> bool {
        matches!(&*self.kind, "" | "unicast")
    }

    fn route(&self) -> LinkRoute {
        LinkRoute {
            destination: self.to.network(None),
            gateway: self.via,
            source: self.from,
            metric: self.metric,
            table: self.table,
            mtu: self.mtu,
        }
    }
}

fn check_route(route: &Route, node: &Node, reader: &mut Reader<'_>) {
    if !route.is_usual() {
        let why = "is not supported yet; the route is left out";
        return reader.leave_out_in(node, "type", why);
    }
    let route = route.route();
    if route.destination.is_none() && !node.given("via") {
        reader.wrong_in(node, "via", "is required for a default route");
    }
    route.check(node, reader);
}

section! {
    /// A routing rule: packets and the routing table for them.
    pub struct Rule [check_rule] {
        Acted "from" from: Option<Place> = "Source network";
        Acted "to" to: Option<Place> = "Destination network";
        Acted "table" table: Option<u32> = "Routing table", required;
        Acted "priority" priority: Option<u32> = "Priority, 1 to 32765; lower comes first";
        Acted "mark" mark: Option<u32> = "Packet mark";
        Acted "type-of-service" service: Option<u32> = "Type of service of the packets; such a rule is left out";
    }
}

fn check_rule(rule: &Rule, node: &Node, reader: &mut Reader<'_>) {
    if rule.service.is_some() {
        // Without it, the rule would match other packets too.
        let why = "is not supported yet; the rule is left out";
        reader.leave_out_in(node, "type-of-service", why);
    }
    if !node.given("from") && !node.given("to") {
        reader.wrong(node.mark, "needs from or to");
    }
    let is_v4 = |place: Option<Place>| Some(place?.address?.is_ipv4());
    if is_v4(rule.from).is_some_and(|from| is_v4(rule.to).is_some_and(|to| from != to)) {
        reader.wrong_in(node, "to", "must be of the family of from");
    }
    check_number("table", rule.table, RULE_TABLES, node, reader);
    check_number("priority", rule.priority, RULE_PRIORITIES, node, reader);
}

impl Rule {
    fn rule(&self) -> SeedRule {
        let network = |place: Option<Place>| place.and_then(|place| place.network(None));
        let spoken_of = self.from.and_then(|place| place.address);
        let families: &[&str] = match spoken_of.or(self.to.and_then(|place| place.address)) {
            Some(IpAddr::V4(_)) => &["inet4"],
            Some(IpAddr::V6(_)) => &["inet6"],
            None => &["inet4", "inet6"],
        };
        SeedRule {
            families,
            from: network(self.from),
            to: network(self.to),
            table: self.table.unwrap_or_default(),
            priority: self.priority,
            mark: self.mark,
        }
    }
}

section! {
    /// A network card.
    pub struct Ethernet [check_ethernet] {
        Acted "match" found: Option<Match> = "Selector of the card; absent: its name is the key of this entry";
        Acted "set-name" set_name: String = "Name to set; the link keeps the node's name for it";
        Acted "wakeonlan" wakeonlan: Truth = "Whether a packet may wake the machine";
        Acted "emit-lldp" emit_lldp: Truth = "Whether LLDP packets are sent";
        .. link: Common = "Settings of every kind of link";
    }
}

fn check_ethernet(card: &Ethernet, node: &Node, reader: &mut Reader<'_>) {
    if !card.set_name.is_empty() {
        let why = "is left out: the link keeps the node's name for it";
        reader.leave_out_in(node, "set-name", why);
    }
    if card.wakeonlan.0 {
        let why = "is left out: set wakeOnLan in an EthernetConfig of the machine config";
        reader.leave_out_in(node, "wakeonlan", why);
    }
    if card.emit_lldp.0 {
        reader.leave_out_in(node, "emit-lldp", LEFT_OUT);
    }
}

section! {
    /// Selection of a card.
    pub struct Match [check_match] {
        Acted "macaddress" mac: Option<Mac> = "Permanent hardware address";
        Acted "name" name: Option<LinkPattern> = "Name pattern with the wildcards `*`, `?` and `[abc]`";
        Acted "driver" drivers: OneOrMore<LinkPattern> = "Patterns of drivers with the same wildcards";
    }
}

fn check_match(found: &Match, node: &Node, reader: &mut Reader<'_>) {
    if found.mac.is_none() && found.name.is_none() && found.drivers.0.is_empty() {
        reader.wrong(node.mark, "needs macaddress, name or driver");
    }
}

section! {
    /// A bond of several links.
    pub struct Bond [check_bond] {
        Acted "interfaces" interfaces: Vec<String> = "Links of the bond", required;
        Acted "parameters" parameters: ParametersV2 = "Settings of the bond";
        .. link: Common = "Settings of every kind of link";
    }
}

fn check_bond(bond: &Bond, node: &Node, reader: &mut Reader<'_>) {
    let primary = bond.parameters.primary.as_ref();
    if primary.is_some_and(|primary| !bond.interfaces.contains(primary)) {
        reader.wrong_in(
            node,
            "parameters",
            "has a primary that is none of interfaces",
        );
    }
}

section! {
    /// A bridge of several links.
    pub struct Bridge {
        Acted "interfaces" interfaces: Vec<String> = "Links of the bridge";
        Acted "parameters" parameters: BridgeV2 = "Settings of the bridge";
        .. link: Common = "Settings of every kind of link";
    }
}

section! {
    /// A VLAN.
    pub struct Vlan [check_vlan_link] {
        Acted "id" id: Option<u16> = "VLAN number";
        Acted "link" parent: String = "Parent link", required;
        .. link: Common = "Settings of every kind of link";
    }
}

fn check_vlan_link(vlan: &Vlan, node: &Node, reader: &mut Reader<'_>) {
    check_vlan(vlan.id, "id", node, reader);
}

impl Bond {
    fn shape(&self) -> SeedShape {
        SeedShape::Bond {
            members: self.interfaces.clone(),
            primary: self.parameters.primary.clone(),
            config: Box::new(self.parameters.bond()),
        }
    }
}

impl Common {
    fn link(&self, id: &str, shape: SeedShape) -> SeedLink {
        let dhcp = |wanted: Truth, overrides: &Overrides| {
            let leaves = |used: Option<Truth>| used == Some(Truth(false));
            wanted.0.then(|| SeedDhcp {
                route_metric: overrides.route_metric,
                skip_routes: leaves(overrides.use_routes),
                skip_hostname: leaves(overrides.use_hostname),
            })
        };
        let gateways = [self.gateway4, self.gateway6].into_iter().flatten();
        let everywhere = gateways.map(|gateway| LinkRoute {
            gateway: Some(gateway),
            ..LinkRoute::default()
        });
        let usual = self.routes.iter().filter(|said| said.is_usual());
        let routes = usual.map(|said| SeedRoute {
            route: said.route(),
            on_link: said.on_link.0,
        });
        SeedLink {
            mtu: self.mtu,
            hardware_addr: self.mac,
            dhcp4: dhcp(self.dhcp4, &self.dhcp4_overrides),
            dhcp6: dhcp(self.dhcp6, &self.dhcp6_overrides),
            addresses: self.addresses.iter().map(|own| own.0).collect(),
            routes: everywhere.map(SeedRoute::from).chain(routes).collect(),
            ..SeedLink::new(id, shape)
        }
    }
}

impl From<NetworkV2> for SeedNetwork {
    fn from(said: NetworkV2) -> SeedNetwork {
        let mut network = SeedNetwork::default();
        let mut add = |id: &str, shape: SeedShape, link: &Common| {
            network.links.push(link.link(id, shape));
            let rules = link.policy.iter().filter(|rule| rule.service.is_none());
            network.rules.extend(rules.map(Rule::rule));
            network.dns_servers.extend(&link.nameservers.addresses);
            let domains = link.nameservers.search.iter().map(ToString::to_string);
            network.search_domains.extend(domains);
        };
        for (id, card) in &said.ethernets {
            let found = card.found.as_ref().map(|found| SeedMatch {
                mac: found.mac,
                name: found.name.as_ref().map(ToString::to_string),
                drivers: found.drivers.0.iter().map(ToString::to_string).collect(),
            });
            add(id, SeedShape::Card(found.unwrap_or_default()), &card.link);
        }
        for (id, bond) in &said.bonds {
            add(id, bond.shape(), &bond.link);
        }
        for (id, bridge) in &said.bridges {
            let shape = SeedShape::Bridge {
                members: bridge.interfaces.clone(),
                stp: bridge.parameters.uses_tree(),
            };
            add(id, shape, &bridge.link);
        }
        for (id, vlan) in &said.vlans {
            let shape = SeedShape::Vlan {
                parent: vlan.parent.clone(),
                id: vlan.id.unwrap_or_default(),
            };
            add(id, shape, &vlan.link);
        }
        network
    }
}

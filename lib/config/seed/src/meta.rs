//! The network in META 0x0a: specs of the layer `platform`, in the reference's form. The fields are those of the
//! resources (`cortenctl get addressspecs -o yaml` shows some).

use std::collections::BTreeSet;
use std::net::IpAddr;

use corten_config::kinds::{ClientIdentifier, LinkRoute, check_duid};
use corten_values::{Cidr, HostName, HostOrAddress, LinkName, Object};
use corten_yaml::problem::{Notes, Problems};
use corten_yaml::read::{Reader, read_section};
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use crate::limits::{Size, only};
use crate::meta_link::{PlatformBond, PlatformLink, PlatformTable};

section! {
    /// A network as a list of specs.
    pub struct PlatformNetwork [check_network] {
        Acted "addresses" addresses: Vec<PlatformAddress> = "Addresses of links";
        Acted "links" links: Vec<PlatformLink> = "Links";
        Acted "routes" routes: Vec<PlatformRoute> = "Routes";
        Acted "hostnames" hostnames: Vec<PlatformHostname> = "Host names of the machine; the first one counts";
        Acted "resolvers" resolvers: Vec<PlatformResolver> = "Name servers";
        Acted "timeServers" time_servers: Vec<PlatformTimeServer> = "Time servers";
        Acted "operators" operators: Vec<PlatformOperator> = "Links with DHCP";
        Later "externalIPs" external: Option<Object> = "Addresses that a NAT translates to the machine's";
        Later "probes" probes: Option<Object> = "Probes of the network";
        Held "metadata" metadata: Option<Object> = "Metadata of the machine from the platform";
    }
}

fn check_network(network: &PlatformNetwork, node: &Node, reader: &mut Reader<'_>) {
    network.size().check(node, reader);
    let mut seen = BTreeSet::new();
    for link in &network.links {
        if !link.name.is_empty() && !seen.insert(&link.name) {
            reader.wrong_in(node, "links", &format!("has {} twice", link.name));
        }
    }
}

impl PlatformNetwork {
    /// Parses the value in META; an empty value is valid.
    ///
    /// # Errors
    /// All problems of the value.
    pub fn from_meta(bytes: &[u8]) -> Result<PlatformNetwork, Problems> {
        let mut notes = Notes::default();
        let node = only(bytes, &mut notes)?;
        let mut reader = Reader::new(&mut notes, false);
        let network = node.and_then(|node| read_section(&node, &[], &mut reader));
        notes.into_result(network.unwrap_or_default())
    }

    fn size(&self) -> Size<'_> {
        let of_resolvers = |of: fn(&PlatformResolver) -> usize| {
            let counts = self.resolvers.iter().map(of);
            counts.sum::<usize>()
        };
        let of_bonds = |of: fn(&PlatformBond) -> usize| {
            let bonds = self
                .links
                .iter()
                .filter_map(|link| link.bond_master.as_ref());
            bonds.map(of).sum::<usize>()
        };
        let time_servers = self.time_servers.iter().map(|one| one.time_servers.len());
        let counts = vec![
            ("addresses", self.addresses.len()),
            ("links", self.links.len()),
            ("routes", self.routes.len()),
            ("operators", self.operators.len()),
            ("hostnames", self.hostnames.len()),
            ("resolvers", self.resolvers.len()),
            ("name servers", of_resolvers(|one| one.dns_servers.len())),
            (
                "search domains",
                of_resolvers(|one| one.search_domains.len()),
            ),
            ("lists of time servers", self.time_servers.len()),
            ("time servers", time_servers.sum()),
            (
                "targets of ARP probes",
                of_bonds(|bond| bond.arp_ip_targets.len()),
            ),
            (
                "targets of neighbour solicitations",
                of_bonds(|bond| bond.ns_ip6_targets.len()),
            ),
        ];
        let needs = self.links.iter().map(|link| (&*link.name, link.needs()));
        let needs = needs.collect();
        Size { counts, needs }
    }
}

choices! {
    /// Scope of an address or a route.
    pub enum PlatformScope { Global = "global", Link = "link", Host = "host", }
}

section! {
    /// An address of a link.
    pub struct PlatformAddress [check_address] {
        Acted "address" address: Cidr = "Address with the prefix of its network", required;
        Acted "linkName" link: LinkName = "Name of the link, or an alternative name", required;
        Acted "scope" scope: PlatformScope = "Scope of the address";
        Acted "priority" priority: u32 = "Metric of the route to its network";
        Held "family" family: String = "Derived from the address";
        Held "flags" flags: String = "Set by the kernel";
        Held "layer" layer: String = "Always `platform`";
        Acted "announceWithARP" announces: bool = "Whether the address is announced by ARP; not supported yet";
    }
}

fn check_address(address: &PlatformAddress, node: &Node, reader: &mut Reader<'_>) {
    if address.announces {
        reader.wrong_in(
            node,
            "announceWithARP",
            "is not supported yet; leave it out",
        );
    }
}

choices! {
    /// Type of a route.
    pub enum PlatformRouteKind { Unicast = "unicast", Blackhole = "blackhole", }
}

section! {
    /// A route.
    pub struct PlatformRoute [check_route] {
        Acted "dst" destination: Option<Cidr> = "Destination network; absent: the default route";
        Acted "gateway" gateway: Option<IpAddr> = "Address of the gateway";
        Acted "outLinkName" link: LinkName = "Outgoing link";
        Acted "src" source: Option<IpAddr> = "Source address";
        Acted "table" table: Option<PlatformTable> = "Routing table; absent: the main one";
        Acted "priority" priority: Option<u32> = "Metric; a lower one is preferred";
        Acted "type" kind: PlatformRouteKind = "Type of the route";
        Acted "mtu" mtu: u32 = "MTU in bytes; 0: that of the link";
        Held "family" family: String = "Derived from the addresses";
        Held "scope" scope: String = "Derived from the gateway";
        Held "flags" flags: String = "Set by the kernel";
        Held "protocol" protocol: String = "Always `static`";
        Held "layer" layer: String = "Always `platform`";
        Later "nextHops" next_hops: Option<Object> = "Routes with several gateways";
    }
}

fn check_route(route: &PlatformRoute, node: &Node, reader: &mut Reader<'_>) {
    if !node.given("dst") && !node.given("gateway") {
        reader.wrong(node.mark, "needs dst or gateway");
    }
    if route.kind == PlatformRouteKind::Unicast && !node.given("outLinkName") {
        reader.wrong_in(node, "outLinkName", "is required");
    }
    LinkRoute::from(route).check(node, reader);
}

impl From<&PlatformRoute> for LinkRoute {
    fn from(route: &PlatformRoute) -> LinkRoute {
        LinkRoute {
            destination: route.destination,
            gateway: route.gateway,
            source: route.source,
            metric: route.priority,
            mtu: Some(route.mtu).filter(|mtu| *mtu != 0),
            table: route.table.map(|table| table.0),
        }
    }
}

section! {
    /// The machine's name.
    pub struct PlatformHostname {
        Acted "hostname" hostname: HostName = "Host name up to the first dot", required;
        Acted "domainname" domainname: Option<HostName> = "Domain of the host name";
        Held "layer" layer: String = "Always `platform`";
    }
}

section! {
    /// Name servers.
    pub struct PlatformResolver {
        Acted "dnsServers" dns_servers: Vec<IpAddr> = "Name servers in order of preference";
        Acted "searchDomains" search_domains: Vec<HostName> = "Search domains for short names";
        Acted "searchDomainsOverridden" no_own_domain: bool = "Whether the domain of the machine's own name is not searched";
        Held "nameServers" name_servers: Option<Object> = "Same content as `dnsServers`";
        Held "layer" layer: String = "Always `platform`";
    }
}

section! {
    /// Time servers.
    pub struct PlatformTimeServer [check_time_server] {
        Acted "timeServers" time_servers: Vec<HostOrAddress> = "Time servers, as names or addresses";
        Acted "useNTS" uses_nts: bool = "Whether responses must be authenticated (NTS); not supported yet";
        Held "layer" layer: String = "Always `platform`";
    }
}

fn check_time_server(servers: &PlatformTimeServer, node: &Node, reader: &mut Reader<'_>) {
    if servers.uses_nts {
        reader.wrong_in(node, "useNTS", "is not supported yet; leave it out");
    }
}

choices! {
    /// Protocol of an address request.
    pub enum PlatformOperatorKind { Dhcp4 = "dhcp4", Dhcp6 = "dhcp6", }
}

section! {
    /// A link with a DHCP client.
    pub struct PlatformOperator {
        Acted "operator" kind: PlatformOperatorKind = "Protocol", required;
        Acted "linkName" link: LinkName = "Name of the link, or an alternative name", required;
        Acted "dhcp4" dhcp4: PlatformDhcp = "Settings of DHCPv4";
        Acted "dhcp6" dhcp6: PlatformDhcp = "Settings of DHCPv6";
        Held "requireUp" require_up: bool = "Whether to wait for the carrier; the node always does";
        Held "layer" layer: String = "Always `platform`";
    }
}

section! {
    /// Settings of a DHCP client.
    pub struct PlatformDhcp {
        Acted "routeMetric" route_metric: Option<u32> = "Metric of the offered routes";
        Acted "skipHostnameRequest" skip_hostname: bool = "Whether the offered host name is ignored";
        Acted "skipRoutes" skip_routes: bool = "Whether the offered routes are ignored";
        Acted "clientIdentifier" identifier: PlatformIdentifier = "Identity of the machine for the DHCP server";
    }
}

section! {
    /// Identity of the machine for the DHCP server.
    pub struct PlatformIdentifier [check_identifier] {
        Acted "clientIdentifier" kind: Option<ClientIdentifier> = "Type of the identifier";
        Acted "duidRawHex" duid: Option<String> = "DUID in hexadecimal";
    }
}

fn check_identifier(identifier: &PlatformIdentifier, node: &Node, reader: &mut Reader<'_>) {
    let duid = ("duidRawHex", identifier.duid.as_deref());
    check_duid(identifier.kind, duid, node, reader);
}

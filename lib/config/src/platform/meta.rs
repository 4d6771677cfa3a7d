//! The network in META 0x0a: specs of the layer `platform`, in the reference's form, whose fields are those of
//! the resources (`cortenctl get addressspecs -o yaml` shows some).

use std::net::IpAddr;

use super::{MOST, only};
use crate::kinds::{
    AdLacpActive, AdSelect, ArpAllTargets, ArpValidate, BondConfig, BondMode, ClientIdentifier,
    FailOverMac, LacpRate, PrimaryReselect, VlanMode, XmitHashPolicy,
};
use crate::problem::{Notes, Problems};
use crate::read::{Reader, Value, choices, read_section, scalar, section};
use crate::table::Shape;
use crate::tree::Node;
use crate::values::{Cidr, HostName, HostOrAddress, LinkName, Mac, Object};

section! {
    /// A network as its specs.
    pub struct PlatformNetwork [check_network] {
        Acted "addresses" addresses: Vec<PlatformAddress> = "Addresses of links";
        Acted "links" links: Vec<PlatformLink> = "Links";
        Acted "routes" routes: Vec<PlatformRoute> = "Routes";
        Acted "hostnames" hostnames: Vec<PlatformHostname> = "The machine's name: the first";
        Acted "resolvers" resolvers: Vec<PlatformResolver> = "Name servers";
        Acted "timeServers" time_servers: Vec<PlatformTimeServer> = "Time servers";
        Acted "operators" operators: Vec<PlatformOperator> = "Links that ask for addresses";
        Later "externalIPs" external: Option<Object> = "Addresses that somebody else translates to the machine's";
        Later "probes" probes: Option<Object> = "What shows that the network works";
        Held "metadata" metadata: Option<Object> = "What the platform says of the machine";
    }
}

fn check_network(network: &PlatformNetwork, node: &Node, reader: &mut Reader<'_>) {
    for (field, count) in [
        ("addresses", network.addresses.len()),
        ("links", network.links.len()),
        ("routes", network.routes.len()),
        ("operators", network.operators.len()),
    ] {
        if count > MOST {
            reader.wrong_in(node, field, &format!("must be at most {MOST}"));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for link in &network.links {
        if !link.name.is_empty() && !seen.insert(&link.name) {
            reader.wrong_in(node, "links", &format!("has {} twice", link.name));
        }
    }
}

impl PlatformNetwork {
    /// Reads what META has. An empty value says nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_meta(bytes: &[u8]) -> Result<PlatformNetwork, Problems> {
        let mut notes = Notes::default();
        let node = only(bytes, &mut notes)?;
        let mut reader = Reader::new(&mut notes, false);
        let network = node.and_then(|node| read_section(&node, &[], &mut reader));
        notes.into_result(network.unwrap_or_default())
    }
}

choices! {
    /// Where an address or a route counts.
    pub enum PlatformScope { Global = "global", Link = "link", Host = "host", }
}

section! {
    /// An address of a link.
    pub struct PlatformAddress [check_address] {
        Acted "address" address: Cidr = "The address and its network's prefix", required;
        Acted "linkName" link: LinkName = "The link's name or another one of it", required;
        Acted "scope" scope: PlatformScope = "Where it counts";
        Acted "priority" priority: u32 = "Metric of the route to its network";
        Held "family" family: String = "Follows from the address";
        Held "flags" flags: String = "Those the kernel gives it";
        Held "layer" layer: String = "It is `platform`";
        Acted "announceWithARP" announces: bool = "Tell the neighbours: not supported yet";
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
    /// What a link that is made is.
    pub enum PlatformLinkKind {
        Bond = "bond", Bridge = "bridge", Dummy = "dummy", Vlan = "vlan", Vrf = "vrf",
    }
}

section! {
    /// A link.
    pub struct PlatformLink [check_link] {
        Acted "name" name: LinkName = "Its name; of a card also another one of it", required;
        Acted "logical" logical: bool = "Whether the node makes it";
        Acted "up" up: Option<bool> = "Whether it is up; absent: yes";
        Acted "mtu" mtu: u32 = "Bytes of the largest packet; 0: as it is";
        Acted "kind" kind: Option<PlatformLinkKind> = "Of one that the node makes";
        Acted "hardwareAddr" hardware_addr: Option<Mac> = "The address to give it";
        Acted "multicast" multicast: Option<bool> = "Whether it takes multicast packets";
        Acted "parentName" parent: Option<LinkName> = "The link a VLAN is on";
        Acted "masterName" bond_name: Option<LinkName> = "The bond it is part of";
        Acted "bridgeSlave" bridge: Option<PlatformMaster> = "The bridge it is part of";
        Acted "vrfSlave" vrf: Option<PlatformMaster> = "The VRF it is part of";
        Acted "vlan" vlan: Option<PlatformVlan> = "Of a VLAN";
        Acted "bondMaster" bond_master: Option<PlatformBond> = "Of a bond";
        Acted "bridgeMaster" bridge_master: Option<PlatformBridge> = "Of a bridge";
        Acted "vrfMaster" vrf_master: Option<PlatformVrf> = "Of a VRF";
        Later "wireguard" wireguard: Option<Object> = "Of a tunnel";
        Later "veth" veth: Option<Object> = "Of one end of a pair";
        Held "type" link_type: String = "Of its hardware";
        Held "slaveIndex" slave_index: u32 = "Its place in a bond";
        Held "layer" layer: String = "It is `platform`";
    }
}

fn check_link(link: &PlatformLink, node: &Node, reader: &mut Reader<'_>) {
    if link.mtu != 0 && !(68..=65536).contains(&link.mtu) {
        reader.wrong_in(node, "mtu", "must be from 68 to 65536, or 0");
    }
    if link.logical != node.get("kind").is_some_and(|kind| !kind.is_empty()) {
        reader.wrong_in(node, "kind", "stands with logical: true, and only there");
    }
    match link.kind {
        Some(PlatformLinkKind::Vlan) => {
            if link.parent.is_none() {
                reader.wrong_in(node, "parentName", "is required for a VLAN");
            }
            if node.get("vlan").is_none() {
                reader.wrong_in(node, "vlan", "is required for a VLAN");
            }
        }
        Some(PlatformLinkKind::Vrf) if node.get("vrfMaster").is_none() => {
            reader.wrong_in(node, "vrfMaster", "is required for a VRF");
        }
        _ => {}
    }
    let masters = [
        link.bond_name.is_some(),
        link.bridge.is_some(),
        link.vrf.is_some(),
    ];
    if masters.into_iter().filter(|is_part| *is_part).count() > 1 {
        reader.wrong(node.mark, "can be part of one bond, bridge or VRF only");
    }
}

section! {
    /// The link that another is part of.
    pub struct PlatformMaster {
        Acted "masterName" name: LinkName = "Its name", required;
    }
}

section! {
    /// A VLAN's number and protocol.
    pub struct PlatformVlan [check_vlan] {
        Acted "vlanID" id: u16 = "1 to 4094";
        Acted "vlanProtocol" protocol: VlanMode = "The protocol";
    }
}

fn check_vlan(vlan: &PlatformVlan, node: &Node, reader: &mut Reader<'_>) {
    super::cloud::check_vlan(Some(vlan.id), "vlanID", node, reader);
}

section! {
    /// A bond's settings.
    pub struct PlatformBond {
        Acted "mode" mode: BondMode = "How the links share the work";
        Acted "miimon" miimon: Option<u32> = "Milliseconds between looks at the carrier";
        Acted "updelay" updelay: Option<u32> = "Milliseconds until a link counts as up";
        Acted "downdelay" downdelay: Option<u32> = "Milliseconds until a link counts as down";
        Acted "useCarrier" use_carrier: Option<bool> = "Ask the driver for the carrier";
        Acted "xmitHashPolicy" xmit_hash_policy: Option<XmitHashPolicy> = "What picks the link of a packet";
        Acted "arpInterval" arp_interval: Option<u32> = "Milliseconds between ARP probes";
        Acted "arpIpTargets" arp_ip_targets: Vec<IpAddr> = "Probed by ARP";
        Acted "nsIp6Targets" ns_ip6_targets: Vec<IpAddr> = "Probed by neighbour solicitation";
        Acted "arpValidate" arp_validate: Option<ArpValidate> = "Which ARP packets count";
        Acted "arpAllTargets" arp_all_targets: Option<ArpAllTargets> = "How many targets must answer";
        Acted "lacpRate" lacp_rate: Option<LacpRate> = "How often LACP speaks";
        Acted "failOverMac" fail_over_mac: Option<FailOverMac> = "Whose hardware address is used";
        Acted "adSelect" ad_select: Option<AdSelect> = "How an aggregator is chosen";
        Acted "adActorSysPrio" ad_actor_sys_prio: Option<u16> = "LACP system priority";
        Acted "adUserPortKey" ad_user_port_key: Option<u16> = "LACP port key";
        Acted "adLacpActive" ad_lacp_active: Option<AdLacpActive> = "Whether LACP speaks first";
        Acted "primary" primary: Option<LinkName> = "The preferred link";
        Acted "primaryReselect" primary_reselect: Option<PrimaryReselect> = "When it takes over again";
        Acted "resendIgmp" resend_igmp: Option<u32> = "IGMP reports after a failover";
        Acted "minLinks" min_links: Option<u32> = "Fewer links are no carrier";
        Acted "lpInterval" lp_interval: Option<u32> = "Seconds between learning packets";
        Acted "packetsPerSlave" packets_per_slave: Option<u32> = "Packets before the next link";
        Acted "numPeerNotif" num_peer_notif: Option<u8> = "Notifications after a failover";
        Acted "tlbLogicalLb" tlb_logical_lb: Option<u8> = "Rebalance flows";
        Acted "allSlavesActive" all_slaves_active: Option<u8> = "Take packets from idle links";
        Acted "peerNotifyDelay" peer_notif_delay: Option<u32> = "Milliseconds between notifications";
        Acted "missedMax" missed_max: Option<u8> = "Probes missed until a link is down";
        Later "primaryIndex" primary_index: Option<u32> = "The preferred link's number; give `primary`";
    }
}

impl PlatformBond {
    /// The same as the machine config has it.
    #[must_use]
    pub fn config(&self) -> BondConfig {
        let bond = self.clone();
        BondConfig {
            mode: bond.mode,
            miimon: bond.miimon,
            updelay: bond.updelay,
            downdelay: bond.downdelay,
            use_carrier: bond.use_carrier,
            xmit_hash_policy: bond.xmit_hash_policy,
            arp_interval: bond.arp_interval,
            arp_ip_targets: bond.arp_ip_targets,
            ns_ip6_targets: bond.ns_ip6_targets,
            arp_validate: bond.arp_validate,
            arp_all_targets: bond.arp_all_targets,
            lacp_rate: bond.lacp_rate,
            fail_over_mac: bond.fail_over_mac,
            ad_select: bond.ad_select,
            ad_actor_sys_prio: bond.ad_actor_sys_prio,
            ad_user_port_key: bond.ad_user_port_key,
            ad_lacp_active: bond.ad_lacp_active,
            primary: bond.primary,
            primary_reselect: bond.primary_reselect,
            resend_igmp: bond.resend_igmp,
            min_links: bond.min_links,
            lp_interval: bond.lp_interval,
            packets_per_slave: bond.packets_per_slave,
            num_peer_notif: bond.num_peer_notif,
            tlb_logical_lb: bond.tlb_logical_lb,
            all_slaves_active: bond.all_slaves_active,
            peer_notif_delay: bond.peer_notif_delay,
            missed_max: bond.missed_max,
            ..BondConfig::default()
        }
    }
}

section! {
    /// A bridge's settings.
    pub struct PlatformBridge {
        Acted "stp" stp: PlatformStp = "The spanning tree protocol";
        Acted "vlan" vlan: PlatformFiltering = "Its VLANs";
    }
}

section! {
    /// The spanning tree protocol.
    pub struct PlatformStp {
        Acted "enabled" enabled: bool = "Use it";
    }
}

section! {
    /// VLANs of a bridge.
    pub struct PlatformFiltering {
        Acted "filteringEnabled" enabled: bool = "Keep VLANs apart";
    }
}

section! {
    /// A VRF's settings.
    pub struct PlatformVrf {
        Acted "table" table: PlatformTable = "Its routing table", required;
    }
}

/// A routing table, by the name the kernel's tools have for it or by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlatformTable(pub u32);

impl Value for PlatformTable {
    const SHAPE: Shape = Shape::Text("main, default, local or a number");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(
            node,
            reader,
            "main, default, local or a number",
            |text| match text {
                "default" => Some(PlatformTable(253)),
                "main" => Some(PlatformTable(254)),
                "local" => Some(PlatformTable(255)),
                number => number.parse().ok().map(PlatformTable),
            },
        )
    }
}

choices! {
    /// What a route does.
    pub enum PlatformRouteKind { Unicast = "unicast", Blackhole = "blackhole", }
}

section! {
    /// A route.
    pub struct PlatformRoute [check_route] {
        Acted "dst" destination: Option<Cidr> = "Where it leads; absent: everywhere";
        Acted "gateway" gateway: Option<IpAddr> = "Through whom";
        Acted "outLinkName" link: LinkName = "Through which link";
        Acted "src" source: Option<IpAddr> = "From which address";
        Acted "table" table: Option<PlatformTable> = "Routing table; absent: the main one";
        Acted "priority" priority: Option<u32> = "Lower wins";
        Acted "type" kind: PlatformRouteKind = "What it does";
        Acted "mtu" mtu: u32 = "Bytes of the largest packet; 0: the link's";
        Held "family" family: String = "Follows from the addresses";
        Held "scope" scope: String = "Follows from the gateway";
        Held "flags" flags: String = "Those the kernel gives it";
        Held "protocol" protocol: String = "It is `static`";
        Held "layer" layer: String = "It is `platform`";
        Later "nextHops" next_hops: Option<Object> = "Several gateways";
    }
}

fn check_route(route: &PlatformRoute, node: &Node, reader: &mut Reader<'_>) {
    let is_given = |field| node.get(field).is_some_and(|value| !value.is_empty());
    if !is_given("dst") && !is_given("gateway") {
        reader.wrong(node.mark, "needs dst or gateway");
    }
    if route.kind == PlatformRouteKind::Unicast && !is_given("outLinkName") {
        reader.wrong_in(node, "outLinkName", "is required");
    }
    let destination = route.destination.map(|cidr| cidr.address);
    let given = [destination, route.gateway, route.source];
    let mut families = given.iter().flatten().map(IpAddr::is_ipv4);
    let first = families.next();
    if !families.all(|family| Some(family) == first) {
        reader.wrong(node.mark, "mixes IPv4 and IPv6");
    }
}

section! {
    /// The machine's name.
    pub struct PlatformHostname {
        Acted "hostname" hostname: HostName = "Up to the first dot", required;
        Acted "domainname" domainname: Option<HostName> = "Behind it";
        Held "layer" layer: String = "It is `platform`";
    }
}

section! {
    /// Name servers.
    pub struct PlatformResolver {
        Acted "dnsServers" dns_servers: Vec<IpAddr> = "Name servers, the first asked first";
        Acted "searchDomains" search_domains: Vec<HostName> = "Domains to try behind short names";
        Acted "searchDomainsOverridden" no_own_domain: bool = "Do not try the domain of the machine's own name";
        Held "nameServers" name_servers: Option<Object> = "`dnsServers` again";
        Held "layer" layer: String = "It is `platform`";
    }
}

section! {
    /// Time servers.
    pub struct PlatformTimeServer [check_time_server] {
        Acted "timeServers" time_servers: Vec<HostOrAddress> = "Names or addresses";
        Acted "useNTS" uses_nts: bool = "Ask them so that nobody can forge the answer: not supported yet";
        Held "layer" layer: String = "It is `platform`";
    }
}

fn check_time_server(servers: &PlatformTimeServer, node: &Node, reader: &mut Reader<'_>) {
    if servers.uses_nts {
        reader.wrong_in(node, "useNTS", "is not supported yet; leave it out");
    }
}

choices! {
    /// By what a link asks for addresses.
    pub enum PlatformOperatorKind { Dhcp4 = "dhcp4", Dhcp6 = "dhcp6", }
}

section! {
    /// A link that asks for addresses.
    pub struct PlatformOperator {
        Acted "operator" kind: PlatformOperatorKind = "By what", required;
        Acted "linkName" link: LinkName = "The link's name or another one of it", required;
        Acted "dhcp4" dhcp4: PlatformDhcp = "How, by DHCPv4";
        Acted "dhcp6" dhcp6: PlatformDhcp = "How, by DHCPv6";
        Held "requireUp" require_up: bool = "Wait for the carrier: it always does";
        Held "layer" layer: String = "It is `platform`";
    }
}

section! {
    /// How a link asks for addresses.
    pub struct PlatformDhcp {
        Acted "routeMetric" route_metric: Option<u32> = "Metric of the routes it is given";
        Acted "skipHostnameRequest" skip_hostname: bool = "Leave the name it is given";
        Acted "skipRoutes" skip_routes: bool = "Leave the routes it is given";
        Acted "clientIdentifier" identifier: PlatformIdentifier = "Who the machine says it is";
    }
}

section! {
    /// Who a machine says it is.
    pub struct PlatformIdentifier [check_identifier] {
        Acted "clientIdentifier" kind: Option<ClientIdentifier> = "By what";
        Acted "duidRawHex" duid: String = "The DUID in hexadecimal";
    }
}

fn check_identifier(identifier: &PlatformIdentifier, node: &Node, reader: &mut Reader<'_>) {
    let is_hex = identifier.duid.chars().all(|c| c.is_ascii_hexdigit());
    // RFC 8415, section 11.1: 2 bytes of type and at most 128 more.
    if !is_hex || !identifier.duid.len().is_multiple_of(2) || identifier.duid.len() > 260 {
        let what = "must be pairs of hexadecimal digits, at most 130";
        reader.wrong_in(node, "duidRawHex", what);
    }
}

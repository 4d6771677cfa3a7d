//! Links: the kernel's network devices.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use corten_values::{Cidr, Expression, LinkAlias, LinkFacts, LinkName, Mac, Subject};
use corten_yaml::problem::printable;
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use super::BondNames;

section! {
    /// Settings of every kind of link.
    pub struct Link [check_link] {
        Acted "up" up: Option<bool> = "Whether the link is up; absent: yes";
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
        Acted "addresses" addresses: Vec<LinkAddress> = "Addresses";
        Acted "routes" routes: Vec<LinkRoute> = "Routes through the link";
        Acted "multicast" multicast: Option<bool> = "Whether the link receives multicast packets";
    }
}

fn check_link(link: &Link, node: &Node, reader: &mut Reader<'_>) {
    check_mtu(link.mtu, node, reader);
    check_routes_fit(link.mtu, node, reader);
    let mut seen = std::collections::HashSet::new();
    if link
        .addresses
        .iter()
        .any(|address| !seen.insert(address.address))
    {
        reader.wrong_in(node, "addresses", "has one address twice");
    }
}

/// Valid MTUs of a link, in bytes (RFC 791: every host must accept 68).
const MTU: RangeInclusive<u32> = 68..=65536;
/// Valid MTUs of a route, in bytes: at most the length field of the header; for IPv6 at least the minimum of every link
/// (RFC 8200, section 5).
const ROUTE_MTU_IPV4: RangeInclusive<u32> = 68..=65535;
const ROUTE_MTU_IPV6: RangeInclusive<u32> = 1280..=65535;

/// Reports an invalid MTU.
pub fn check_mtu(mtu: Option<u32>, node: &Node, reader: &mut Reader<'_>) {
    check_number("mtu", mtu, MTU, node, reader);
}

/// Reports a number out of bounds.
pub fn check_number(
    field: &str,
    number: Option<u32>,
    bounds: RangeInclusive<u32>,
    node: &Node,
    reader: &mut Reader<'_>,
) {
    if number.is_some_and(|number| !bounds.contains(&number)) {
        let (least, most) = bounds.into_inner();
        reader.wrong_in(node, field, &format!("must be from {least} to {most}"));
    }
}

/// Reports `routes` of a link with an MTU above the link's own.
pub fn check_routes_fit(mtu: Option<u32>, node: &Node, reader: &mut Reader<'_>) {
    // An invalid MTU was reported already.
    let Some(mtu) = mtu.filter(|mtu| MTU.contains(mtu)) else {
        return;
    };
    let routes = node.get("routes").map(Node::items).unwrap_or_default();
    for (index, route) in routes.iter().enumerate() {
        let given = route.get("mtu").and_then(Node::text);
        let given = given.and_then(|text| text.parse::<u32>().ok());
        if given.is_some_and(|given| given > mtu) {
            let what = format!("must not be above the link's own, {mtu}");
            reader.within(&format!("routes[{index}]"), |reader| {
                reader.wrong_in(route, "mtu", &what);
            });
        }
    }
}

section! {
    /// An address of a link.
    pub struct LinkAddress {
        Acted "address" address: Cidr = "Address with the prefix of its network", required;
        Acted "routePriority" route_priority: Option<u32> = "Metric of the route to that network";
    }
}

section! {
    /// A route through a link.
    pub struct LinkRoute [check_route] {
        Acted "destination" destination: Option<Cidr> = "Destination network; absent: the default route";
        Acted "gateway" gateway: Option<IpAddr> = "Address of the gateway";
        Acted "source" source: Option<IpAddr> = "Source address";
        Acted "metric" metric: Option<u32> = "Metric; a lower one is preferred";
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
        Acted "table" table: Option<u32> = "Routing table; absent: the main one";
    }
}

fn check_route(route: &LinkRoute, node: &Node, reader: &mut Reader<'_>) {
    if route.destination.is_none() && route.gateway.is_none() {
        reader.wrong(node.mark, "needs destination or gateway");
    }
    route.check(node, reader);
}

impl LinkRoute {
    /// Reports mixed address families, or an MTU that its family does not have.
    pub fn check(&self, node: &Node, reader: &mut Reader<'_>) {
        let destination = self.destination.map(|cidr| cidr.address);
        let given = [destination, self.gateway, self.source];
        let mut families = given.iter().flatten().map(IpAddr::is_ipv4);
        let first = families.next();
        if !families.all(|family| Some(family) == first) {
            reader.wrong(node.mark, "mixes IPv4 and IPv6");
        }
        let bounds = match first {
            Some(false) => ROUTE_MTU_IPV6,
            Some(true) | None => ROUTE_MTU_IPV4,
        };
        check_number("mtu", self.mtu, bounds, node, reader);
    }
}

section! {
    /// A physical link.
    pub struct LinkConfig {
        Acted "name" name: LinkName = "Name or alias of the link", required;
        .. link: Link = "Settings of every kind of link";
    }
}

section! {
    /// An alias of a physical link, for references in other documents.
    pub struct LinkAliasConfig [check_link_alias] {
        Acted "name" name: LinkAlias = "Alias; a final `%d` stands for numbers from 0, one per link in the order of the hardware addresses", required;
        Acted "selector" selector: Selector = "Selector of the links; with `%d`, a link with an alias of an earlier document is left out", required;
    }
}

fn check_link_alias(config: &LinkAliasConfig, node: &Node, reader: &mut Reader<'_>) {
    check_selector::<LinkFacts>(&config.selector, "a link", (node, "selector"), reader);
}

/// Reports a selector expression that can never match; an absent one is accepted.
pub(super) fn check_selector<S: Subject>(
    selector: &Selector,
    what: &str,
    (node, field): (&Node, &str),
    reader: &mut Reader<'_>,
) {
    let expression = &selector.expression;
    if expression.is_empty() {
        return;
    }
    if let Err(why) = expression.check::<S>() {
        let what = format!("cannot choose {what}: {}", printable(&why));
        reader.wrong_in(node, field, &what);
    }
}

section! {
    /// Selection by an expression.
    pub struct Selector {
        Acted "match" expression: Expression = "Expression that is true for the selected objects", required;
    }
}

section! {
    /// A dummy link: it has addresses and sends nothing.
    pub struct DummyLinkConfig {
        Acted "name" name: LinkName = "Name of the link", required;
        Acted "hardwareAddr" hardware_addr: Option<Mac> = "Hardware address";
        .. link: Link = "Settings of every kind of link";
    }
}

choices! {
    /// Mode of a bond.
    pub enum BondMode {
        BalanceRr = "balance-rr", ActiveBackup = "active-backup", BalanceXor = "balance-xor",
        Broadcast = "broadcast", Lacp = "802.3ad", BalanceTlb = "balance-tlb", BalanceAlb = "balance-alb",
    }
}
choices! {
    /// Hash that selects the link of a packet.
    pub enum XmitHashPolicy {
        Layer2 = "layer2", Layer34 = "layer3+4", Layer23 = "layer2+3", Encap23 = "encap2+3",
        Encap34 = "encap3+4", VlanSrcMac = "vlan+srcmac",
    }
}
choices! {
    /// Rate of LACP packets.
    pub enum LacpRate { Slow = "slow", Fast = "fast", }
}
choices! {
    /// ARP packets that a bond validates.
    pub enum ArpValidate {
        None = "none", Active = "active", Backup = "backup", All = "all", Filter = "filter",
        FilterActive = "filter_active", FilterBackup = "filter_backup",
    }
}
choices! {
    /// Number of ARP targets that must answer.
    pub enum ArpAllTargets { Any = "any", All = "all", }
}
choices! {
    /// Hardware address of a bond.
    pub enum FailOverMac { None = "none", Active = "active", Follow = "follow", }
}
choices! {
    /// Selection of an aggregator.
    pub enum AdSelect { Stable = "stable", Bandwidth = "bandwidth", Count = "count", }
}
choices! {
    /// Condition for the primary link to take over again.
    pub enum PrimaryReselect { Always = "always", Better = "better", Failure = "failure", }
}
choices! {
    /// Whether LACP sends packets first.
    pub enum AdLacpActive { On = "on", Off = "off", }
}

section! {
    /// A bond: several links that act as one.
    pub struct BondConfig [check_bond] {
        Acted "name" name: LinkName = "Name of the bond", required;
        Acted "hardwareAddr" hardware_addr: Option<Mac> = "Hardware address";
        Acted "links" links: Vec<LinkName> = "Links of the bond", required;
        Acted "bondMode" mode: BondMode = "Mode of the bond", required;
        Acted "miimon" miimon: Option<u32> = "Interval of carrier checks in milliseconds";
        Acted "updelay" updelay: Option<u32> = "Delay in milliseconds before a link counts as up";
        Acted "downdelay" downdelay: Option<u32> = "Delay in milliseconds before a link counts as down";
        Acted "useCarrier" use_carrier: Option<bool> = "Whether the driver reports the carrier";
        Acted "xmitHashPolicy" xmit_hash_policy: Option<XmitHashPolicy> = "Packet fields whose hash selects the link";
        Acted "arpInterval" arp_interval: Option<u32> = "Interval of ARP probes in milliseconds";
        Acted "arpIpTargets" arp_ip_targets: Vec<IpAddr> = "Targets of ARP probes";
        Acted "nsIp6Targets" ns_ip6_targets: Vec<IpAddr> = "Targets of neighbour solicitations";
        Acted "arpValidate" arp_validate: Option<ArpValidate> = "ARP packets that are validated";
        Acted "arpAllTargets" arp_all_targets: Option<ArpAllTargets> = "Number of targets that must answer";
        Acted "lacpRate" lacp_rate: Option<LacpRate> = "Rate of LACP packets";
        Acted "failOverMac" fail_over_mac: Option<FailOverMac> = "Policy for the hardware address of the bond";
        Acted "adSelect" ad_select: Option<AdSelect> = "Selection of the aggregator";
        Acted "adActorSysPrio" ad_actor_sys_prio: Option<u16> = "LACP system priority";
        Acted "adUserPortKey" ad_user_port_key: Option<u16> = "LACP port key";
        Acted "adLACPActive" ad_lacp_active: Option<AdLacpActive> = "Whether LACP sends the first packet";
        Acted "primary" primary: Option<LinkName> = "Preferred link";
        Acted "primaryReselect" primary_reselect: Option<PrimaryReselect> = "Condition for the preferred link to become active again";
        Acted "resendIGMP" resend_igmp: Option<u32> = "Number of IGMP reports after a failover";
        Acted "minLinks" min_links: Option<u32> = "Minimum number of active links for a carrier";
        Acted "lpInterval" lp_interval: Option<u32> = "Interval of learning packets in seconds";
        Acted "packetsPerSlave" packets_per_slave: Option<u32> = "Number of packets on a link before the next link is used";
        Acted "numPeerNotif" num_peer_notif: Option<u8> = "Number of peer notifications after a failover";
        Acted "tlbLogicalLb" tlb_logical_lb: Option<u8> = "Whether flows are rebalanced: 0 or 1";
        Acted "allSlavesActive" all_slaves_active: Option<u8> = "Whether packets from inactive links are accepted: 0 or 1";
        Acted "peerNotifDelay" peer_notif_delay: Option<u32> = "Interval of peer notifications in milliseconds";
        Acted "missedMax" missed_max: Option<u8> = "Number of missed probes after which a link counts as down";
        .. link: Link = "Settings of every kind of link";
    }
}

/// Range of an `int` in the kernel, without negative numbers.
const INT: RangeInclusive<u32> = 0..=0x7fff_ffff;
/// Limit of targets per kind in the kernel (`BOND_MAX_ARP_TARGETS`).
const MOST_TARGETS: usize = 16;

impl BondConfig {
    /// Reports settings that the kernel refuses (kernel: `bond_opts` in drivers/net/bonding/bond_options.c). Settings
    /// without an effect in the bond's mode are ignored; the kernel does not get them.
    pub fn check_settings(&self, names: &BondNames, node: &Node, reader: &mut Reader<'_>) {
        self.check_monitoring(names, node, reader);
        for (field, number, bounds) in [
            (names.miimon, self.miimon, INT),
            (names.updelay, self.updelay, INT),
            (names.downdelay, self.downdelay, INT),
            (names.arp_interval, self.arp_interval, INT),
            (names.resend_igmp, self.resend_igmp, 0..=255),
            (names.min_links, self.min_links, INT),
            (names.lp_interval, self.lp_interval, 1..=0x7fff_ffff),
            (names.packets_per_slave, self.packets_per_slave, 0..=65535),
            (names.peer_notif_delay, self.peer_notif_delay, 0..=300_000),
        ] {
            check_number(field, number, bounds, node, reader);
        }
        for (field, number, bounds) in [
            (names.tlb_logical_lb, self.tlb_logical_lb, 0..=1),
            ("allSlavesActive", self.all_slaves_active, 0..=1),
            ("missedMax", self.missed_max, 1..=255),
        ] {
            check_number(field, number.map(u32::from), bounds, node, reader);
        }
        for (field, number, bounds) in [
            (names.ad_actor_sys_prio, self.ad_actor_sys_prio, 1..=65535),
            (names.ad_user_port_key, self.ad_user_port_key, 0..=1023),
        ] {
            check_number(field, number.map(u32::from), bounds, node, reader);
        }
    }

    /// Checks the detection of a dead link.
    fn check_monitoring(&self, names: &BondNames, node: &Node, reader: &mut Reader<'_>) {
        let is_on = |ms: Option<u32>| ms.is_some_and(|ms| ms > 0);
        let excludes = format!("excludes {}", names.miimon);
        if is_on(self.miimon) && is_on(self.arp_interval) {
            reader.wrong_in(node, names.arp_interval, &excludes);
        }
        let probes = !matches!(
            self.mode,
            BondMode::Lacp | BondMode::BalanceTlb | BondMode::BalanceAlb
        );
        let validates = self
            .arp_validate
            .is_some_and(|validate| validate != ArpValidate::None);
        if is_on(self.miimon) && probes && validates {
            reader.wrong_in(node, names.arp_validate, &excludes);
        }
        let is_v6: fn(&IpAddr) -> bool = IpAddr::is_ipv6;
        for (field, targets, family, is_other) in [
            (names.arp_ip_targets, &self.arp_ip_targets, "IPv4", is_v6),
            (
                "nsIp6Targets",
                &self.ns_ip6_targets,
                "IPv6",
                IpAddr::is_ipv4,
            ),
        ] {
            if targets.iter().any(is_other) {
                reader.wrong_in(node, field, &format!("takes {family} addresses only"));
            }
            if targets.len() > MOST_TARGETS {
                let what = format!("must have at most {MOST_TARGETS} addresses");
                reader.wrong_in(node, field, &what);
            }
        }
    }
}

fn check_bond(bond: &BondConfig, node: &Node, reader: &mut Reader<'_>) {
    bond.check_settings(&BondNames::OF_CONFIG, node, reader);
    check_primary(bond.primary.as_ref(), &bond.links, "links", node, reader);
}

/// Reports a primary link that is not one of the bond's links, which are in `field`.
pub(crate) fn check_primary(
    primary: Option<&LinkName>,
    links: &[LinkName],
    field: &str,
    node: &Node,
    reader: &mut Reader<'_>,
) {
    if primary.is_some_and(|primary| !links.contains(primary)) {
        reader.wrong_in(node, "primary", &format!("must be one of {field}"));
    }
}

section! {
    /// A bridge: several links that form one network.
    pub struct BridgeConfig {
        Acted "name" name: LinkName = "Name of the bridge", required;
        Acted "hardwareAddr" hardware_addr: Option<Mac> = "Hardware address";
        Acted "links" links: Vec<LinkName> = "Links of the bridge";
        Acted "stp" stp: Stp = "Settings of the spanning tree";
        Acted "vlan" vlan: VlanFiltering = "VLAN settings";
        .. link: Link = "Settings of every kind of link";
    }
}

section! {
    /// Spanning tree.
    pub struct Stp {
        Acted "enabled" enabled: bool = "Whether the spanning tree protocol is used";
    }
}

section! {
    /// VLAN settings of a bridge.
    pub struct VlanFiltering {
        Acted "filtering" filtering: bool = "Whether VLANs are kept apart";
    }
}

choices! {
    /// The protocol of a VLAN.
    pub enum VlanMode { Dot1q = "802.1q", Dot1ad = "802.1ad", }
}

section! {
    /// A VLAN on another link.
    pub struct VLANConfig [check_vlan_config] {
        Acted "name" name: LinkName = "Name of the link", required;
        Acted "vlanID" vlan_id: u16 = "VLAN number, 1 to 4094", required;
        Acted "vlanMode" vlan_mode: VlanMode = "Protocol";
        Acted "parent" parent: LinkName = "Parent link", required;
        .. link: Link = "Settings of every kind of link";
    }
}

fn check_vlan_config(vlan: &VLANConfig, node: &Node, reader: &mut Reader<'_>) {
    // A missing one was reported already.
    if node.given("vlanID") {
        check_vlan(Some(vlan.vlan_id), "vlanID", node, reader);
    }
    if !vlan.parent.is_empty() && vlan.parent == vlan.name {
        reader.wrong_in(node, "parent", "must be another link");
    }
}

/// Reports a missing or invalid VLAN number (IEEE 802.1Q).
pub fn check_vlan(id: Option<u16>, field: &str, node: &Node, reader: &mut Reader<'_>) {
    if id.is_none_or(|id| !(1..=4094).contains(&id)) {
        reader.wrong_in(node, field, "must be from 1 to 4094");
    }
}

section! {
    /// A VRF: links with a routing table of their own.
    pub struct VRFConfig {
        Acted "name" name: LinkName = "Name of the link", required;
        Acted "hardwareAddr" hardware_addr: Option<Mac> = "Hardware address";
        Acted "links" links: Vec<LinkName> = "Links of the VRF";
        Acted "table" table: u32 = "Routing table", required;
        .. link: Link = "Settings of every kind of link";
    }
}

section! {
    /// A veth pair: two links that are joined.
    pub struct VethConfig [check_veth] {
        Acted "name" name: LinkName = "Name of one link", required;
        Acted "peer" peer: VethPeer = "Other link of the pair", required;
        .. link: Link = "Settings of every kind of link";
    }
}

fn check_veth(veth: &VethConfig, node: &Node, reader: &mut Reader<'_>) {
    if !veth.name.is_empty() && veth.peer.name == veth.name {
        reader.wrong_in(node, "peer", "must have another name");
    }
}

section! {
    /// The other end of a pair.
    pub struct VethPeer {
        Acted "name" name: LinkName = "Name of the link", required;
        .. link: Link = "Settings of every kind of link";
    }
}

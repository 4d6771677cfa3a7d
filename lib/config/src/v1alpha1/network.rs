//! `machine.network`: names, resolvers, and links in the old form.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::ExtraHost;
use crate::kinds::{
    BondConfig, BondMode, BondNames, LinkRoute, XmitHashPolicy, check_duid, check_keepalive,
    check_mtu, check_peers, check_primary, check_routes_fit, check_vlan,
};
use crate::read::{Reader, section};
use crate::secret::Secret;
use crate::tree::Node;
use crate::values::{Cidr, HostName, LinkName, Mac, WireguardKey, WireguardSecret};

section! {
    /// `machine.network`.
    pub struct InterfaceNetwork {
        Acted "hostname" hostname: Option<HostName> = "The node's name";
        Acted "interfaces" interfaces: Vec<Interface> = "Links", by(&["interface", "deviceSelector"]);
        Acted "nameservers" nameservers: Vec<IpAddr> = "Asked instead of those the network offers";
        Acted "searchDomains" search_domains: Vec<HostName> = "Tried behind short names";
        Acted "extraHostEntries" extra_host_entries: Vec<ExtraHost> = "Lines of `/etc/hosts`";
        Later "kubespan" kubespan: KubeSpan = "WireGuard mesh between nodes";
        Acted "disableSearchDomain" disable_search_domain: bool = "No search domain from the node's own name";
    }
}

section! {
    /// A link.
    pub struct Interface [check] {
        Acted "interface" interface: Option<LinkName> = "Its name";
        Acted "deviceSelector" device_selector: Option<DeviceSelector> = "What it is like";
        Acted "addresses" addresses: Vec<Cidr> = "Its addresses";
        Acted "cidr" cidr: Option<Cidr> = "Its address, in the oldest form";
        Acted "routes" routes: Vec<LegacyRoute> = "Routes through it";
        Acted "bond" bond: Option<LegacyBond> = "It bonds other links";
        Acted "bridge" bridge: Option<LegacyBridge> = "It bridges other links";
        Acted "bridgePort" bridge_port: Option<BridgePort> = "It belongs to a bridge";
        Acted "vlans" vlans: Vec<LegacyVlan> = "VLANs on it", by(&["vlanId"]);
        Acted "mtu" mtu: Option<u32> = "Bytes of the largest packet";
        Acted "dhcp" dhcp: Option<bool> = "Ask for addresses";
        Acted "ignore" ignore: bool = "Leave it alone";
        Acted "dummy" dummy: bool = "It leads nowhere";
        Acted "dhcpOptions" dhcp_options: DhcpOptions = "Settings of DHCP";
        Acted "wireguard" wireguard: Option<LegacyWireguard> = "It is a WireGuard tunnel";
        Later "vip" vip: Option<Vip> = "An address shared with other nodes";
    }
}

/// The number, unless it is 0, which means the default.
pub(crate) fn asked(number: Option<u32>) -> Option<u32> {
    number.filter(|number| *number != 0)
}

fn check(interface: &Interface, node: &Node, reader: &mut Reader<'_>) {
    check_size(interface.mtu, node, reader);
    if interface.interface.is_some() == interface.device_selector.is_some() {
        reader.wrong(node.mark, "needs either interface or deviceSelector");
    }
    if interface.bond.is_some() && interface.bridge.is_some() {
        reader.wrong_in(node, "bridge", "excludes bond");
    }
    let is_other = interface.dummy || interface.bond.is_some() || interface.bridge.is_some();
    if interface.wireguard.is_some() && (is_other || interface.device_selector.is_some()) {
        let what = "excludes bond, bridge, dummy and deviceSelector";
        reader.wrong_in(node, "wireguard", what);
    }
}

/// Reports an invalid MTU of a link, and MTUs of its routes above it.
fn check_size(mtu: Option<u32>, node: &Node, reader: &mut Reader<'_>) {
    let mtu = asked(mtu);
    check_mtu(mtu, node, reader);
    check_routes_fit(mtu, node, reader);
}

section! {
    /// Patterns that select a physical link.
    pub struct DeviceSelector {
        Acted "busPath" bus_path: Option<String> = "Bus path";
        Acted "hardwareAddr" hardware_addr: Option<String> = "Hardware address";
        Acted "permanentAddr" permanent_addr: Option<String> = "Hardware address it was made with";
        Acted "pciID" pci_id: Option<String> = "PCI vendor and device";
        Acted "driver" driver: Option<String> = "Kernel driver";
        Acted "physical" physical: Option<bool> = "Only links of devices";
    }
}

section! {
    /// A route in the old form.
    pub struct LegacyRoute [check_route] {
        Acted "network" network: Option<Cidr> = "The destination network; absent: the default route";
        Acted "gateway" gateway: Option<IpAddr> = "Through whom";
        Acted "source" source: Option<IpAddr> = "From which address";
        Acted "metric" metric: Option<u32> = "Lower wins";
        Acted "mtu" mtu: Option<u32> = "Bytes of the largest packet";
    }
}

fn check_route(route: &LegacyRoute, node: &Node, reader: &mut Reader<'_>) {
    if route.network.is_none() && route.gateway.is_none() {
        reader.wrong(node.mark, "needs network or gateway");
    }
    LinkRoute::from(route).check(node, reader);
}

impl From<&LegacyRoute> for LinkRoute {
    fn from(route: &LegacyRoute) -> LinkRoute {
        LinkRoute {
            destination: route.network,
            gateway: route.gateway,
            source: route.source,
            metric: route.metric,
            mtu: asked(route.mtu),
            table: None,
        }
    }
}

section! {
    /// A bond in the old form, with the kernel's names and units.
    pub struct LegacyBond [check_bond] {
        Acted "interfaces" interfaces: Vec<LinkName> = "The links bonded";
        Acted "deviceSelectors" device_selectors: Vec<DeviceSelector> = "The links bonded, by what they are like";
        Acted "arpIPTarget" arp_ip_target: Vec<IpAddr> = "Monitored by ARP";
        Acted "mode" mode: BondMode = "The mode of the bond";
        Acted "xmitHashPolicy" xmit_hash_policy: Option<XmitHashPolicy> = "The fields of a packet that select its link";
        Acted "lacpRate" lacp_rate: Option<crate::kinds::LacpRate> = "The rate of LACP packets";
        Acted "adActorSystem" ad_actor_system: Option<Mac> = "LACP system address";
        Acted "arpValidate" arp_validate: Option<crate::kinds::ArpValidate> = "The ARP answers that count";
        Acted "arpAllTargets" arp_all_targets: Option<crate::kinds::ArpAllTargets> = "The number of targets that must answer";
        Acted "primary" primary: Option<LinkName> = "The preferred link";
        Acted "primaryReselect" primary_reselect: Option<crate::kinds::PrimaryReselect> = "The condition under which it becomes active again";
        Acted "failOverMac" fail_over_mac: Option<crate::kinds::FailOverMac> = "Whose hardware address is used";
        Acted "adSelect" ad_select: Option<crate::kinds::AdSelect> = "The selection of the aggregator";
        Acted "miimon" miimon: Option<u32> = "Milliseconds between looks at the carrier";
        Acted "updelay" updelay: Option<u32> = "Milliseconds until a link counts as up";
        Acted "downdelay" downdelay: Option<u32> = "Milliseconds until a link counts as down";
        Acted "arpInterval" arp_interval: Option<u32> = "Milliseconds between ARP probes";
        Acted "resendIgmp" resend_igmp: Option<u32> = "IGMP reports after a failover";
        Acted "minLinks" min_links: Option<u32> = "Fewer links are no carrier";
        Acted "lpInterval" lp_interval: Option<u32> = "Seconds between learning packets";
        Acted "packetsPerSlave" packets_per_slave: Option<u32> = "Packets before the next link";
        Acted "numPeerNotif" num_peer_notif: Option<u8> = "Notifications after a failover";
        Acted "tlbDynamicLb" tlb_dynamic_lb: Option<u8> = "Rebalance flows";
        Acted "allSlavesActive" all_slaves_active: Option<u8> = "Take packets from idle links";
        Acted "useCarrier" use_carrier: Option<bool> = "Ask the driver for the carrier";
        Acted "adActorSysPrio" ad_actor_sys_prio: Option<u16> = "LACP system priority";
        Acted "adUserPortKey" ad_user_port_key: Option<u16> = "LACP port key";
        Acted "peerNotifyDelay" peer_notify_delay: Option<u32> = "Milliseconds between notifications";
    }
}

fn check_bond(bond: &LegacyBond, node: &Node, reader: &mut Reader<'_>) {
    if !node.given("interfaces") && !node.given("deviceSelectors") {
        reader.wrong(node.mark, "needs interfaces or deviceSelectors");
    }
    // The names of links behind selectors are unknown.
    if !node.given("deviceSelectors") {
        let (primary, links) = (bond.primary.as_ref(), &bond.interfaces);
        check_primary(primary, links, "interfaces", node, reader);
    }
    let is_of_many = |Mac([first, ..]): Mac| first & 1 == 1;
    if bond.ad_actor_system.is_some_and(is_of_many) {
        let what = "must be the address of one device: its first byte is even";
        reader.wrong_in(node, "adActorSystem", what);
    }
    let names = BondNames {
        arp_ip_targets: "arpIPTarget",
        resend_igmp: "resendIgmp",
        tlb_logical_lb: "tlbDynamicLb",
        peer_notif_delay: "peerNotifyDelay",
        ..BondNames::OF_CONFIG
    };
    bond.config().check_settings(&names, node, reader);
}

impl LegacyBond {
    /// The settings in the form of the document; it has no field for `ad_actor_system`.
    #[must_use]
    pub fn config(&self) -> BondConfig {
        let bond = self.clone();
        BondConfig {
            links: bond.interfaces,
            mode: bond.mode,
            miimon: bond.miimon,
            updelay: bond.updelay,
            downdelay: bond.downdelay,
            use_carrier: bond.use_carrier,
            xmit_hash_policy: bond.xmit_hash_policy,
            arp_interval: bond.arp_interval,
            arp_ip_targets: bond.arp_ip_target,
            arp_validate: bond.arp_validate,
            arp_all_targets: bond.arp_all_targets,
            lacp_rate: bond.lacp_rate,
            fail_over_mac: bond.fail_over_mac,
            ad_select: bond.ad_select,
            ad_actor_sys_prio: bond.ad_actor_sys_prio,
            ad_user_port_key: bond.ad_user_port_key,
            primary: bond.primary,
            primary_reselect: bond.primary_reselect,
            resend_igmp: bond.resend_igmp,
            min_links: bond.min_links,
            lp_interval: bond.lp_interval,
            packets_per_slave: bond.packets_per_slave,
            num_peer_notif: bond.num_peer_notif,
            tlb_logical_lb: bond.tlb_dynamic_lb,
            all_slaves_active: bond.all_slaves_active,
            peer_notif_delay: bond.peer_notify_delay,
            ..BondConfig::default()
        }
    }
}

section! {
    /// A bridge in the old form.
    pub struct LegacyBridge {
        Acted "interfaces" interfaces: Vec<LinkName> = "The links bridged";
        Acted "stp" stp: crate::kinds::Stp = "Spanning tree";
        Acted "vlan" vlan: BridgeVlan = "VLANs";
    }
}

section! {
    /// VLANs of a bridge in the old form.
    pub struct BridgeVlan {
        Acted "vlanFiltering" vlan_filtering: bool = "Keep VLANs apart";
    }
}

section! {
    /// The bridge of a link.
    pub struct BridgePort {
        Acted "master" master: LinkName = "The bridge", required;
    }
}

section! {
    /// A VLAN in the old form.
    pub struct LegacyVlan [check_legacy_vlan] {
        Acted "addresses" addresses: Vec<Cidr> = "Its addresses";
        Acted "cidr" cidr: Option<Cidr> = "Its address, in the oldest form";
        Acted "routes" routes: Vec<LegacyRoute> = "Routes through it";
        Acted "dhcp" dhcp: bool = "Ask for addresses";
        Acted "vlanId" vlan_id: u16 = "1 to 4094", required;
        Acted "mtu" mtu: Option<u32> = "Bytes of the largest packet";
        Later "vip" vip: Option<Vip> = "An address shared with other nodes";
        Acted "dhcpOptions" dhcp_options: DhcpOptions = "Settings of DHCP";
    }
}

fn check_legacy_vlan(vlan: &LegacyVlan, node: &Node, reader: &mut Reader<'_>) {
    check_size(vlan.mtu, node, reader);
    // A missing one was reported already.
    if node.given("vlanId") {
        check_vlan(Some(vlan.vlan_id), "vlanId", node, reader);
    }
}

section! {
    /// Settings of DHCP clients.
    pub struct DhcpOptions [check_dhcp_options] {
        Acted "routeMetric" route_metric: Option<u32> = "Metric of the routes offered";
        Acted "ipv4" ipv4: Option<bool> = "Ask for IPv4";
        Acted "ipv6" ipv6: Option<bool> = "Ask for IPv6";
        Acted "duidv6" duidv6: Option<String> = "The node's DHCPv6 id, in hexadecimal";
    }
}

fn check_dhcp_options(options: &DhcpOptions, node: &Node, reader: &mut Reader<'_>) {
    check_duid(None, ("duidv6", options.duidv6.as_deref()), node, reader);
}

section! {
    /// A WireGuard tunnel in the old form.
    pub struct LegacyWireguard [check_wireguard] {
        Acted "privateKey" private_key: WireguardSecret = "This end's key", required;
        Acted "listenPort" listen_port: Option<u16> = "UDP port; absent: one the kernel chooses";
        Acted "firewallMark" firewall_mark: Option<u32> = "Mark of its packets";
        Acted "peers" peers: Vec<LegacyWireguardPeer> = "The other ends";
    }
}

fn check_wireguard(wireguard: &LegacyWireguard, node: &Node, reader: &mut Reader<'_>) {
    let peers = wireguard.peers.iter();
    let peers = peers.map(|peer| (peer.public_key, peer.allowed_ips.as_slice()));
    check_peers(peers, node, reader);
}

section! {
    /// The remote end of a tunnel.
    pub struct LegacyWireguardPeer [check_wireguard_peer] {
        Acted "publicKey" public_key: WireguardKey = "Its key", required;
        Acted "endpoint" endpoint: Option<SocketAddr> = "Where it is; absent: it calls first";
        Acted "persistentKeepaliveInterval" persistent_keepalive_interval: Option<Duration> = "The interval of keepalive packets, in whole seconds; absent: none";
        Acted "allowedIPs" allowed_ips: Vec<Cidr> = "Networks that are sent to the peer and accepted from it; the node makes no routes of them";
    }
}

fn check_wireguard_peer(peer: &LegacyWireguardPeer, node: &Node, reader: &mut Reader<'_>) {
    check_keepalive(peer.persistent_keepalive_interval, node, reader);
}

section! {
    /// An address shared with other nodes.
    pub struct Vip {
        Held "ip" ip: Option<IpAddr> = "The address", required;
        Held "equinixMetal" equinix_metal: Option<VipToken> = "Moved by Equinix Metal";
        Held "hcloud" hcloud: Option<VipToken> = "Moved by Hetzner Cloud";
    }
}

section! {
    /// Access to a cloud that moves an address.
    pub struct VipToken {
        Held "apiToken" api_token: Secret = "The cloud's token", required;
    }
}

section! {
    /// `machine.network.kubespan`.
    pub struct KubeSpan [check_kubespan] {
        Held "enabled" enabled: bool = "Use it";
        Held "advertiseKubernetesNetworks" advertise_kubernetes_networks: bool = "Carry pods' packets";
        Held "allowDownPeerBypass" allow_down_peer_bypass: bool = "Send unencrypted to peers that are down";
        Held "harvestExtraEndpoints" harvest_extra_endpoints: bool = "Learn endpoints from packets";
        Held "mtu" mtu: Option<u32> = "Bytes of the largest packet; 1280 or more";
        Held "filters" filters: KubeSpanFilters = "The endpoints that are announced";
    }
}

fn check_kubespan(kubespan: &KubeSpan, node: &Node, reader: &mut Reader<'_>) {
    if kubespan.mtu.is_some_and(|mtu| mtu < 1280) {
        reader.wrong_in(node, "mtu", "must be 1280 or more");
    }
}

section! {
    /// Filter of the announced endpoints.
    pub struct KubeSpanFilters {
        Held "endpoints" endpoints: Vec<String> = "Networks, `!` in front excludes one";
        Held "excludeAdvertisedNetworks" exclude_advertised_networks: Vec<Cidr> = "Networks not carried";
    }
}

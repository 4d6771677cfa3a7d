//! `machine.network`: names, resolvers, and links in the old form.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use corten_values::{Cidr, HostName, LinkName, Mac, Secret, WireguardKey, WireguardSecret};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::kinds::{
    BondConfig, BondMode, BondNames, LinkRoute, XmitHashPolicy, check_duid, check_keepalive,
    check_mtu, check_peers, check_primary, check_routes_fit, check_vlan,
};

section! {
    /// `machine.network`.
    pub struct InterfaceNetwork {
        Acted "hostname" hostname: Option<HostName> = "Host name of the node";
        Acted "interfaces" interfaces: Vec<Interface> = "Links", by(&["interface", "deviceSelector"]);
        Acted "nameservers" nameservers: Vec<IpAddr> = "Name servers that replace those of the network";
        Acted "searchDomains" search_domains: Vec<HostName> = "Search domains for short names";
        Acted "extraHostEntries" extra_host_entries: Vec<ExtraHost> = "Entries of `/etc/hosts`";
        Later "kubespan" kubespan: KubeSpan = "WireGuard mesh between nodes";
        Acted "disableSearchDomain" disable_search_domain: bool = "Whether the domain of the node's own name is not searched";
    }
}

section! {
    /// A link.
    pub struct Interface [check] {
        Acted "interface" interface: Option<LinkName> = "Name";
        Acted "deviceSelector" device_selector: Option<DeviceSelector> = "Selector of a physical link";
        Acted "addresses" addresses: Vec<Cidr> = "Addresses";
        Acted "cidr" cidr: Option<Cidr> = "Single address, in the oldest form";
        Acted "routes" routes: Vec<LegacyRoute> = "Routes through the link";
        Acted "bond" bond: Option<LegacyBond> = "Settings of a bond";
        Acted "bridge" bridge: Option<LegacyBridge> = "Settings of a bridge";
        Acted "bridgePort" bridge_port: Option<BridgePort> = "Bridge that the link belongs to";
        Acted "vlans" vlans: Vec<LegacyVlan> = "VLANs on the link", by(&["vlanId"]);
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
        Acted "dhcp" dhcp: Option<bool> = "Whether DHCP is used";
        Acted "ignore" ignore: bool = "Whether the node leaves the link alone";
        Acted "dummy" dummy: bool = "Whether it is a dummy link";
        Acted "dhcpOptions" dhcp_options: DhcpOptions = "DHCP settings";
        Acted "wireguard" wireguard: Option<LegacyWireguard> = "Settings of a WireGuard tunnel";
        Acted "vip" vip: Option<Vip> = "Address shared with other nodes";
    }
}

/// The number, unless it is 0, which means the default.
#[must_use]
pub fn asked(number: Option<u32>) -> Option<u32> {
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
        Acted "busPath" bus_path: Option<String> = "Pattern of the bus path";
        Acted "hardwareAddr" hardware_addr: Option<String> = "Pattern of the hardware address";
        Acted "permanentAddr" permanent_addr: Option<String> = "Pattern of the permanent hardware address";
        Acted "pciID" pci_id: Option<String> = "Pattern of the PCI vendor and device";
        Acted "driver" driver: Option<String> = "Pattern of the kernel driver";
        Acted "physical" physical: Option<bool> = "Whether only physical links match";
    }
}

section! {
    /// A route in the old form.
    pub struct LegacyRoute [check_route] {
        Acted "network" network: Option<Cidr> = "Destination network; absent: the default route";
        Acted "gateway" gateway: Option<IpAddr> = "Address of the gateway";
        Acted "source" source: Option<IpAddr> = "Source address";
        Acted "metric" metric: Option<u32> = "Metric; a lower one is preferred";
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
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
        Acted "interfaces" interfaces: Vec<LinkName> = "Links of the bond";
        Acted "deviceSelectors" device_selectors: Vec<DeviceSelector> = "Selectors of the bond's links";
        Acted "arpIPTarget" arp_ip_target: Vec<IpAddr> = "Targets of ARP probes";
        Acted "mode" mode: BondMode = "Mode of the bond";
        Acted "xmitHashPolicy" xmit_hash_policy: Option<XmitHashPolicy> = "Packet fields whose hash selects the link";
        Acted "lacpRate" lacp_rate: Option<crate::kinds::LacpRate> = "Rate of LACP packets";
        Acted "adActorSystem" ad_actor_system: Option<Mac> = "LACP system address";
        Acted "arpValidate" arp_validate: Option<crate::kinds::ArpValidate> = "ARP packets that are validated";
        Acted "arpAllTargets" arp_all_targets: Option<crate::kinds::ArpAllTargets> = "Number of targets that must answer";
        Acted "primary" primary: Option<LinkName> = "Preferred link";
        Acted "primaryReselect" primary_reselect: Option<crate::kinds::PrimaryReselect> = "Condition for the preferred link to become active again";
        Acted "failOverMac" fail_over_mac: Option<crate::kinds::FailOverMac> = "Policy for the hardware address of the bond";
        Acted "adSelect" ad_select: Option<crate::kinds::AdSelect> = "Selection of the aggregator";
        Acted "miimon" miimon: Option<u32> = "Interval of carrier checks in milliseconds";
        Acted "updelay" updelay: Option<u32> = "Delay in milliseconds before a link counts as up";
        Acted "downdelay" downdelay: Option<u32> = "Delay in milliseconds before a link counts as down";
        Acted "arpInterval" arp_interval: Option<u32> = "Interval of ARP probes in milliseconds";
        Acted "resendIgmp" resend_igmp: Option<u32> = "Number of IGMP reports after a failover";
        Acted "minLinks" min_links: Option<u32> = "Minimum number of active links for a carrier";
        Acted "lpInterval" lp_interval: Option<u32> = "Interval of learning packets in seconds";
        Acted "packetsPerSlave" packets_per_slave: Option<u32> = "Number of packets on a link before the next link is used";
        Acted "numPeerNotif" num_peer_notif: Option<u8> = "Number of peer notifications after a failover";
        Acted "tlbDynamicLb" tlb_dynamic_lb: Option<u8> = "Whether flows are rebalanced";
        Acted "allSlavesActive" all_slaves_active: Option<u8> = "Whether packets from inactive links are accepted: 0 or 1";
        Acted "useCarrier" use_carrier: Option<bool> = "Whether the driver reports the carrier";
        Acted "adActorSysPrio" ad_actor_sys_prio: Option<u16> = "LACP system priority";
        Acted "adUserPortKey" ad_user_port_key: Option<u16> = "LACP port key";
        Acted "peerNotifyDelay" peer_notify_delay: Option<u32> = "Interval of peer notifications in milliseconds";
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
        Acted "interfaces" interfaces: Vec<LinkName> = "Links of the bridge";
        Acted "stp" stp: crate::kinds::Stp = "Settings of the spanning tree";
        Acted "vlan" vlan: BridgeVlan = "VLAN settings";
    }
}

section! {
    /// VLANs of a bridge in the old form.
    pub struct BridgeVlan {
        Acted "vlanFiltering" vlan_filtering: bool = "Whether VLANs are kept apart";
    }
}

section! {
    /// The bridge of a link.
    pub struct BridgePort {
        Acted "master" master: LinkName = "Name of the bridge", required;
    }
}

section! {
    /// A VLAN in the old form.
    pub struct LegacyVlan [check_legacy_vlan] {
        Acted "addresses" addresses: Vec<Cidr> = "Addresses";
        Acted "cidr" cidr: Option<Cidr> = "Single address, in the oldest form";
        Acted "routes" routes: Vec<LegacyRoute> = "Routes through the link";
        Acted "dhcp" dhcp: bool = "Whether DHCP is used";
        Acted "vlanId" vlan_id: u16 = "VLAN number, 1 to 4094", required;
        Acted "mtu" mtu: Option<u32> = "MTU in bytes";
        Acted "vip" vip: Option<Vip> = "Address shared with other nodes";
        Acted "dhcpOptions" dhcp_options: DhcpOptions = "DHCP settings";
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
        Acted "routeMetric" route_metric: Option<u32> = "Metric of the offered routes";
        Acted "ipv4" ipv4: Option<bool> = "Whether DHCPv4 is used";
        Acted "ipv6" ipv6: Option<bool> = "Whether DHCPv6 is used";
        Acted "duidv6" duidv6: Option<String> = "DHCPv6 DUID of the node in hexadecimal";
    }
}

fn check_dhcp_options(options: &DhcpOptions, node: &Node, reader: &mut Reader<'_>) {
    check_duid(None, ("duidv6", options.duidv6.as_deref()), node, reader);
}

section! {
    /// A WireGuard tunnel in the old form.
    pub struct LegacyWireguard [check_wireguard] {
        Acted "privateKey" private_key: WireguardSecret = "Private key of this end", required;
        Acted "listenPort" listen_port: Option<u16> = "UDP port; absent: chosen by the kernel";
        Acted "firewallMark" firewall_mark: Option<u32> = "Mark of its packets";
        Acted "peers" peers: Vec<LegacyWireguardPeer> = "Peers of the tunnel";
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
        Acted "publicKey" public_key: WireguardKey = "Public key of the peer", required;
        Acted "endpoint" endpoint: Option<SocketAddr> = "Address and port of the peer; absent: the peer opens the connection";
        Acted "persistentKeepaliveInterval" persistent_keepalive_interval: Option<Duration> = "Interval of keepalive packets in whole seconds; absent: none";
        Acted "allowedIPs" allowed_ips: Vec<Cidr> = "Networks that are sent to the peer and accepted from it; the node adds no routes for them";
    }
}

fn check_wireguard_peer(peer: &LegacyWireguardPeer, node: &Node, reader: &mut Reader<'_>) {
    check_keepalive(peer.persistent_keepalive_interval, node, reader);
}

section! {
    /// An address shared with other nodes. One of them has it at a time.
    pub struct Vip {
        Acted "ip" ip: Option<IpAddr> = "Address", required;
        Later "equinixMetal" equinix_metal: Option<VipToken> = "Access to Equinix Metal, which moves the address";
        Later "hcloud" hcloud: Option<VipToken> = "Access to Hetzner Cloud, which moves the address";
    }
}

section! {
    /// Access to a cloud that moves an address.
    pub struct VipToken {
        Held "apiToken" api_token: Secret = "API token of the cloud", required;
    }
}

section! {
    /// `machine.network.kubespan`.
    pub struct KubeSpan [check_kubespan] {
        Held "enabled" enabled: bool = "Whether the mesh is used";
        Held "advertiseKubernetesNetworks" advertise_kubernetes_networks: bool = "Whether the mesh carries pod traffic";
        Held "allowDownPeerBypass" allow_down_peer_bypass: bool = "Whether packets to unreachable peers are sent unencrypted";
        Held "harvestExtraEndpoints" harvest_extra_endpoints: bool = "Whether endpoints are learned from received packets";
        Held "mtu" mtu: Option<u32> = "MTU in bytes; 1280 or more";
        Held "filters" filters: KubeSpanFilters = "Filters of the announced endpoints";
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
        Held "endpoints" endpoints: Vec<String> = "Networks; `!` in front excludes one";
        Held "excludeAdvertisedNetworks" exclude_advertised_networks: Vec<Cidr> = "Networks that are not carried";
    }
}

section! {
    /// A name for an address.
    pub struct ExtraHost {
        Acted "ip" ip: Option<IpAddr> = "Address", required;
        Acted "aliases" aliases: Vec<HostName> = "Host names of the address";
    }
}

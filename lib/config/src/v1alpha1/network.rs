//! `machine.network`: names, resolvers, and links as the old form writes them.

use std::net::IpAddr;
use std::time::Duration;

use super::ExtraHost;
use crate::kinds::{BondMode, XmitHashPolicy};
use crate::read::{Reader, section};
use crate::secret::Secret;
use crate::tree::Node;
use crate::values::{Cidr, HostName, LinkName, Mac, WireguardKey, WireguardSecret};

section! {
    /// `machine.network`.
    pub struct InterfaceNetwork {
        Acted "hostname" hostname: Option<HostName> = "The node's name";
        Later "interfaces" interfaces: Vec<Interface> = "Links", by(&["interface", "deviceSelector"]);
        Acted "nameservers" nameservers: Vec<IpAddr> = "Asked instead of those the network offers";
        Later "searchDomains" search_domains: Vec<HostName> = "Tried behind short names";
        Later "extraHostEntries" extra_host_entries: Vec<ExtraHost> = "Lines of `/etc/hosts`";
        Later "kubespan" kubespan: KubeSpan = "WireGuard mesh between nodes";
        Later "disableSearchDomain" disable_search_domain: bool = "No search domain from the node's own name";
    }
}

section! {
    /// A link.
    pub struct Interface [check] {
        Held "interface" interface: Option<LinkName> = "Its name";
        Held "deviceSelector" device_selector: Option<DeviceSelector> = "What it is like";
        Held "addresses" addresses: Vec<Cidr> = "Its addresses";
        Held "cidr" cidr: Option<Cidr> = "Its address, in the oldest form";
        Held "routes" routes: Vec<LegacyRoute> = "Routes through it";
        Held "bond" bond: Option<LegacyBond> = "It bonds other links";
        Held "bridge" bridge: Option<LegacyBridge> = "It bridges other links";
        Held "bridgePort" bridge_port: Option<BridgePort> = "It belongs to a bridge";
        Held "vlans" vlans: Vec<LegacyVlan> = "VLANs on it", by(&["vlanId"]);
        Held "mtu" mtu: Option<u32> = "Bytes of the largest packet";
        Held "dhcp" dhcp: Option<bool> = "Ask for addresses";
        Held "ignore" ignore: bool = "Leave it alone";
        Held "dummy" dummy: bool = "It leads nowhere";
        Held "dhcpOptions" dhcp_options: DhcpOptions = "How it asks for addresses";
        Held "wireguard" wireguard: Option<LegacyWireguard> = "It is a WireGuard tunnel";
        Held "vip" vip: Option<Vip> = "An address shared with other nodes";
    }
}

fn check(interface: &Interface, node: &Node, reader: &mut Reader<'_>) {
    if interface.interface.is_some() == interface.device_selector.is_some() {
        reader.wrong(node.mark, "needs either interface or deviceSelector");
    }
    if interface.bond.is_some() && interface.bridge.is_some() {
        reader.wrong_in(node, "bridge", "excludes bond");
    }
}

section! {
    /// What a physical link is like; patterns.
    pub struct DeviceSelector {
        Held "busPath" bus_path: Option<String> = "Bus path";
        Held "hardwareAddr" hardware_addr: Option<String> = "Hardware address";
        Held "permanentAddr" permanent_addr: Option<String> = "Hardware address it was made with";
        Held "pciID" pci_id: Option<String> = "PCI vendor and device";
        Held "driver" driver: Option<String> = "Kernel driver";
        Held "physical" physical: Option<bool> = "Only links of devices";
    }
}

section! {
    /// A route in the old form.
    pub struct LegacyRoute {
        Held "network" network: Option<Cidr> = "Where it leads; absent: everywhere";
        Held "gateway" gateway: Option<IpAddr> = "Through whom";
        Held "source" source: Option<IpAddr> = "From which address";
        Held "metric" metric: Option<u32> = "Lower wins";
        Held "mtu" mtu: Option<u32> = "Bytes of the largest packet";
    }
}

section! {
    /// A bond in the old form; the kernel's own names and units.
    pub struct LegacyBond {
        Held "interfaces" interfaces: Vec<LinkName> = "The links bonded";
        Held "deviceSelectors" device_selectors: Vec<DeviceSelector> = "The links bonded, by what they are like";
        Held "arpIPTarget" arp_ip_target: Vec<IpAddr> = "Monitored by ARP";
        Held "mode" mode: BondMode = "How links share the work";
        Held "xmitHashPolicy" xmit_hash_policy: Option<XmitHashPolicy> = "What picks the link of a packet";
        Held "lacpRate" lacp_rate: Option<crate::kinds::LacpRate> = "How often LACP speaks";
        Held "adActorSystem" ad_actor_system: Option<Mac> = "LACP system address";
        Held "arpValidate" arp_validate: Option<crate::kinds::ArpValidate> = "Which ARP answers count";
        Held "arpAllTargets" arp_all_targets: Option<crate::kinds::ArpAllTargets> = "How many targets must answer";
        Held "primary" primary: Option<LinkName> = "The preferred link";
        Held "primaryReselect" primary_reselect: Option<crate::kinds::PrimaryReselect> = "When it takes over again";
        Held "failOverMac" fail_over_mac: Option<crate::kinds::FailOverMac> = "Whose hardware address is used";
        Held "adSelect" ad_select: Option<crate::kinds::AdSelect> = "How an aggregator is chosen";
        Held "miimon" miimon: Option<u32> = "Milliseconds between looks at the carrier";
        Held "updelay" updelay: Option<u32> = "Milliseconds until a link counts as up";
        Held "downdelay" downdelay: Option<u32> = "Milliseconds until a link counts as down";
        Held "arpInterval" arp_interval: Option<u32> = "Milliseconds between ARP probes";
        Held "resendIgmp" resend_igmp: Option<u32> = "IGMP reports after a failover";
        Held "minLinks" min_links: Option<u32> = "Fewer links are no carrier";
        Held "lpInterval" lp_interval: Option<u32> = "Seconds between learning packets";
        Held "packetsPerSlave" packets_per_slave: Option<u32> = "Packets before the next link";
        Held "numPeerNotif" num_peer_notif: Option<u8> = "Notifications after a failover";
        Held "tlbDynamicLb" tlb_dynamic_lb: Option<u8> = "Rebalance flows";
        Held "allSlavesActive" all_slaves_active: Option<u8> = "Take packets from idle links";
        Held "useCarrier" use_carrier: Option<bool> = "Ask the driver for the carrier";
        Held "adActorSysPrio" ad_actor_sys_prio: Option<u16> = "LACP system priority";
        Held "adUserPortKey" ad_user_port_key: Option<u16> = "LACP port key";
        Held "peerNotifyDelay" peer_notify_delay: Option<u32> = "Milliseconds between notifications";
    }
}

section! {
    /// A bridge in the old form.
    pub struct LegacyBridge {
        Held "interfaces" interfaces: Vec<LinkName> = "The links bridged";
        Held "stp" stp: crate::kinds::Stp = "Spanning tree";
        Held "vlan" vlan: BridgeVlan = "VLANs";
    }
}

section! {
    /// VLANs of a bridge in the old form.
    pub struct BridgeVlan {
        Held "vlanFiltering" vlan_filtering: bool = "Keep VLANs apart";
    }
}

section! {
    /// The bridge a link belongs to.
    pub struct BridgePort {
        Held "master" master: LinkName = "The bridge", required;
    }
}

section! {
    /// A VLAN in the old form.
    pub struct LegacyVlan [check_vlan] {
        Held "addresses" addresses: Vec<Cidr> = "Its addresses";
        Held "cidr" cidr: Option<Cidr> = "Its address, in the oldest form";
        Held "routes" routes: Vec<LegacyRoute> = "Routes through it";
        Held "dhcp" dhcp: bool = "Ask for addresses";
        Held "vlanId" vlan_id: u16 = "1 to 4094", required;
        Held "mtu" mtu: Option<u32> = "Bytes of the largest packet";
        Held "vip" vip: Option<Vip> = "An address shared with other nodes";
        Held "dhcpOptions" dhcp_options: DhcpOptions = "How it asks for addresses";
    }
}

fn check_vlan(vlan: &LegacyVlan, node: &Node, reader: &mut Reader<'_>) {
    if vlan.vlan_id > 4094 {
        reader.wrong_in(node, "vlanId", "must be from 1 to 4094");
    }
}

section! {
    /// How a link asks for addresses.
    pub struct DhcpOptions {
        Held "routeMetric" route_metric: Option<u32> = "Metric of the routes offered";
        Held "ipv4" ipv4: Option<bool> = "Ask for IPv4";
        Held "ipv6" ipv6: Option<bool> = "Ask for IPv6";
        Held "duidv6" duidv6: Option<String> = "The node's DHCPv6 id, in hexadecimal";
    }
}

section! {
    /// A WireGuard tunnel in the old form.
    pub struct LegacyWireguard {
        Held "privateKey" private_key: WireguardSecret = "This end's key", required;
        Held "listenPort" listen_port: Option<u16> = "UDP port";
        Held "firewallMark" firewall_mark: Option<u32> = "Mark of its packets";
        Held "peers" peers: Vec<LegacyWireguardPeer> = "The other ends";
    }
}

section! {
    /// The other end of a tunnel.
    pub struct LegacyWireguardPeer {
        Held "publicKey" public_key: WireguardKey = "Its key", required;
        Held "endpoint" endpoint: Option<crate::values::Endpoint> = "Where it is";
        Held "persistentKeepaliveInterval" persistent_keepalive_interval: Option<Duration> = "How often it hears from us";
        Held "allowedIPs" allowed_ips: Vec<Cidr> = "What is sent to it and taken from it";
    }
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
        Held "filters" filters: KubeSpanFilters = "Which endpoints are announced";
    }
}

fn check_kubespan(kubespan: &KubeSpan, node: &Node, reader: &mut Reader<'_>) {
    if kubespan.mtu.is_some_and(|mtu| mtu < 1280) {
        reader.wrong_in(node, "mtu", "must be 1280 or more");
    }
}

section! {
    /// Which endpoints are announced.
    pub struct KubeSpanFilters {
        Held "endpoints" endpoints: Vec<String> = "Networks, `!` in front excludes one";
        Held "excludeAdvertisedNetworks" exclude_advertised_networks: Vec<Cidr> = "Networks not carried";
    }
}

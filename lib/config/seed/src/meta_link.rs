//! Links in META 0x0a.

use std::net::IpAddr;

use corten_values::{LinkName, Mac, Object};
use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use corten_config::kinds::{
    AdLacpActive, AdSelect, ArpAllTargets, ArpValidate, BondConfig, BondMode, BondNames,
    FailOverMac, LacpRate, PrimaryReselect, VlanMode, XmitHashPolicy, check_mtu, check_vlan,
};

choices! {
    /// Kind of a virtual link.
    pub enum PlatformLinkKind {
        Bond = "bond", Bridge = "bridge", Dummy = "dummy", Vlan = "vlan", Vrf = "vrf",
    }
}

section! {
    /// A link.
    pub struct PlatformLink [check_link] {
        Acted "name" name: LinkName = "Name of the link; for a card also an alternative name", required;
        Acted "logical" logical: bool = "Whether the link is virtual, so that the node creates it";
        Acted "up" up: Option<bool> = "Whether the link is up; absent: yes";
        Acted "mtu" mtu: u32 = "MTU in bytes; 0: unchanged";
        Acted "kind" kind: Option<PlatformLinkKind> = "Kind of a virtual link";
        Acted "hardwareAddr" hardware_addr: Option<Mac> = "Hardware address to set";
        Acted "multicast" multicast: Option<bool> = "Whether the link receives multicast packets";
        Acted "parentName" parent: Option<LinkName> = "Parent link of a VLAN";
        Acted "masterName" bond_name: Option<LinkName> = "Bond of the link";
        Acted "bridgeSlave" bridge: Option<PlatformMaster> = "Bridge of the link";
        Acted "vrfSlave" vrf: Option<PlatformMaster> = "VRF of the link";
        Acted "vlan" vlan: Option<PlatformVlan> = "Settings of a VLAN";
        Acted "bondMaster" bond_master: Option<PlatformBond> = "Settings of a bond";
        Acted "bridgeMaster" bridge_master: Option<PlatformBridge> = "Settings of a bridge";
        Acted "vrfMaster" vrf_master: Option<PlatformVrf> = "Settings of a VRF";
        Later "wireguard" wireguard: Option<Object> = "Settings of a WireGuard tunnel";
        Later "veth" veth: Option<Object> = "Settings of a veth link";
        Held "type" link_type: String = "Hardware type of the link";
        Held "slaveIndex" slave_index: u32 = "Index of the link in a bond";
        Held "layer" layer: String = "Always `platform`";
    }
}

fn check_link(link: &PlatformLink, node: &Node, reader: &mut Reader<'_>) {
    check_mtu(Some(link.mtu).filter(|mtu| *mtu != 0), node, reader);
    if link.logical != node.given("kind") {
        reader.wrong_in(
            node,
            "kind",
            "is required with logical: true, and allowed only there",
        );
    }
    match link.kind {
        Some(PlatformLinkKind::Vlan) => {
            if link.parent.is_none() {
                reader.wrong_in(node, "parentName", "is required for a VLAN");
            }
            if !node.given("vlan") {
                reader.wrong_in(node, "vlan", "is required for a VLAN");
            }
        }
        Some(PlatformLinkKind::Vrf) if !node.given("vrfMaster") => {
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

impl PlatformLink {
    /// Links that must exist before it.
    pub(crate) fn needs(&self) -> Vec<&str> {
        let is_vlan = self.kind == Some(PlatformLinkKind::Vlan);
        let needs = [
            self.parent.as_ref().filter(|_| is_vlan),
            self.bond_name.as_ref(),
            self.bridge.as_ref().map(|bridge| &bridge.name),
            self.vrf.as_ref().map(|vrf| &vrf.name),
        ];
        needs.into_iter().flatten().map(|name| &**name).collect()
    }
}

section! {
    /// The link that another one belongs to.
    pub struct PlatformMaster {
        Acted "masterName" name: LinkName = "Name", required;
    }
}

section! {
    /// A VLAN's number and protocol.
    pub struct PlatformVlan [check_platform_vlan] {
        Acted "vlanID" id: u16 = "VLAN number, 1 to 4094";
        Acted "vlanProtocol" protocol: VlanMode = "Protocol";
    }
}

fn check_platform_vlan(vlan: &PlatformVlan, node: &Node, reader: &mut Reader<'_>) {
    check_vlan(Some(vlan.id), "vlanID", node, reader);
}

section! {
    /// A bond's settings.
    pub struct PlatformBond [check_bond] {
        Acted "mode" mode: BondMode = "Mode of the bond";
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
        Acted "adLacpActive" ad_lacp_active: Option<AdLacpActive> = "Whether LACP sends the first packet";
        Acted "primary" primary: Option<LinkName> = "Preferred link";
        Acted "primaryReselect" primary_reselect: Option<PrimaryReselect> = "Condition for the preferred link to become active again";
        Acted "resendIgmp" resend_igmp: Option<u32> = "Number of IGMP reports after a failover";
        Acted "minLinks" min_links: Option<u32> = "Minimum number of active links for a carrier";
        Acted "lpInterval" lp_interval: Option<u32> = "Interval of learning packets in seconds";
        Acted "packetsPerSlave" packets_per_slave: Option<u32> = "Number of packets on a link before the next link is used";
        Acted "numPeerNotif" num_peer_notif: Option<u8> = "Number of peer notifications after a failover";
        Acted "tlbLogicalLb" tlb_logical_lb: Option<u8> = "Whether flows are rebalanced: 0 or 1";
        Acted "allSlavesActive" all_slaves_active: Option<u8> = "Whether packets from inactive links are accepted: 0 or 1";
        Acted "peerNotifyDelay" peer_notif_delay: Option<u32> = "Interval of peer notifications in milliseconds";
        Acted "missedMax" missed_max: Option<u8> = "Number of missed probes after which a link counts as down";
        Later "primaryIndex" primary_index: Option<u32> = "Index of the preferred link; use `primary`";
    }
}

fn check_bond(bond: &PlatformBond, node: &Node, reader: &mut Reader<'_>) {
    let names = BondNames {
        resend_igmp: "resendIgmp",
        peer_notif_delay: "peerNotifyDelay",
        ..BondNames::OF_CONFIG
    };
    bond.config().check_settings(&names, node, reader);
}

impl PlatformBond {
    /// The settings in the form of the machine config.
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
        Acted "stp" stp: PlatformStp = "Settings of the spanning tree protocol";
        Acted "vlan" vlan: PlatformFiltering = "VLAN settings";
    }
}

section! {
    /// The spanning tree protocol.
    pub struct PlatformStp {
        Acted "enabled" enabled: bool = "Whether the spanning tree protocol is used";
    }
}

section! {
    /// VLANs of a bridge.
    pub struct PlatformFiltering {
        Acted "filteringEnabled" enabled: bool = "Whether VLANs are kept apart";
    }
}

section! {
    /// A VRF's settings.
    pub struct PlatformVrf {
        Acted "table" table: PlatformTable = "Routing table", required;
    }
}

/// A routing table by number or by its name in the kernel's tools.
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

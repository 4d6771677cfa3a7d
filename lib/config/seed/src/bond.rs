//! Settings of bonds, in both versions of `network-config`.

use std::net::IpAddr;

use corten_config::kinds::{
    AdSelect, ArpAllTargets, ArpValidate, BondConfig, BondMode, BondNames, FailOverMac, LacpRate,
    PrimaryReselect, XmitHashPolicy,
};
use corten_values::Object;
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::bridge::BridgeV1;
use crate::values::{OneOrMore, Switch};

section! {
    /// Settings of a bond or a bridge in version 1 (kernel: Documentation/networking/bonding.rst). Names of a bond's
    /// settings have dashes here; a file may have underscores.
    pub struct ParamsV1 [check_v1] {
        Acted "bond-mode" mode: BondMode = "Mode of the bond";
        Acted "bond-miimon" miimon: Option<u32> = "Interval of carrier checks in milliseconds";
        Acted "bond-updelay" updelay: Option<u32> = "Delay in milliseconds before a link counts as up";
        Acted "up-delay" updelay_too: Option<u32> = "Alternative name of the previous field";
        Acted "bond-downdelay" downdelay: Option<u32> = "Delay in milliseconds before a link counts as down";
        Acted "down-delay" downdelay_too: Option<u32> = "Alternative name of the previous field";
        Acted "bond-use-carrier" use_carrier: Option<Switch> = "Whether the driver reports the carrier";
        Acted "bond-min-links" min_links: Option<u32> = "Minimum number of active links for a carrier";
        Acted "bond-xmit-hash-policy" xmit_hash_policy: Option<XmitHashPolicy> = "Packet fields whose hash selects the link";
        Acted "bond-lacp-rate" lacp_rate: Option<LacpRate> = "Rate of LACP packets";
        Acted "bond-ad-select" ad_select: Option<AdSelect> = "Selection of the aggregator";
        Acted "bond-ad-actor-sys-prio" ad_actor_sys_prio: Option<u16> = "LACP system priority";
        Acted "bond-ad-user-port-key" ad_user_port_key: Option<u16> = "LACP port key";
        Acted "bond-fail-over-mac" fail_over_mac: Option<FailOverMac> = "Policy for the hardware address of the bond";
        Acted "bond-primary" primary: Option<String> = "Preferred link";
        Acted "bond-primary-reselect" primary_reselect: Option<PrimaryReselect> = "Condition for the preferred link to become active again";
        Acted "bond-arp-interval" arp_interval: Option<u32> = "Interval of ARP probes in milliseconds";
        Acted "bond-arp-ip-target" arp_ip_targets: OneOrMore<IpAddr> = "Targets of ARP probes";
        Acted "bond-arp-validate" arp_validate: Option<ArpValidate> = "ARP packets that are validated";
        Acted "bond-arp-all-targets" arp_all_targets: Option<ArpAllTargets> = "Number of targets that must answer";
        Acted "bond-all-slaves-active" all_slaves_active: Option<Switch> = "Whether packets from inactive links are accepted";
        Acted "bond-lp-interval" lp_interval: Option<u32> = "Interval of learning packets in seconds";
        Acted "bond-num-grat-arp" num_grat_arp: Option<u8> = "Number of peer notifications after a failover";
        Acted "bond-num-unsol-na" num_unsol_na: Option<u8> = "Alternative name of the previous field";
        Acted "bond-peer-notif-delay" peer_notif_delay: Option<u32> = "Interval of peer notifications in milliseconds";
        Acted "bond-packets-per-slave" packets_per_slave: Option<u32> = "Number of packets on a link before the next link is used";
        Acted "bond-resend-igmp" resend_igmp: Option<u32> = "Number of IGMP reports after a failover";
        Acted "bond-tlb-dynamic-lb" tlb_dynamic_lb: Option<Switch> = "Whether flows are rebalanced";
        Held "bond-slaves" slaves: Option<Object> = "Links of the bond; `bond_interfaces` has them";
        Later "bond-ad-actor-system" ad_actor_system: Option<Object> = "LACP system address";
        Later "bond-queue-id" queue_id: Option<Object> = "Queue of a link";
        Later "bond-active-slave" active_slave: Option<Object> = "State in the kernel";
        Later "bond-ad-actor-key" ad_actor_key: Option<Object> = "State in the kernel";
        Later "bond-ad-aggregator" ad_aggregator: Option<Object> = "State in the kernel";
        Later "bond-ad-num-ports" ad_num_ports: Option<Object> = "State in the kernel";
        Later "bond-ad-partner-key" ad_partner_key: Option<Object> = "State in the kernel";
        Later "bond-ad-partner-mac" ad_partner_mac: Option<Object> = "State in the kernel";
        Later "bond-mii-status" mii_status: Option<Object> = "State in the kernel";
        .. bridge: BridgeV1 = "Settings of the bridge";
    }
}

fn check_v1(params: &ParamsV1, node: &Node, reader: &mut Reader<'_>) {
    // The name in use, of the two that are valid.
    let name = |first, other| if node.given(first) { first } else { other };
    let names = BondNames {
        miimon: "bond-miimon",
        updelay: name("bond-updelay", "up-delay"),
        downdelay: name("bond-downdelay", "down-delay"),
        arp_interval: "bond-arp-interval",
        arp_ip_targets: "bond-arp-ip-target",
        arp_validate: "bond-arp-validate",
        resend_igmp: "bond-resend-igmp",
        min_links: "bond-min-links",
        lp_interval: "bond-lp-interval",
        packets_per_slave: "bond-packets-per-slave",
        peer_notif_delay: "bond-peer-notif-delay",
        ad_actor_sys_prio: "bond-ad-actor-sys-prio",
        ad_user_port_key: "bond-ad-user-port-key",
        ..BondNames::OF_CONFIG
    };
    params.bond().check_settings(&names, node, reader);
}

impl ParamsV1 {
    /// The settings in the form of the machine config, except the primary link, which is an id here.
    pub(crate) fn bond(&self) -> BondConfig {
        BondConfig {
            mode: self.mode,
            miimon: self.miimon,
            updelay: self.updelay.or(self.updelay_too),
            downdelay: self.downdelay.or(self.downdelay_too),
            use_carrier: self.use_carrier.map(|switch| switch.0),
            min_links: self.min_links,
            xmit_hash_policy: self.xmit_hash_policy,
            lacp_rate: self.lacp_rate,
            ad_select: self.ad_select,
            ad_actor_sys_prio: self.ad_actor_sys_prio,
            ad_user_port_key: self.ad_user_port_key,
            fail_over_mac: self.fail_over_mac,
            primary_reselect: self.primary_reselect,
            arp_interval: self.arp_interval,
            arp_ip_targets: self.arp_ip_targets.0.clone(),
            arp_validate: self.arp_validate,
            arp_all_targets: self.arp_all_targets,
            all_slaves_active: self.all_slaves_active.map(Switch::number),
            lp_interval: self.lp_interval,
            num_peer_notif: self.num_grat_arp.or(self.num_unsol_na),
            peer_notif_delay: self.peer_notif_delay,
            packets_per_slave: self.packets_per_slave,
            resend_igmp: self.resend_igmp,
            tlb_logical_lb: self.tlb_dynamic_lb.map(Switch::number),
            ..BondConfig::default()
        }
    }
}

section! {
    /// Parameters of a bond in version 2.
    pub struct ParametersV2 [check_v2] {
        Acted "mode" mode: BondMode = "Mode of the bond";
        Acted "mii-monitor-interval" miimon: Option<u32> = "Interval of carrier checks in milliseconds";
        Acted "up-delay" updelay: Option<u32> = "Delay in milliseconds before a link counts as up";
        Acted "down-delay" downdelay: Option<u32> = "Delay in milliseconds before a link counts as down";
        Acted "min-links" min_links: Option<u32> = "Minimum number of active links for a carrier";
        Acted "transmit-hash-policy" xmit_hash_policy: Option<XmitHashPolicy> = "Packet fields whose hash selects the link";
        Acted "lacp-rate" lacp_rate: Option<LacpRate> = "Rate of LACP packets";
        Acted "ad-select" ad_select: Option<AdSelect> = "Selection of the aggregator";
        Acted "fail-over-mac-policy" fail_over_mac: Option<FailOverMac> = "Policy for the hardware address of the bond";
        Acted "primary" primary: Option<String> = "Preferred link";
        Acted "primary-reselect-policy" primary_reselect: Option<PrimaryReselect> = "Condition for the preferred link to become active again";
        Acted "arp-interval" arp_interval: Option<u32> = "Interval of ARP probes in milliseconds";
        Acted "arp-ip-targets" arp_ip_targets: Vec<IpAddr> = "Targets of ARP probes";
        Acted "arp-validate" arp_validate: Option<ArpValidate> = "ARP packets that are validated";
        Acted "arp-all-targets" arp_all_targets: Option<ArpAllTargets> = "Number of targets that must answer";
        Acted "all-slaves-active" all_slaves_active: Option<Switch> = "Whether packets from inactive links are accepted";
        Acted "gratuitous-arp" num_peer_notif: Option<u8> = "Number of peer notifications after a failover";
        Acted "packets-per-slave" packets_per_slave: Option<u32> = "Number of packets on a link before the next link is used";
        Acted "learn-packet-interval" lp_interval: Option<u32> = "Interval of learning packets in seconds";
        Acted "resend-igmp" resend_igmp: Option<u32> = "Number of IGMP reports after a failover";
    }
}

fn check_v2(parameters: &ParametersV2, node: &Node, reader: &mut Reader<'_>) {
    let names = BondNames {
        miimon: "mii-monitor-interval",
        updelay: "up-delay",
        downdelay: "down-delay",
        arp_interval: "arp-interval",
        arp_ip_targets: "arp-ip-targets",
        arp_validate: "arp-validate",
        resend_igmp: "resend-igmp",
        min_links: "min-links",
        lp_interval: "learn-packet-interval",
        packets_per_slave: "packets-per-slave",
        ..BondNames::OF_CONFIG
    };
    parameters.bond().check_settings(&names, node, reader);
}

impl ParametersV2 {
    /// The settings in the form of the machine config, except the primary link, which is an id here.
    pub(crate) fn bond(&self) -> BondConfig {
        BondConfig {
            mode: self.mode,
            miimon: self.miimon,
            updelay: self.updelay,
            downdelay: self.downdelay,
            min_links: self.min_links,
            xmit_hash_policy: self.xmit_hash_policy,
            lacp_rate: self.lacp_rate,
            ad_select: self.ad_select,
            fail_over_mac: self.fail_over_mac,
            primary_reselect: self.primary_reselect,
            arp_interval: self.arp_interval,
            arp_ip_targets: self.arp_ip_targets.clone(),
            arp_validate: self.arp_validate,
            arp_all_targets: self.arp_all_targets,
            all_slaves_active: self.all_slaves_active.map(Switch::number),
            num_peer_notif: self.num_peer_notif,
            packets_per_slave: self.packets_per_slave,
            lp_interval: self.lp_interval,
            resend_igmp: self.resend_igmp,
            ..BondConfig::default()
        }
    }
}

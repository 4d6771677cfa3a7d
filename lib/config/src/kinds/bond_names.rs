//! Names of a bond's settings, which differ between documents.

/// Names of a bond's checked settings in a document.
#[derive(Debug, Clone, Copy)]
pub struct BondNames {
    /// Interval of the checks of a link.
    pub miimon: &'static str,
    /// Delay after a link came up.
    pub updelay: &'static str,
    /// Delay after a link went down.
    pub downdelay: &'static str,
    /// Interval of ARP probes.
    pub arp_interval: &'static str,
    /// Targets of ARP probes.
    pub arp_ip_targets: &'static str,
    /// Check of the answers to ARP probes.
    pub arp_validate: &'static str,
    /// Number of IGMP reports after a change.
    pub resend_igmp: &'static str,
    /// Links that the bond needs.
    pub min_links: &'static str,
    /// Interval of learning packets.
    pub lp_interval: &'static str,
    /// Packets before the next link.
    pub packets_per_slave: &'static str,
    /// Balancing by the load of links.
    pub tlb_logical_lb: &'static str,
    /// Delay between notifications of peers.
    pub peer_notif_delay: &'static str,
    /// Priority of the system in LACP.
    pub ad_actor_sys_prio: &'static str,
    /// Key of the port in LACP.
    pub ad_user_port_key: &'static str,
}

impl BondNames {
    /// The names in [`super::BondConfig`].
    pub const OF_CONFIG: BondNames = BondNames {
        miimon: "miimon",
        updelay: "updelay",
        downdelay: "downdelay",
        arp_interval: "arpInterval",
        arp_ip_targets: "arpIpTargets",
        arp_validate: "arpValidate",
        resend_igmp: "resendIGMP",
        min_links: "minLinks",
        lp_interval: "lpInterval",
        packets_per_slave: "packetsPerSlave",
        tlb_logical_lb: "tlbLogicalLb",
        peer_notif_delay: "peerNotifDelay",
        ad_actor_sys_prio: "adActorSysPrio",
        ad_user_port_key: "adUserPortKey",
    };
}

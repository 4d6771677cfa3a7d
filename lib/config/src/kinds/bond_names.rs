//! Names of a bond's settings, which differ between documents.

/// Names of a bond's checked settings in a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BondNames {
    pub(crate) miimon: &'static str,
    pub(crate) updelay: &'static str,
    pub(crate) downdelay: &'static str,
    pub(crate) arp_interval: &'static str,
    pub(crate) arp_ip_targets: &'static str,
    pub(crate) arp_validate: &'static str,
    pub(crate) resend_igmp: &'static str,
    pub(crate) min_links: &'static str,
    pub(crate) lp_interval: &'static str,
    pub(crate) packets_per_slave: &'static str,
    pub(crate) tlb_logical_lb: &'static str,
    pub(crate) peer_notif_delay: &'static str,
    pub(crate) ad_actor_sys_prio: &'static str,
    pub(crate) ad_user_port_key: &'static str,
}

impl BondNames {
    /// The names in [`super::BondConfig`].
    pub(crate) const OF_CONFIG: BondNames = BondNames {
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

//! Conversion of a bond from either form of the machine config.

use corten_config::kinds::BondConfig;
use corten_config::v1alpha1::LegacyBond;

use crate::network_kind::Bond;

impl From<&BondConfig> for Bond {
    fn from(config: &BondConfig) -> Bond {
        Bond {
            mode: config.mode,
            xmit_hash_policy: config.xmit_hash_policy,
            lacp_rate: config.lacp_rate,
            arp_validate: config.arp_validate,
            arp_all_targets: config.arp_all_targets,
            primary_reselect: config.primary_reselect,
            fail_over_mac: config.fail_over_mac,
            ad_select: config.ad_select,
            miimon: config.miimon,
            updelay: config.updelay,
            downdelay: config.downdelay,
            arp_interval: config.arp_interval,
            resend_igmp: config.resend_igmp,
            min_links: config.min_links,
            lp_interval: config.lp_interval,
            packets_per_slave: config.packets_per_slave,
            num_peer_notif: config.num_peer_notif,
            tlb_logical_lb: config.tlb_logical_lb,
            all_slaves_active: config.all_slaves_active,
            use_carrier: config.use_carrier,
            ad_actor_sys_prio: config.ad_actor_sys_prio,
            ad_actor_system: None,
            ad_user_port_key: config.ad_user_port_key,
            peer_notify_delay: config.peer_notif_delay,
            arp_ip_targets: config.arp_ip_targets.clone(),
            ns_ip6_targets: config.ns_ip6_targets.clone(),
            ad_lacp_active: config.ad_lacp_active,
            missed_max: config.missed_max,
            primary: config.primary.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

impl From<&LegacyBond> for Bond {
    fn from(legacy: &LegacyBond) -> Bond {
        Bond {
            ad_actor_system: legacy.ad_actor_system.map(|mac| mac.0),
            ..Bond::from(&legacy.config())
        }
    }
}

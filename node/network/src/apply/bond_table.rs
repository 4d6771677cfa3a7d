//! The table of a bond's settings (kernel: `bond_opts` in drivers/net/bonding/bond_options.c).

use std::mem::discriminant;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_config::kinds::BondMode;
use corten_types::network_spec::Bond;
use corten_yaml::read::Word;
use rtnetlink::packet_route::link::{
    BondAdSelect, BondAllPortActive, BondArpAllTargets, BondArpValidate, BondFailOverMac,
    BondLacpRate, BondMode as KernelMode, BondPrimaryReselect, BondXmitHashPolicy,
    InfoBond as Info,
};

/// When a bond takes another value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// At any time.
    Anytime,
    /// While the bond is down (`BOND_OPTFLAG_IFDOWN`); its ports stay.
    Down,
    /// When the bond is made: with ports the kernel refuses the change (`BOND_OPTFLAG_NOSLAVES`), or they ignore it.
    Anew,
}

/// One setting.
#[derive(Debug)]
pub(super) struct Setting {
    /// Name in the kernel's documentation.
    pub(super) name: &'static str,
    /// When a bond takes another value.
    pub(super) takes: Takes,
    default: Info,
    /// Value in the config.
    pub(super) value: fn(&Bond) -> Option<Info>,
}

/// Interval of carrier checks in the modes without ARP probes (kernel: `BOND_DEFAULT_MIIMON`).
const MIIMON: u32 = 100;

/// All settings except the preferred port, in the order in which the kernel applies those of a message
/// (`bond_changelink` in drivers/net/bonding/bond_netlink.c). Delays must follow the interval of carrier checks, which
/// must be off before ARP probes start.
pub(super) static SETTINGS: [Setting; 28] = [
    row(
        "mode",
        Takes::Anew,
        Info::Mode(KernelMode::BalanceRr),
        |b| Some(Info::Mode(number(b.mode).into())),
    ),
    row("miimon", Takes::Anytime, Info::MiiMon(0), |b| {
        b.miimon.map(Info::MiiMon)
    }),
    row("updelay", Takes::Anytime, Info::UpDelay(0), |b| {
        b.updelay.map(Info::UpDelay)
    }),
    row("downdelay", Takes::Anytime, Info::DownDelay(0), |b| {
        b.downdelay.map(Info::DownDelay)
    }),
    row(
        "peer_notif_delay",
        Takes::Anytime,
        Info::PeerNotifDelay(0),
        |b| b.peer_notify_delay.map(Info::PeerNotifDelay),
    ),
    row("use_carrier", Takes::Anytime, Info::UseCarrier(true), |b| {
        b.use_carrier.map(Info::UseCarrier)
    }),
    row("arp_interval", Takes::Anytime, Info::ArpInterval(0), |b| {
        b.arp_interval.map(Info::ArpInterval)
    }),
    row(
        "arp_ip_target",
        Takes::Anytime,
        Info::ArpIpTarget(Vec::new()),
        |b| targets(&b.arp_ip_targets, v4).map(Info::ArpIpTarget),
    ),
    row(
        "ns_ip6_target",
        Takes::Anytime,
        Info::NsIp6Target(Vec::new()),
        |b| targets(&b.ns_ip6_targets, v6).map(Info::NsIp6Target),
    ),
    row(
        "arp_validate",
        Takes::Anytime,
        Info::ArpValidate(BondArpValidate::None),
        |b| {
            let which = b.arp_validate.map(|which| u32::from(number(which)));
            which.map(|which| Info::ArpValidate(which.into()))
        },
    ),
    row(
        "arp_all_targets",
        Takes::Anytime,
        Info::ArpAllTargets(BondArpAllTargets::Any),
        |b| {
            let all = b.arp_all_targets.map(|all| u32::from(number(all)));
            all.map(|all| Info::ArpAllTargets(all.into()))
        },
    ),
    row(
        "primary_reselect",
        Takes::Anytime,
        Info::PrimaryReselect(BondPrimaryReselect::Always),
        |b| {
            let when = b.primary_reselect.map(number);
            when.map(|when| Info::PrimaryReselect(when.into()))
        },
    ),
    row(
        "fail_over_mac",
        Takes::Anew,
        Info::FailOverMac(BondFailOverMac::None),
        |b| {
            let how = b.fail_over_mac.map(number);
            how.map(|how| Info::FailOverMac(how.into()))
        },
    ),
    row(
        "xmit_hash_policy",
        Takes::Anytime,
        Info::XmitHashPolicy(BondXmitHashPolicy::Layer2),
        |b| {
            let policy = b.xmit_hash_policy.map(number);
            policy.map(|policy| Info::XmitHashPolicy(policy.into()))
        },
    ),
    row("resend_igmp", Takes::Anytime, Info::ResendIgmp(1), |b| {
        b.resend_igmp.map(Info::ResendIgmp)
    }),
    row(
        "num_peer_notif",
        Takes::Anytime,
        Info::NumPeerNotif(1),
        |b| b.num_peer_notif.map(Info::NumPeerNotif),
    ),
    row(
        "all_slaves_active",
        Takes::Anytime,
        Info::AllPortsActive(BondAllPortActive::Dropped),
        |b| {
            b.all_slaves_active
                .map(|on| Info::AllPortsActive(on.into()))
        },
    ),
    row("min_links", Takes::Anytime, Info::MinLinks(0), |b| {
        b.min_links.map(Info::MinLinks)
    }),
    row("lp_interval", Takes::Anytime, Info::LpInterval(1), |b| {
        b.lp_interval.map(Info::LpInterval)
    }),
    row(
        "packets_per_slave",
        Takes::Anytime,
        Info::PacketsPerPort(1),
        |b| b.packets_per_slave.map(Info::PacketsPerPort),
    ),
    row("lacp_active", Takes::Down, Info::AdLacpActive(true), |b| {
        // On is 1 in the kernel, but the first of our words.
        let active = b.ad_lacp_active.map(number);
        active.map(|active| Info::AdLacpActive(active == 0))
    }),
    row(
        "lacp_rate",
        Takes::Down,
        Info::AdLacpRate(BondLacpRate::Slow),
        |b| {
            let rate = b.lacp_rate.map(number);
            rate.map(|rate| Info::AdLacpRate(rate.into()))
        },
    ),
    row(
        "ad_select",
        Takes::Down,
        Info::AdSelect(BondAdSelect::Stable),
        |b| {
            let how = b.ad_select.map(number);
            how.map(|how| Info::AdSelect(how.into()))
        },
    ),
    row(
        "ad_actor_sys_prio",
        Takes::Anytime,
        Info::AdActorSysPrio(65535),
        |b| b.ad_actor_sys_prio.map(Info::AdActorSysPrio),
    ),
    // The kernel takes it while the bond is down, but a port reads it only when it joins (`bond_3ad_bind_slave`).
    row(
        "ad_user_port_key",
        Takes::Anew,
        Info::AdUserPortKey(0),
        |b| b.ad_user_port_key.map(Info::AdUserPortKey),
    ),
    row(
        "ad_actor_system",
        Takes::Anytime,
        Info::AdActorSystem([0; 6]),
        |b| b.ad_actor_system.map(Info::AdActorSystem),
    ),
    row(
        "tlb_dynamic_lb",
        Takes::Down,
        Info::TlbDynamicLb(true),
        |b| b.tlb_logical_lb.map(|on| Info::TlbDynamicLb(on != 0)),
    ),
    row("arp_missed_max", Takes::Anytime, Info::MissedMax(2), |b| {
        b.missed_max.map(Info::MissedMax)
    }),
];

const fn row(
    name: &'static str,
    takes: Takes,
    default: Info,
    value: fn(&Bond) -> Option<Info>,
) -> Setting {
    Setting {
        name,
        takes,
        default,
        value,
    }
}

/// The kernel's number of a choice. Our words are in the kernel's order (`linux/if_link.h`, `linux/if_bonding.h`).
fn number<W: Word + PartialEq>(choice: W) -> u8 {
    let at = W::ALL.iter().position(|other| *other == choice);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
}

/// The addresses of one family; `None` if there are none.
fn targets<T>(all: &[IpAddr], family: fn(&IpAddr) -> Option<T>) -> Option<Vec<T>> {
    let own: Vec<T> = all.iter().filter_map(family).collect();
    (!own.is_empty()).then_some(own)
}

fn v4(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    }
}

fn v6(address: &IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    }
}

/// Whether the mode has ARP probes (kernel: `bond_mode_uses_arp`).
pub(super) fn takes_probes(mode: BondMode) -> bool {
    use BondMode::{BalanceAlb, BalanceTlb, Lacp};
    !matches!(mode, Lacp | BalanceTlb | BalanceAlb)
}

impl Setting {
    /// Whether the value is one of this setting.
    pub(super) fn has(&self, value: &Info) -> bool {
        discriminant(value) == discriminant(&self.default)
    }

    /// Value in a new bond of this mode.
    pub(super) fn default(&self, mode: BondMode) -> Info {
        match self.default {
            Info::MiiMon(_) if !takes_probes(mode) => Info::MiiMon(MIIMON),
            ref default => default.clone(),
        }
    }

    /// Value that the kernel shows. One that it does not show is that of the last applied config.
    pub(super) fn current(&self, had: Option<Info>, found: &[Info], mode: BondMode) -> Info {
        let shown = found.iter().find(|value| self.has(value)).cloned();
        shown.or(had).unwrap_or_else(|| self.default(mode))
    }

    /// Whether it is a delay, which the kernel keeps as a multiple of the interval of carrier checks.
    pub(super) fn is_delay(&self) -> bool {
        use Info::{DownDelay, PeerNotifDelay, UpDelay};
        matches!(self.default, UpDelay(_) | DownDelay(_) | PeerNotifDelay(_))
    }
}

/// A delay as the kernel shows it.
pub(super) fn rounded(delay: &Info, interval: u32) -> Info {
    let round = |ms: u32| ms - ms.checked_rem(interval).unwrap_or(0);
    match delay {
        Info::UpDelay(ms) => Info::UpDelay(round(*ms)),
        Info::DownDelay(ms) => Info::DownDelay(round(*ms)),
        Info::PeerNotifDelay(ms) => Info::PeerNotifDelay(round(*ms)),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use corten_config::kinds::{AdSelect, ArpValidate, PrimaryReselect, XmitHashPolicy};

    use super::*;

    /// The words are in the kernel's order.
    #[test]
    fn last_bond_enum_values_match_the_kernel() {
        assert_eq!(number(BondMode::BalanceAlb), 6);
        assert_eq!(number(XmitHashPolicy::VlanSrcMac), 5);
        assert_eq!(number(ArpValidate::FilterBackup), 6);
        assert_eq!(number(AdSelect::Count), 2);
        assert_eq!(number(PrimaryReselect::Failure), 2);
        assert_eq!(BondArpValidate::from(6), BondArpValidate::FilterBackup);
    }
}

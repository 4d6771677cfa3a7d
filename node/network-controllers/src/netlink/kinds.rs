//! Converts the kernel's kind-specific link settings.

use std::collections::HashMap;
use std::net::IpAddr;

use corten_config::kinds::AdLacpActive;
use corten_types::network::LinkStatus;
use corten_types::network_kind::{Bond, Bridge, Enabled, Filtering, Vlan, Vrf};
use corten_yaml::read::Word;
use rtnetlink::packet_route::link::{
    BridgeStpState, InfoBond, InfoBridge, InfoData, InfoVlan, InfoVrf, VlanProtocol,
};

/// Adds the settings of a message. `names` maps the indexes of all links to their names.
pub(super) fn add(status: &mut LinkStatus, data: &InfoData, names: &HashMap<u32, &str>) {
    match data {
        InfoData::Vlan(settings) => status.vlan = vlan(settings),
        InfoData::Bridge(settings) => status.bridge_master = Some(bridge(settings)),
        InfoData::Bond(settings) => status.bond_master = Some(bond(settings, names)),
        InfoData::Vrf(settings) => status.vrf_master = vrf(settings),
        _ => {}
    }
}

fn vlan(settings: &[InfoVlan]) -> Option<Vlan> {
    let mut protocol = "802.1q";
    let mut number = None;
    for setting in settings {
        match setting {
            InfoVlan::Id(id) => number = Some(*id),
            InfoVlan::Protocol(VlanProtocol::Ieee8021Ad) => protocol = "802.1ad",
            _ => {}
        }
    }
    number.map(|id| Vlan { id, protocol })
}

fn vrf(settings: &[InfoVrf]) -> Option<Vrf> {
    settings.iter().find_map(|setting| match setting {
        InfoVrf::TableId(table) => Some(Vrf { table: *table }),
        _ => None,
    })
}

fn bridge(settings: &[InfoBridge]) -> Bridge {
    let mut bridge = Bridge::default();
    for setting in settings {
        match setting {
            InfoBridge::StpState(state) => {
                let enabled = *state != BridgeStpState::Disabled;
                bridge.stp = Enabled { enabled };
            }
            InfoBridge::VlanFiltering(filtering_enabled) => {
                bridge.vlan = Filtering {
                    filtering_enabled: *filtering_enabled,
                };
            }
            _ => {}
        }
    }
    bridge
}

/// The kernel's numbers are the positions of the words (`linux/if_link.h`, `linux/if_bonding.h`).
fn word<W: Word>(number: impl Into<u32>) -> Option<W> {
    let at = usize::try_from(number.into()).ok()?;
    W::ALL.get(at).copied()
}

fn bond(settings: &[InfoBond], names: &HashMap<u32, &str>) -> Bond {
    let mut bond = Bond::default();
    for setting in settings {
        match setting {
            InfoBond::Mode(mode) => bond.mode = word(u8::from(*mode)).unwrap_or_default(),
            InfoBond::XmitHashPolicy(policy) => bond.xmit_hash_policy = word(u8::from(*policy)),
            InfoBond::AdLacpRate(rate) => bond.lacp_rate = word(u8::from(*rate)),
            InfoBond::ArpValidate(which) => bond.arp_validate = word(u32::from(*which)),
            InfoBond::ArpAllTargets(all) => bond.arp_all_targets = word(u32::from(*all)),
            InfoBond::PrimaryReselect(when) => bond.primary_reselect = word(u8::from(*when)),
            InfoBond::FailOverMac(how) => bond.fail_over_mac = word(u8::from(*how)),
            InfoBond::AdSelect(how) => bond.ad_select = word(u8::from(*how)),
            InfoBond::MiiMon(every) => bond.miimon = Some(*every),
            InfoBond::UpDelay(delay) => bond.updelay = Some(*delay),
            InfoBond::DownDelay(delay) => bond.downdelay = Some(*delay),
            InfoBond::ArpInterval(every) => bond.arp_interval = Some(*every),
            InfoBond::ResendIgmp(times) => bond.resend_igmp = Some(*times),
            InfoBond::MinLinks(least) => bond.min_links = Some(*least),
            InfoBond::LpInterval(every) => bond.lp_interval = Some(*every),
            InfoBond::PacketsPerPort(packets) => bond.packets_per_slave = Some(*packets),
            InfoBond::NumPeerNotif(times) => bond.num_peer_notif = Some(*times),
            InfoBond::TlbDynamicLb(is_on) => bond.tlb_logical_lb = Some(u8::from(*is_on)),
            InfoBond::AllPortsActive(state) => bond.all_slaves_active = Some(u8::from(*state)),
            InfoBond::UseCarrier(is_on) => bond.use_carrier = Some(*is_on),
            InfoBond::AdActorSysPrio(priority) => bond.ad_actor_sys_prio = Some(*priority),
            InfoBond::AdActorSystem(address) => bond.ad_actor_system = Some(*address),
            InfoBond::AdUserPortKey(key) => bond.ad_user_port_key = Some(*key),
            InfoBond::PeerNotifDelay(delay) => bond.peer_notify_delay = Some(*delay),
            InfoBond::ArpIpTarget(targets) => {
                bond.arp_ip_targets = targets.iter().copied().map(IpAddr::V4).collect();
            }
            InfoBond::NsIp6Target(targets) => {
                bond.ns_ip6_targets = targets.iter().copied().map(IpAddr::V6).collect();
            }
            InfoBond::AdLacpActive(true) => bond.ad_lacp_active = Some(AdLacpActive::On),
            InfoBond::AdLacpActive(false) => bond.ad_lacp_active = Some(AdLacpActive::Off),
            InfoBond::MissedMax(most) => bond.missed_max = Some(*most),
            InfoBond::Primary(index) => {
                bond.primary = names.get(index).copied().unwrap_or_default().to_owned();
            }
            _ => {}
        }
    }
    bond
}

#[cfg(test)]
mod tests {
    use corten_config::kinds::{BondMode, XmitHashPolicy};
    use rtnetlink::packet_route::link::{BondMode as KernelMode, BondXmitHashPolicy};

    use super::*;

    fn with(data: &InfoData) -> LinkStatus {
        let mut status = LinkStatus::with_device();
        add(&mut status, data, &HashMap::from([(3, "eth1")]));
        status
    }

    #[test]
    fn bond_status_shows_its_settings() {
        let status = with(&InfoData::Bond(vec![
            InfoBond::Mode(KernelMode::Ieee8023Ad),
            InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
            InfoBond::MiiMon(100),
            InfoBond::AdLacpActive(true),
            InfoBond::ArpIpTarget(vec![[192, 0, 2, 1].into()]),
            InfoBond::Primary(3),
            InfoBond::CoupledControl(true),
        ]));
        let expected = Bond {
            mode: BondMode::Lacp,
            xmit_hash_policy: Some(XmitHashPolicy::Layer34),
            miimon: Some(100),
            ad_lacp_active: Some(AdLacpActive::On),
            arp_ip_targets: vec!["192.0.2.1".parse().unwrap()],
            primary: "eth1".to_owned(),
            ..Bond::default()
        };
        assert_eq!(status.bond_master, Some(expected));
        assert_eq!(status.vlan, None);
        let gone = with(&InfoData::Bond(vec![InfoBond::Primary(9)]));
        assert_eq!(gone.bond_master, Some(Bond::default()));
    }

    #[test]
    fn vlan_bridge_and_vrf_status_show_their_settings() {
        let vlan = with(&InfoData::Vlan(vec![
            InfoVlan::Protocol(VlanProtocol::Ieee8021Ad),
            InfoVlan::Id(7),
        ]));
        let expected = Vlan {
            id: 7,
            protocol: "802.1ad",
        };
        assert_eq!(vlan.vlan, Some(expected));
        assert_eq!(with(&InfoData::Vlan(Vec::new())).vlan, None);
        let bridge = with(&InfoData::Bridge(vec![
            InfoBridge::StpState(BridgeStpState::KernelStp),
            InfoBridge::VlanFiltering(true),
        ]));
        let bridge = bridge.bridge_master.unwrap();
        assert!(bridge.stp.enabled && bridge.vlan.filtering_enabled);
        let vrf = with(&InfoData::Vrf(vec![InfoVrf::TableId(100)]));
        assert_eq!(vrf.vrf_master, Some(Vrf { table: 100 }));
    }
}

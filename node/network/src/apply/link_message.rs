//! Builds the rtnetlink message that creates a link.

use std::net::IpAddr;

use corten_config::kinds;
use corten_types::network_spec::{Bond, LinkSpec};
use corten_yaml::read::Word;
use rtnetlink::packet_route::link::{
    BondAdSelect, BondAllPortActive, BondArpAllTargets, BondArpValidate, BondFailOverMac,
    BondLacpRate, BondMode, BondPrimaryReselect, BondXmitHashPolicy, BridgeStpState, InfoKind,
    LinkMessage, VlanProtocol,
};
use rtnetlink::{
    LinkBond, LinkBridge, LinkDummy, LinkMessageBuilder, LinkVeth, LinkVlan, LinkVrf, LinkWireguard,
};

use crate::wireguard;

/// Builds the message that creates a link. `index` maps a link's name to its index.
///
/// # Errors
/// Names the missing part: the kind, or the link below.
pub(super) fn make(
    spec: &LinkSpec,
    index: impl Fn(&str) -> Option<u32>,
) -> Result<LinkMessage, String> {
    let needed = |name: &str| index(name).ok_or_else(|| format!("there is no link {name}"));
    Ok(match (spec.kind, &spec.vlan, &spec.bond_master) {
        ("dummy", ..) => finish(LinkDummy::new(&spec.name), spec),
        ("vlan", Some(vlan), _) => {
            let parent = needed(&spec.parent_name)?;
            let protocol = if vlan.protocol == "802.1ad" {
                VlanProtocol::Ieee8021Ad
            } else {
                VlanProtocol::Ieee8021Q
            };
            let message = LinkVlan::new(&spec.name, parent, vlan.id);
            finish(message.protocol(protocol), spec)
        }
        ("bond", _, Some(settings)) => {
            finish(bond(LinkBond::new(&spec.name), settings, index), spec)
        }
        ("bridge", ..) => {
            let settings = spec.bridge_master.unwrap_or_default();
            let stp = if settings.stp.enabled {
                BridgeStpState::KernelStp
            } else {
                BridgeStpState::Disabled
            };
            let mut message = LinkBridge::new(&spec.name).stp_state(stp);
            // A kernel without bridge VLAN support refuses the attribute even when it is off.
            if settings.vlan.filtering_enabled {
                message = message.vlan_filtering(true);
            }
            finish(message, spec)
        }
        ("veth", ..) => {
            let peer = spec.veth.as_ref().map_or("", |veth| &veth.peer_name);
            finish(LinkVeth::new(&spec.name, peer), spec)
        }
        ("vrf", ..) => {
            let table = spec.vrf_master.map_or(0, |vrf| vrf.table);
            finish(LinkVrf::new(&spec.name, table), spec)
        }
        // Keys and peers travel by generic netlink.
        (wireguard::KIND, ..) => finish(LinkWireguard::new(&spec.name), spec),
        (kind, ..) => return Err(format!("links of kind {kind:?} are not supported")),
    })
}

fn finish<T>(mut message: LinkMessageBuilder<T>, spec: &LinkSpec) -> LinkMessage {
    if let Some(address) = spec.hardware_addr {
        message = message.address(address.to_vec());
    }
    if spec.mtu != 0 {
        message = message.mtu(spec.mtu);
    }
    message.build()
}

type BondMessage = LinkMessageBuilder<LinkBond>;

/// Adds an optional setting.
fn with<T>(
    message: BondMessage,
    value: Option<T>,
    add: impl FnOnce(BondMessage, T) -> BondMessage,
) -> BondMessage {
    match value {
        Some(value) => add(message, value),
        None => message,
    }
}

/// The kernel's number of a choice. Our words are in the kernel's order (`linux/if_link.h`, `linux/if_bonding.h`).
fn number<W: Word + PartialEq>(choice: W) -> u8 {
    let at = W::ALL.iter().position(|other| *other == choice);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
}

/// Whether the bond's mode has a preferred port.
pub(super) fn prefers_a_port(bond: &Bond) -> bool {
    use kinds::BondMode::{ActiveBackup, BalanceAlb, BalanceTlb};
    matches!(bond.mode, ActiveBackup | BalanceAlb | BalanceTlb)
}

/// The message by which the bond with this index prefers the port with that one; 0: none. It counts only as a message
/// that makes a link: others cannot change the settings of a kind.
pub(super) fn prefer(bond: u32, port: u32) -> LinkMessage {
    let message = BondMessage::new_with_info_kind(InfoKind::Bond);
    message.index(bond).primary(port).build()
}

/// Drops the settings that the kernel rejects in the bond's mode, or without link monitoring. One of them fails the
/// whole bond (kernel: `unsuppmodes` in drivers/net/bonding/bond_options.c). Specs in META always contain every
/// setting.
fn counting(bond: &Bond) -> Bond {
    let mut bond = bond.clone();
    let is_lacp = bond.mode == kinds::BondMode::Lacp;
    let balances = matches!(
        bond.mode,
        kinds::BondMode::BalanceTlb | kinds::BondMode::BalanceAlb
    );
    if !is_lacp {
        bond.lacp_rate = None;
        bond.ad_lacp_active = None;
        bond.ad_actor_sys_prio = None;
        bond.ad_actor_system = None;
        bond.ad_user_port_key = None;
    }
    if is_lacp || balances {
        bond.arp_interval = None;
        bond.arp_validate = None;
        bond.missed_max = None;
    }
    if !balances {
        bond.tlb_logical_lb = None;
    }
    if !prefers_a_port(&bond) {
        bond.primary.clear();
    }
    if bond.mode != kinds::BondMode::BalanceRr {
        bond.packets_per_slave = None;
    }
    if bond.miimon.unwrap_or_default() == 0 {
        bond.updelay = None;
        bond.downdelay = None;
        bond.peer_notify_delay = None;
    }
    bond
}

fn bond(message: BondMessage, bond: &Bond, index: impl Fn(&str) -> Option<u32>) -> BondMessage {
    let bond = counting(bond);
    let v4 = |address: &IpAddr| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    };
    let v6 = |address: &IpAddr| match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    };
    let v4s: Vec<_> = bond.arp_ip_targets.iter().filter_map(v4).collect();
    let v6s: Vec<_> = bond.ns_ip6_targets.iter().filter_map(v6).collect();
    let mut m = message.mode(BondMode::from(number(bond.mode)));
    m = with(m, bond.xmit_hash_policy, |m, policy| {
        m.xmit_hash_policy(BondXmitHashPolicy::from(number(policy)))
    });
    m = with(m, bond.lacp_rate, |m, rate| {
        m.ad_lacp_rate(BondLacpRate::from(number(rate)))
    });
    m = with(m, bond.arp_validate, |m, validate| {
        m.arp_validate(BondArpValidate::from(u32::from(number(validate))))
    });
    m = with(m, bond.arp_all_targets, |m, all| {
        m.arp_all_targets(BondArpAllTargets::from(u32::from(number(all))))
    });
    m = with(m, bond.primary_reselect, |m, reselect| {
        m.primary_reselect(BondPrimaryReselect::from(number(reselect)))
    });
    m = with(m, bond.fail_over_mac, |m, fail_over| {
        m.fail_over_mac(BondFailOverMac::from(number(fail_over)))
    });
    m = with(m, bond.ad_select, |m, select| {
        m.ad_select(BondAdSelect::from(number(select)))
    });
    m = with(m, bond.miimon, BondMessage::miimon);
    m = with(m, bond.updelay, BondMessage::updelay);
    m = with(m, bond.downdelay, BondMessage::downdelay);
    m = with(m, bond.arp_interval, BondMessage::arp_interval);
    m = with(m, bond.resend_igmp, BondMessage::resend_igmp);
    m = with(m, bond.min_links, BondMessage::min_links);
    m = with(m, bond.lp_interval, BondMessage::lp_interval);
    m = with(m, bond.packets_per_slave, BondMessage::packets_per_port);
    m = with(m, bond.num_peer_notif, BondMessage::num_peer_notif);
    m = with(m, bond.tlb_logical_lb, |m, on| m.tlb_dynamic_lb(on != 0));
    m = with(m, bond.all_slaves_active, |m, on| {
        m.all_ports_active(BondAllPortActive::from(on))
    });
    m = with(m, bond.use_carrier, BondMessage::use_carrier);
    m = with(m, bond.ad_actor_sys_prio, BondMessage::ad_actor_sys_prio);
    m = with(m, bond.ad_actor_system, BondMessage::ad_actor_system);
    m = with(m, bond.ad_user_port_key, BondMessage::ad_user_port_key);
    m = with(m, bond.peer_notify_delay, BondMessage::peer_notif_delay);
    m = with(
        m,
        Some(v4s).filter(|all| !all.is_empty()),
        BondMessage::arp_ip_target,
    );
    m = with(
        m,
        Some(v6s).filter(|all| !all.is_empty()),
        BondMessage::ns_ip6_target,
    );
    m = with(m, bond.ad_lacp_active, |m, active| {
        // On is 1 in the kernel, but the first of our words.
        m.ad_lacp_active(number(active) == 0)
    });
    m = with(m, bond.missed_max, BondMessage::missed_max);
    with(m, index(&bond.primary), BondMessage::primary)
}

#[cfg(test)]
mod tests {
    use corten_types::network_spec::Vlan;
    use rtnetlink::packet_route::link::{InfoBond, InfoData, LinkAttribute, LinkInfo};

    use super::*;

    fn spec(kind: &'static str) -> LinkSpec {
        LinkSpec {
            name: "x0".to_owned(),
            logical: true,
            kind,
            ..LinkSpec::default()
        }
    }

    #[test]
    fn preferred_port_is_set_on_a_bond_that_exists() {
        let message = prefer(7, 3);
        assert_eq!(message.header.index, 7);
        let InfoData::Bond(settings) = data(&message) else {
            panic!("{message:?}");
        };
        assert_eq!(*settings, [InfoBond::Primary(3)]);
    }

    fn data(message: &LinkMessage) -> &InfoData {
        let infos = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::LinkInfo(infos) => Some(infos),
                _ => None,
            });
        let data = infos.unwrap().iter().find_map(|info| match info {
            LinkInfo::Data(data) => Some(data),
            _ => None,
        });
        data.unwrap()
    }

    #[test]
    fn bond_message_has_the_settings_of_the_config() {
        let bond = LinkSpec {
            mtu: 9000,
            bond_master: Some(Bond {
                mode: kinds::BondMode::Lacp,
                lacp_rate: Some(kinds::LacpRate::Fast),
                xmit_hash_policy: Some(kinds::XmitHashPolicy::Layer34),
                fail_over_mac: Some(kinds::FailOverMac::Follow),
                ad_lacp_active: Some(kinds::AdLacpActive::Off),
                miimon: Some(100),
                ..Bond::default()
            }),
            ..spec("bond")
        };
        let message = make(&bond, |_| None).unwrap();
        assert!(message.attributes.contains(&LinkAttribute::Mtu(9000)));
        let InfoData::Bond(settings) = data(&message) else {
            panic!("{message:?}");
        };
        let expected = [
            InfoBond::Mode(BondMode::Ieee8023Ad),
            InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
            InfoBond::AdLacpRate(BondLacpRate::Fast),
            InfoBond::FailOverMac(BondFailOverMac::Follow),
            InfoBond::MiiMon(100),
            InfoBond::AdLacpActive(false),
        ];
        assert_eq!(settings.as_slice(), expected);
    }

    /// The kernel refuses the whole bond for a setting that its mode does not support.
    #[test]
    fn bond_message_has_only_settings_valid_in_its_mode() {
        let told = |mode, miimon| {
            let every = Bond {
                mode,
                miimon,
                lacp_rate: Some(kinds::LacpRate::Slow),
                ad_lacp_active: Some(kinds::AdLacpActive::On),
                ad_actor_sys_prio: Some(65535),
                ad_actor_system: Some([2, 0, 0, 0, 0, 1]),
                ad_user_port_key: Some(0),
                arp_interval: Some(0),
                arp_validate: Some(kinds::ArpValidate::None),
                missed_max: Some(2),
                tlb_logical_lb: Some(1),
                packets_per_slave: Some(1),
                updelay: Some(200),
                downdelay: Some(200),
                peer_notify_delay: Some(0),
                primary: "eth1".to_owned(),
                ..Bond::default()
            };
            let spec = LinkSpec {
                bond_master: Some(every),
                ..spec("bond")
            };
            let message = make(&spec, |name| (name == "eth1").then_some(7)).unwrap();
            let InfoData::Bond(settings) = data(&message) else {
                panic!("{message:?}");
            };
            settings.clone()
        };
        let delays = [
            InfoBond::UpDelay(200),
            InfoBond::DownDelay(200),
            InfoBond::PeerNotifDelay(0),
        ];
        let of_lacp = InfoBond::AdLacpRate(BondLacpRate::Slow);
        let (of_rr, of_tlb) = (InfoBond::PacketsPerPort(1), InfoBond::TlbDynamicLb(true));
        let (probes, primary) = (InfoBond::ArpInterval(0), InfoBond::Primary(7));
        for (mode, count, others) in [
            (
                kinds::BondMode::Lacp,
                vec![&of_lacp],
                vec![&of_rr, &of_tlb, &probes, &primary],
            ),
            (
                kinds::BondMode::BalanceRr,
                vec![&of_rr, &probes],
                vec![&of_lacp, &of_tlb, &primary],
            ),
            (
                kinds::BondMode::BalanceTlb,
                vec![&of_tlb, &primary],
                vec![&of_lacp, &of_rr, &probes],
            ),
            (
                kinds::BondMode::ActiveBackup,
                vec![&primary, &probes],
                vec![&of_lacp, &of_rr, &of_tlb],
            ),
        ] {
            let settings = told(mode, Some(100));
            assert!(
                count.iter().all(|one| settings.contains(one)),
                "{settings:?}"
            );
            assert!(
                !others.iter().any(|one| settings.contains(one)),
                "{settings:?}"
            );
            assert!(delays.iter().all(|delay| settings.contains(delay)));
            for miimon in [None, Some(0)] {
                let settings = told(mode, miimon);
                assert!(!delays.iter().any(|delay| settings.contains(delay)));
            }
        }
    }

    /// The words are in the kernel's order.
    #[test]
    fn last_bond_enum_values_match_the_kernel() {
        assert_eq!(number(kinds::BondMode::BalanceAlb), 6);
        assert_eq!(number(kinds::XmitHashPolicy::VlanSrcMac), 5);
        assert_eq!(number(kinds::ArpValidate::FilterBackup), 6);
        assert_eq!(number(kinds::AdSelect::Count), 2);
        assert_eq!(number(kinds::PrimaryReselect::Failure), 2);
        assert_eq!(BondArpValidate::from(6), BondArpValidate::FilterBackup);
    }

    #[test]
    fn vlan_requires_its_parent() {
        let vlan = LinkSpec {
            parent_name: "eth0".to_owned(),
            vlan: Some(Vlan {
                id: 5,
                protocol: "802.1ad",
            }),
            ..spec("vlan")
        };
        let error = make(&vlan, |_| None).unwrap_err();
        assert_eq!(error, "there is no link eth0");
        let message = make(&vlan, |_| Some(3)).unwrap();
        assert!(message.attributes.contains(&LinkAttribute::Link(3)));
        assert!(
            make(&spec("magic"), |_| None)
                .unwrap_err()
                .contains("magic")
        );
    }
}

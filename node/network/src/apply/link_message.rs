//! Builds the rtnetlink messages that create a link, and that change a bond.

use corten_types::network_spec::{Bond, LinkSpec};
use rtnetlink::packet_route::link::{
    BridgeStpState, InfoBond, InfoKind, LinkMessage, VlanProtocol,
};
use rtnetlink::{
    LinkBond, LinkBridge, LinkDummy, LinkMessageBuilder, LinkVeth, LinkVlan, LinkVrf, LinkWireguard,
};

use super::bond;
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
        ("bond", _, Some(settings)) => make_bond(spec, settings, index),
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

/// Makes a bond. A preferred port that does not exist yet is set once it is in the bond.
fn make_bond(spec: &LinkSpec, settings: &Bond, index: impl Fn(&str) -> Option<u32>) -> LinkMessage {
    let port = bond::primary(settings).and_then(index);
    let settings = bond::made_with(settings).into_iter();
    let all = settings.chain(port.map(InfoBond::Primary));
    let message = all.fold(LinkBond::new(&spec.name), BondMessage::append_info_data);
    finish(message, spec)
}

/// The message that changes settings of the bond with this index. It counts only as a message that makes a link: others
/// cannot change the settings of a kind.
pub(super) fn change_bond(index: u32, settings: &[InfoBond]) -> LinkMessage {
    let message = BondMessage::new_with_info_kind(InfoKind::Bond).index(index);
    let settings = settings.iter().cloned();
    let message = settings.fold(message, BondMessage::append_info_data);
    message.build()
}

#[cfg(test)]
mod tests {
    use corten_config::kinds;
    use corten_types::network_spec::Vlan;
    use rtnetlink::packet_route::link::{
        BondFailOverMac, BondLacpRate, BondMode, BondXmitHashPolicy, InfoData, LinkAttribute,
        LinkInfo,
    };

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
        let message = change_bond(7, &[InfoBond::Primary(3)]);
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
            InfoBond::MiiMon(100),
            InfoBond::FailOverMac(BondFailOverMac::Follow),
            InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
            InfoBond::AdLacpActive(false),
            InfoBond::AdLacpRate(BondLacpRate::Fast),
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

//! Tests bonds on the real kernel, each test in its own network namespace.

use corten_base::testing::{alone, kernel_lacks};
use corten_config::kinds::{
    AdLacpActive, AdSelect, ArpAllTargets, ArpValidate, BondMode, FailOverMac, LacpRate,
    PrimaryReselect, XmitHashPolicy,
};
use corten_types::network_spec::Bond;
use corten_yaml::read::Word as _;
use rtnetlink::packet_route::link::{BondXmitHashPolicy, InfoBond};

use super::kernel_tests::{applied, with_cable};
use super::tests::{LAYER, all, prefix};
use super::{FoundLink, FoundRoute, Kernel as _, Memory, Rtnetlink, Units};
use crate::layers::{Specs, route};

/// The kernel removes it while the link is down.
const SIX: &str = "fd00::2/64";

/// A bond with one port, addresses and a route.
fn bonded(settings: &Bond) -> Units {
    let mut specs = Specs::default();
    specs.link(LAYER, "plug");
    let bond = specs.link(LAYER, "bond0");
    (bond.logical, bond.kind) = (true, "bond");
    bond.bond_master = Some(settings.clone());
    "bond0".clone_into(&mut specs.link(LAYER, "cable").bond_name);
    specs.address(LAYER, "bond0", prefix("10.0.0.2/24"), 0);
    specs.address(LAYER, "bond0", prefix(SIX), 0);
    let gateway = Some("10.0.0.1".parse().unwrap());
    let everywhere = prefix("0.0.0.0/0");
    specs
        .routes
        .push(route(LAYER, "bond0", everywhere, gateway));
    all(&specs)
}

/// Every setting that an existing bond takes, other than the default.
fn every_setting(mode: BondMode) -> Bond {
    Bond {
        mode,
        miimon: Some(50),
        updelay: Some(120),
        downdelay: Some(100),
        peer_notify_delay: Some(150),
        use_carrier: Some(true),
        arp_all_targets: Some(ArpAllTargets::All),
        arp_ip_targets: vec!["10.0.0.1".parse().unwrap(), "10.0.0.9".parse().unwrap()],
        ns_ip6_targets: vec!["fd00::1".parse().unwrap()],
        primary_reselect: Some(PrimaryReselect::Failure),
        xmit_hash_policy: Some(XmitHashPolicy::Layer34),
        resend_igmp: Some(3),
        num_peer_notif: Some(4),
        all_slaves_active: Some(1),
        min_links: Some(1),
        lp_interval: Some(2),
        packets_per_slave: Some(8),
        ad_lacp_active: Some(AdLacpActive::Off),
        lacp_rate: Some(LacpRate::Fast),
        ad_select: Some(AdSelect::Count),
        ad_actor_sys_prio: Some(100),
        ad_actor_system: Some([2, 0, 0, 0, 0, 9]),
        tlb_logical_lb: Some(0),
        missed_max: Some(3),
        primary: "cable".to_owned(),
        ..Bond::default()
    }
}

/// Applies the settings. Returns the bond, or `None` if the kernel has none.
async fn take(kernel: &Rtnetlink, memory: &mut Memory, settings: &Bond) -> Option<FoundLink> {
    let complaints = applied(kernel, memory, &bonded(settings)).await;
    if complaints.iter().any(|text| text.contains("not supported")) {
        kernel_lacks("bonds");
        return None;
    }
    assert_eq!(complaints, [""; 0], "{settings:?}");
    let found = kernel.look().await.unwrap();
    let bond = &found.links["bond0"];
    assert!(bond.is_up);
    assert_eq!(found.links["cable"].master, bond.index);
    let six = (bond.index, prefix(SIX));
    assert!(found.addresses.contains_key(&six), "{found:#?}");
    let way = |route: &FoundRoute| route.dst.length == 0 && route.link == bond.index;
    assert!(found.routes.iter().any(way), "{found:#?}");
    Some(bond.clone())
}

#[test]
fn settings_of_a_running_bond_change_in_place() {
    alone(async {
        let kernel = with_cable().await;
        for mode in BondMode::ALL.iter().copied() {
            let mut memory = Memory::default();
            let plain = Bond {
                mode,
                ..Bond::default()
            };
            let Some(first) = take(&kernel, &mut memory, &plain).await else {
                return;
            };
            let every = every_setting(mode);
            let second = take(&kernel, &mut memory, &every).await.unwrap();
            assert_eq!(second.index, first.index);
            assert!(second.bond.contains(&InfoBond::MiiMon(50)), "{second:?}");
            let policy = InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34);
            assert!(second.bond.contains(&policy), "{second:?}");
            // Without a setting in the config, each returns to the default.
            let third = take(&kernel, &mut memory, &plain).await.unwrap();
            assert_eq!((third.index, &third.bond), (first.index, &first.bond));
            // ARP probes take the place of the checks of the carrier, and leave it.
            let probes = Bond {
                miimon: None,
                arp_interval: Some(500),
                arp_validate: Some(ArpValidate::All),
                ..every.clone()
            };
            take(&kernel, &mut memory, &every).await.unwrap();
            take(&kernel, &mut memory, &probes).await.unwrap();
            let last = take(&kernel, &mut memory, &every).await.unwrap();
            assert_eq!((last.index, &last.bond), (first.index, &second.bond));
            // The kernel refuses this one while the bond has ports.
            let anew = Bond {
                fail_over_mac: Some(FailOverMac::Active),
                ..every
            };
            let bond = take(&kernel, &mut memory, &anew).await.unwrap();
            assert_ne!(bond.index, first.index);
            let nothing = applied(&kernel, &mut memory, &Units::new()).await;
            assert_eq!(nothing, [""; 0]);
        }
    });
}

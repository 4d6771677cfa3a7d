//! Tests which settings of a bond change in place.

use corten_config::kinds::{AdLacpActive, ArpValidate, BondMode, FailOverMac, LacpRate};
use corten_config::kinds::{AdSelect, XmitHashPolicy};
use corten_types::network_spec::Bond;
use rtnetlink::packet_route::link::{BondArpValidate, BondLacpRate, BondXmitHashPolicy};

use super::bond::{change, is_made_alike, made_with, names};
use super::tests::{Fake, LAYER, apply_to, bonded, prefix};
use super::*;
use crate::layers::route;

/// Changes the settings of `bond0`.
fn with(mut units: Units, settings: impl FnOnce(&mut Bond)) -> Units {
    let link = units.get_mut("bond0").unwrap().link.as_mut().unwrap();
    settings(link.bond_master.as_mut().unwrap());
    units
}

fn of(mode: BondMode, settings: impl FnOnce(&mut Bond)) -> Bond {
    let mut bond = Bond {
        mode,
        ..Bond::default()
    };
    settings(&mut bond);
    bond
}

#[test]
fn bond_is_made_anew_only_for_settings_that_its_ports_do_not_take() {
    let lacp = |settings: fn(&mut Bond)| of(BondMode::Lacp, settings);
    let plain = lacp(|_| {});
    let anew: [fn(&mut Bond); 3] = [
        |b| b.mode = BondMode::BalanceXor,
        |b| b.fail_over_mac = Some(FailOverMac::Active),
        |b| b.ad_user_port_key = Some(7),
    ];
    for settings in anew {
        assert!(!is_made_alike(&plain, &lacp(settings)));
        assert!(!is_made_alike(&lacp(settings), &plain));
    }
    let in_place = lacp(|b| {
        b.miimon = Some(50);
        b.updelay = Some(100);
        b.lacp_rate = Some(LacpRate::Fast);
        b.ad_select = Some(AdSelect::Count);
        b.xmit_hash_policy = Some(XmitHashPolicy::Layer34);
        b.min_links = Some(2);
        "eth1".clone_into(&mut b.primary);
    });
    assert!(is_made_alike(&plain, &in_place));
    // The default counts as no setting, and so does a setting of another mode.
    let default = lacp(|b| {
        b.fail_over_mac = Some(FailOverMac::None);
        b.ad_user_port_key = Some(0);
    });
    assert!(is_made_alike(&plain, &default));
    let other = |key| of(BondMode::BalanceXor, |b| b.ad_user_port_key = key);
    assert!(is_made_alike(&other(None), &other(Some(7))));
}

#[test]
fn bond_gets_only_settings_that_differ_from_what_the_kernel_shows() {
    let wanted = of(BondMode::BalanceXor, |b| {
        b.miimon = Some(100);
        b.updelay = Some(250);
        b.min_links = Some(1);
        b.xmit_hash_policy = Some(XmitHashPolicy::Layer34);
        // The kernel refuses it in this mode.
        b.lacp_rate = Some(LacpRate::Fast);
    });
    let had = of(BondMode::BalanceXor, |b| b.resend_igmp = Some(3));
    // A delay is a multiple of the interval of the checks. What was never set stays, as `lp_interval` does.
    let found = [
        InfoBond::MiiMon(100),
        InfoBond::UpDelay(200),
        InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer2),
        InfoBond::ResendIgmp(3),
        InfoBond::MinLinks(1),
        InfoBond::LpInterval(9),
    ];
    let expected = [
        InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
        InfoBond::ResendIgmp(1),
    ];
    let changed = change(Some(&had), &wanted, &found);
    assert_eq!(changed, expected);
    assert_eq!(names(&changed), "xmit_hash_policy, resend_igmp");
    // What the kernel does not show counts as applied.
    assert_eq!(change(Some(&wanted), &wanted, &[]), []);
}

#[test]
fn delays_follow_a_new_interval_of_carrier_checks() {
    let delayed = |interval, delay| {
        of(BondMode::ActiveBackup, |b| {
            (b.miimon, b.updelay) = (interval, delay);
        })
    };
    let two = InfoBond::UpDelay(200);
    let none = [InfoBond::DownDelay(0), InfoBond::PeerNotifDelay(0)];
    let had = delayed(Some(100), Some(200));
    let found = [&[InfoBond::MiiMon(100), two.clone()], &none[..]].concat();
    let slower = change(Some(&had), &delayed(Some(200), Some(200)), &found);
    let expected = [&[InfoBond::MiiMon(200), two], &none[..]].concat();
    assert_eq!(slower, expected);
    // The kernel refuses a delay without checks, but keeps it for the next ones.
    let off = change(Some(&had), &delayed(None, Some(200)), &found);
    assert_eq!(off, [InfoBond::MiiMon(0)]);
    let idle = [&[InfoBond::MiiMon(0), InfoBond::UpDelay(0)], &none[..]].concat();
    let again = change(Some(&delayed(None, None)), &delayed(Some(100), None), &idle);
    let expected = [&[InfoBond::MiiMon(100), InfoBond::UpDelay(0)], &none[..]].concat();
    assert_eq!(again, expected);
}

#[test]
fn carrier_checks_and_arp_probes_replace_each_other() {
    let checks = of(BondMode::ActiveBackup, |b| b.miimon = Some(100));
    let target = [192, 0, 2, 1];
    let probes = of(BondMode::ActiveBackup, |b| {
        b.arp_interval = Some(1000);
        b.arp_ip_targets = vec![target.into()];
        b.arp_validate = Some(ArpValidate::All);
    });
    let on = [
        InfoBond::MiiMon(0),
        InfoBond::ArpInterval(1000),
        InfoBond::ArpIpTarget(vec![target.into()]),
        InfoBond::ArpValidate(BondArpValidate::All),
    ];
    let found = [InfoBond::MiiMon(100), InfoBond::ArpInterval(0)];
    assert_eq!(change(Some(&checks), &probes, &found), on);
    let off = [
        InfoBond::MiiMon(100),
        InfoBond::UpDelay(0),
        InfoBond::DownDelay(0),
        InfoBond::PeerNotifDelay(0),
        InfoBond::ArpInterval(0),
        InfoBond::ArpIpTarget(vec![]),
        InfoBond::ArpValidate(BondArpValidate::None),
    ];
    assert_eq!(change(Some(&probes), &checks, &on), off);
    // A mode without probes always has checks.
    let lacp = |miimon| of(BondMode::Lacp, |b| b.miimon = miimon);
    let back = change(Some(&lacp(Some(50))), &lacp(None), &[InfoBond::MiiMon(50)]);
    assert_eq!(back[0], InfoBond::MiiMon(100));
}

#[tokio::test]
async fn changed_settings_keep_a_running_bond() {
    let (fake, mut memory) = (Fake::with(&["eth0", "eth1"]), Memory::default());
    let plain = bonded(BondMode::Lacp);
    let slow = with(plain.clone(), |b| b.miimon = Some(100));
    assert!(apply_to(&fake, &mut memory, &slow).await.is_empty());
    let index = fake.look().await.unwrap().links["bond0"].index;
    fake.taken();
    let fast = with(slow.clone(), |b| {
        b.miimon = Some(50);
        b.xmit_hash_policy = Some(XmitHashPolicy::Layer34);
    });
    assert!(apply_to(&fake, &mut memory, &fast).await.is_empty());
    let step = "set miimon, updelay, downdelay, peer_notif_delay, xmit_hash_policy of bond0";
    assert_eq!(fake.taken(), [step]);
    assert!(apply_to(&fake, &mut memory, &plain).await.is_empty());
    assert_eq!(fake.taken(), [step]);
    let found = fake.look().await.unwrap();
    let settings = &found.links["bond0"].bond;
    let default = InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer2);
    assert!(settings.contains(&default) && settings.contains(&InfoBond::MiiMon(100)));
    assert_eq!(found.links["bond0"].index, index);
    assert_eq!(found.links["eth1"].master, index);
    // Another program changes a setting.
    let other = |link: &mut FoundLink| link.bond = vec![InfoBond::MiiMon(7)];
    assert!(apply_to(&fake, &mut memory, &slow).await.is_empty());
    other(fake.found.lock().unwrap().links.get_mut("bond0").unwrap());
    fake.taken();
    assert!(apply_to(&fake, &mut memory, &slow).await.is_empty());
    assert!(fake.taken()[0].starts_with("set miimon, "));
}

#[tokio::test]
async fn bond_is_down_only_for_settings_that_need_it() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let mut slow = bonded(BondMode::Lacp);
    let gateway = Some("10.0.0.1".parse().unwrap());
    let way = route(LAYER, "bond0", prefix("0.0.0.0/0"), gateway);
    slow.get_mut("bond0").unwrap().routes.push(way);
    assert!(apply_to(&fake, &mut memory, &slow).await.is_empty());
    let before = fake.look().await.unwrap();
    fake.taken();
    let fast = with(slow.clone(), |b| {
        b.lacp_rate = Some(LacpRate::Fast);
        b.ad_lacp_active = Some(AdLacpActive::Off);
        b.min_links = Some(1);
    });
    assert!(apply_to(&fake, &mut memory, &fast).await.is_empty());
    let expected = [
        "set bond0 down",
        "set min_links, lacp_active, lacp_rate of bond0",
        "set bond0 up",
        // The kernel removed it while the link was down.
        "add the route to 0.0.0.0/0",
    ];
    assert_eq!(fake.taken(), expected);
    // A refused change brings the bond back with its former settings.
    fake.refuse(&["set lacp_rate"]);
    let applied = fake.look().await.unwrap();
    let again = with(fast.clone(), |b| b.lacp_rate = None);
    let complaints = apply_to(&fake, &mut memory, &again).await;
    let why = "cannot set lacp_rate of bond0: refused; the previous settings are restored";
    assert_eq!(complaints, [why]);
    let restored = fake.look().await.unwrap();
    assert_eq!(restored, applied);
    assert_eq!(restored.routes, before.routes);
    let rate = InfoBond::AdLacpRate(BondLacpRate::Fast);
    assert!(restored.links["bond0"].bond.contains(&rate));
}

#[tokio::test]
async fn refused_setting_is_not_forgotten_beside_another_failure() {
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    fake.refuse(&["add the address"]);
    let plain = bonded(BondMode::BalanceXor);
    assert_eq!(apply_to(&fake, &mut memory, &plain).await.len(), 1);
    // No state to return to: the part that works stays.
    fake.refuse(&["add the address", "min_links"]);
    let wanted = with(plain, |b| b.min_links = Some(1));
    assert_eq!(apply_to(&fake, &mut memory, &wanted).await.len(), 1);
    fake.refuse(&[]);
    let shown = |link: &mut FoundLink| link.bond = vec![InfoBond::MinLinks(0)];
    shown(fake.found.lock().unwrap().links.get_mut("bond0").unwrap());
    fake.taken();
    assert!(apply_to(&fake, &mut memory, &wanted).await.is_empty());
    assert!(fake.taken()[0].starts_with("set min_links"));
}

#[test]
fn made_bond_needs_no_change() {
    let wanted = of(BondMode::Lacp, |b| {
        b.miimon = Some(100);
        b.lacp_rate = Some(LacpRate::Fast);
    });
    assert_eq!(change(None, &wanted, &made_with(&wanted)), []);
}

#[tokio::test]
async fn preferred_port_of_a_bond_is_set_once_the_port_is_in_it() {
    let prefers = |port: &str, mode| with(bonded(mode), |b| port.clone_into(&mut b.primary));
    let (fake, mut memory) = (Fake::with(&["eth0"]), Memory::default());
    let second = prefers("eth1", BondMode::ActiveBackup);
    assert!(apply_to(&fake, &mut memory, &second).await.is_empty());
    assert!(!fake.taken().iter().any(|step| step.contains("prefer")));
    fake.add("eth1", "");
    assert!(apply_to(&fake, &mut memory, &second).await.is_empty());
    let expected = ["add eth1 to bond0", "set eth1 up", "prefer eth1 in bond0"];
    assert_eq!(fake.taken(), expected);
    // Another port, or none, needs no new bond.
    let first = prefers("eth0", BondMode::ActiveBackup);
    assert!(apply_to(&fake, &mut memory, &first).await.is_empty());
    assert_eq!(fake.taken(), ["prefer eth0 in bond0"]);
    let none = prefers("", BondMode::ActiveBackup);
    assert!(apply_to(&fake, &mut memory, &none).await.is_empty());
    assert_eq!(fake.taken(), ["prefer no link in bond0"]);
    // The kernel refuses the setting in the other modes.
    let lacp = prefers("eth0", BondMode::Lacp);
    assert!(apply_to(&fake, &mut memory, &lacp).await.is_empty());
    assert!(!fake.taken().iter().any(|step| step.contains("prefer")));
}

//! Which settings of a bond the kernel gets, and which of them change while the bond exists.

use corten_config::kinds::BondMode;
use corten_types::network_spec::Bond;
use rtnetlink::packet_route::link::InfoBond as Info;

use super::bond_table::{SETTINGS, Setting, Takes, rounded, takes_probes};

/// The preferred port of a bond whose mode has one.
pub(super) fn primary(bond: &Bond) -> Option<&str> {
    use BondMode::{ActiveBackup, BalanceAlb, BalanceTlb};
    let has_one = matches!(bond.mode, ActiveBackup | BalanceAlb | BalanceTlb);
    (has_one && !bond.primary.is_empty()).then_some(&bond.primary)
}

/// Drops the settings that the kernel rejects in the bond's mode, or without link monitoring. One of them fails the
/// whole bond (kernel: `unsuppmodes` in drivers/net/bonding/bond_options.c). Specs in META always contain every
/// setting.
fn counting(bond: &Bond) -> Bond {
    let mut bond = bond.clone();
    if bond.mode != BondMode::Lacp {
        bond.lacp_rate = None;
        bond.ad_lacp_active = None;
        bond.ad_actor_sys_prio = None;
        bond.ad_actor_system = None;
        bond.ad_user_port_key = None;
    }
    if !takes_probes(bond.mode) {
        bond.arp_interval = None;
        bond.arp_validate = None;
        bond.missed_max = None;
    }
    if !matches!(bond.mode, BondMode::BalanceTlb | BondMode::BalanceAlb) {
        bond.tlb_logical_lb = None;
    }
    if bond.mode != BondMode::BalanceRr {
        bond.packets_per_slave = None;
    }
    if bond.miimon.unwrap_or_default() == 0 {
        bond.updelay = None;
        bond.downdelay = None;
        bond.peer_notify_delay = None;
    }
    bond
}

/// The settings with which the kernel makes the bond.
pub(super) fn made_with(bond: &Bond) -> Vec<Info> {
    let bond = counting(bond);
    let values = SETTINGS.iter().filter_map(|setting| (setting.value)(&bond));
    values.collect()
}

/// Settings that an existing bond takes.
fn changeable() -> impl Iterator<Item = &'static Setting> {
    let all = SETTINGS.iter();
    all.filter(|setting| setting.takes != Takes::Anew)
}

/// Whether an existing bond takes all settings that differ.
pub(super) fn is_made_alike(one: &Bond, other: &Bond) -> bool {
    let (one, other) = (counting(one), counting(other));
    let value = |setting: &Setting, bond: &Bond| {
        let value = (setting.value)(bond);
        value.unwrap_or_else(|| setting.default(bond.mode))
    };
    let all = SETTINGS.iter();
    let mut fixed = all.filter(|setting| setting.takes == Takes::Anew);
    fixed.all(|setting| value(setting, &one) == value(setting, &other))
}

/// Whether the kernel tells a setting that an existing bond takes, not one of its states.
pub(super) fn can_change(told: &Info) -> bool {
    changeable().any(|setting| setting.has(told))
}

/// The settings that an existing bond must get, with what the kernel shows in `found`. One that the config no longer
/// has returns to the kernel's default; one that it never had stays.
pub(super) fn change(had: Option<&Bond>, wanted: &Bond, found: &[Info]) -> Vec<Info> {
    let (had, wanted) = (had.map(counting), counting(wanted));
    let mut changed = Vec::new();
    // The table has the interval before the delays.
    let (mut interval, mut is_new) = (0, false);
    for setting in changeable() {
        let before = had.as_ref().and_then(setting.value);
        let was_ours = before.is_some();
        let current = setting.current(before, found, wanted.mode);
        let value = match (setting.value)(&wanted) {
            Some(value) => value,
            // The kernel keeps multiples, also while checks are off: a new interval would change the delay.
            None if was_ours || (is_new && setting.is_delay()) => setting.default(wanted.mode),
            None => current.clone(),
        };
        let differs = if setting.is_delay() {
            let round = |value: &Info| rounded(value, interval);
            interval != 0 && (is_new || round(&value) != round(&current))
        } else {
            value != current
        };
        if let Info::MiiMon(ms) = value {
            (interval, is_new) = (ms, differs);
        }
        if differs {
            changed.push(value);
        }
    }
    changed
}

/// Whether the bond takes one of these settings only while it is down.
pub(super) fn need_it_down(settings: &[Info]) -> bool {
    rows(settings).any(|setting| setting.takes == Takes::Down)
}

/// The names of the settings, for messages.
pub(super) fn names(settings: &[Info]) -> String {
    let names: Vec<&str> = rows(settings).map(|setting| setting.name).collect();
    names.join(", ")
}

fn rows(settings: &[Info]) -> impl Iterator<Item = &'static Setting> {
    let is_in = |setting: &&Setting| settings.iter().any(|value| setting.has(value));
    SETTINGS.iter().filter(is_in)
}

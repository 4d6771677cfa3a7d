//! Settings of a bond, shared by every layer that can configure one.

use corten_config::kinds::BondMode;
use corten_types::network_spec::Bond;
use corten_yaml::read::Word;

/// Sets one option in the syntax of the kernel module (kernel: Documentation/networking/bonding.rst).
///
/// # Errors
/// Names the unknown option or value.
pub fn set(bond: &mut Bond, key: &str, value: &str) -> Result<(), String> {
    let number = || {
        let bad = |_| format!("the option {key} takes a number, not {value:?}");
        value.parse::<u32>().map_err(bad)
    };
    match key {
        "mode" => bond.mode = mode(value).ok_or_else(|| unknown(key, value))?,
        "miimon" => bond.miimon = Some(number()?),
        "updelay" => bond.updelay = Some(number()?),
        "downdelay" => bond.downdelay = Some(number()?),
        "min_links" => bond.min_links = Some(number()?),
        "arp_interval" => bond.arp_interval = Some(number()?),
        "resend_igmp" => bond.resend_igmp = Some(number()?),
        "xmit_hash_policy" => bond.xmit_hash_policy = Some(choice(key, value)?),
        "lacp_rate" => bond.lacp_rate = Some(choice(key, value)?),
        "ad_select" => bond.ad_select = Some(choice(key, value)?),
        "fail_over_mac" => bond.fail_over_mac = Some(choice(key, value)?),
        "primary_reselect" => bond.primary_reselect = Some(choice(key, value)?),
        "primary" => value.clone_into(&mut bond.primary),
        _ => return Err(format!("the option {key:?} is unknown")),
    }
    Ok(())
}

/// Accepts the mode's name or the kernel's number.
fn mode(value: &str) -> Option<BondMode> {
    let by_number = |number: usize| BondMode::ALL.get(number).copied();
    BondMode::from_word(value).or_else(|| by_number(value.parse().ok()?))
}

fn choice<W: Word>(key: &str, value: &str) -> Result<W, String> {
    W::from_word(value).ok_or_else(|| unknown(key, value))
}

fn unknown(key: &str, value: &str) -> String {
    format!("the option {key} has no value {value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bond_modes_have_names_and_numbers() {
        let mut bond = Bond::default();
        set(&mut bond, "mode", "4").unwrap();
        assert_eq!(bond.mode, BondMode::Lacp);
        set(&mut bond, "mode", "active-backup").unwrap();
        assert_eq!(bond.mode, BondMode::ActiveBackup);
        let error = set(&mut bond, "miimon", "often").unwrap_err();
        assert!(error.contains("miimon") && error.contains("often"));
        set(&mut bond, "mode", "7").unwrap_err();
    }
}

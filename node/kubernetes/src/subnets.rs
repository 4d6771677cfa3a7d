//! Selects node addresses by subnets of the config.

use std::net::IpAddr;
use std::ops::Deref;

use corten_values::Cidr;

/// Addresses that the subnets select: those of the first subnet, then those of the second, each in their order. A subnet
/// with a leading `!` excludes addresses that the subnets before it have selected. If all subnets are exclusions, the
/// other addresses stay.
#[must_use]
pub(crate) fn matching<S: Deref<Target = str>>(addresses: &[IpAddr], subnets: &[S]) -> Vec<IpAddr> {
    let mut found = match subnets.iter().all(|subnet| subnet.starts_with('!')) {
        true => addresses.to_vec(),
        false => Vec::new(),
    };
    for subnet in subnets {
        match subnet.strip_prefix('!') {
            Some(out) => found.retain(|address| !is_in(*address, out)),
            None => {
                for address in addresses {
                    if is_in(*address, subnet) && !found.contains(address) {
                        found.push(*address);
                    }
                }
            }
        }
    }
    found
}

/// Whether the address is in the network, or is the address, of this text.
fn is_in(address: IpAddr, text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(one) => one == address,
        Err(_) => Cidr::parse(text).is_some_and(|network| network.contains(address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_select_addresses_and_exclamation_marks_exclude_them() {
        let all = ["10.0.2.15", "10.99.0.1", "192.168.0.1", "fd00::1"];
        let all = all.map(|text| text.parse::<IpAddr>().unwrap());
        let cases: [(&[&str], &[IpAddr]); 7] = [
            (&[], &all),
            (&["10.99.0.0/24"], &all[1..2]),
            (&["!10.0.2.15", "!fd00::/8"], &all[1..3]),
            (
                &["10.0.0.0/8", "!10.0.2.0/24", "fd00::1"],
                &[all[1], all[3]],
            ),
            (&["172.16.0.0/12"], &[]),
            (&["fd00::/8", "10.0.0.0/8"], &[all[3], all[0], all[1]]),
            // An exclusion is for the subnets before it.
            (&["!10.0.2.0/24", "10.0.0.0/8"], &all[..2]),
        ];
        for (subnets, expected) in cases {
            assert_eq!(matching(&all, subnets), expected, "{subnets:?}");
        }
    }
}

//! Selects node addresses by subnets of the config.

use std::net::IpAddr;
use std::ops::Deref;

use corten_values::Cidr;

/// Addresses in one of the subnets, in their order. A subnet with a leading `!` excludes its addresses. If all subnets
/// are exclusions, the other addresses stay.
#[must_use]
pub(crate) fn matching<S: Deref<Target = str>>(addresses: &[IpAddr], subnets: &[S]) -> Vec<IpAddr> {
    let (out, taken): (Vec<&str>, Vec<&str>) = subnets
        .iter()
        .map(|subnet| &**subnet)
        .partition(|text: &&str| text.starts_with('!'));
    let is_in = |address: IpAddr, texts: &[&str]| {
        texts.iter().any(|text| {
            let text = text.trim_start_matches('!');
            match text.parse::<IpAddr>() {
                Ok(one) => one == address,
                Err(_) => Cidr::parse(text).is_some_and(|network| network.contains(address)),
            }
        })
    };
    let fits =
        |address: &IpAddr| (taken.is_empty() || is_in(*address, &taken)) && !is_in(*address, &out);
    addresses.iter().copied().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_select_addresses_and_exclamation_marks_exclude_them() {
        let all = ["10.0.2.15", "10.99.0.1", "192.168.0.1", "fd00::1"];
        let all = all.map(|text| text.parse::<IpAddr>().unwrap());
        let cases: [(&[&str], &[IpAddr]); 5] = [
            (&[], &all),
            (&["10.99.0.0/24"], &all[1..2]),
            (&["!10.0.2.15", "!fd00::/8"], &all[1..3]),
            (
                &["10.0.0.0/8", "!10.0.2.0/24", "fd00::1"],
                &[all[1], all[3]],
            ),
            (&["172.16.0.0/12"], &[]),
        ];
        for (subnets, expected) in cases {
            assert_eq!(matching(&all, subnets), expected, "{subnets:?}");
        }
    }
}

//! Sets of addresses and ports in the kernel's form: sorted ranges that neither overlap nor touch.

use std::net::IpAddr;

use corten_types::firewall::AddressMatch;
use corten_types::prefix::Prefix;

/// An inclusive range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    pub first: u128,
    pub last: u128,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The highest address as a number.
    pub fn last(self) -> u128 {
        match self {
            Family::V4 => u32::MAX.into(),
            Family::V6 => u128::MAX,
        }
    }
}

/// Ranges of one family that an address match covers.
pub fn addresses(wanted: &AddressMatch, family: Family) -> Vec<Range> {
    let of = |prefixes: &[Prefix]| {
        let ranges = prefixes.iter().filter_map(|prefix| range(*prefix, family));
        merged(ranges.collect())
    };
    let mut left = of(&wanted.include_subnets);
    for hole in of(&wanted.exclude_subnets) {
        left = left
            .into_iter()
            .flat_map(|range| without(range, hole))
            .collect();
    }
    left
}

/// Sorts ranges and merges those that overlap or touch.
pub fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn range(prefix: Prefix, family: Family) -> Option<Range> {
    let (bits, width) = match (prefix.network().address, family) {
        (IpAddr::V4(address), Family::V4) => (u128::from(address.to_bits()), 32_u32),
        (IpAddr::V6(address), Family::V6) => (address.to_bits(), 128),
        _ => return None,
    };
    let host = width.saturating_sub(prefix.length.into());
    let size = 1_u128
        .checked_shl(host)
        .map_or(u128::MAX, |count| count - 1);
    Some(Range {
        first: bits,
        last: bits | size,
    })
}

/// Subtracts a hole from a range; the rest is at most two ranges.
fn without(range: Range, hole: Range) -> impl Iterator<Item = Range> {
    let before = hole.first.checked_sub(1).map(|last| Range {
        first: range.first,
        last: range.last.min(last),
    });
    let behind = hole.last.checked_add(1).map(|first| Range {
        first: range.first.max(first),
        last: range.last,
    });
    let is_some = |range: &Range| range.first <= range.last;
    before.into_iter().chain(behind).filter(is_some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix {
            address: address.parse().unwrap(),
            length: length.parse().unwrap(),
        }
    }

    fn wanted(include: &[&str], exclude: &[&str]) -> AddressMatch {
        AddressMatch {
            include_subnets: include.iter().map(|text| prefix(text)).collect(),
            exclude_subnets: exclude.iter().map(|text| prefix(text)).collect(),
        }
    }

    fn v4(include: &[&str], exclude: &[&str]) -> Vec<(String, String)> {
        let text =
            |bits: u128| std::net::Ipv4Addr::from_bits(u32::try_from(bits).unwrap()).to_string();
        addresses(&wanted(include, exclude), Family::V4)
            .into_iter()
            .map(|range| (text(range.first), text(range.last)))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(first, last): &(&str, &str)| ((*first).to_owned(), (*last).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn adjacent_networks_are_merged_and_exceptions_subtracted() {
        let touching = ["10.1.0.0/16", "10.0.0.7/16", "10.0.3.0/24", "192.0.2.1/32"];
        let expected = [("10.0.0.0", "10.1.255.255"), ("192.0.2.1", "192.0.2.1")];
        assert_eq!(v4(&touching, &[]), pairs(&expected));
        let expected = [("10.0.0.0", "10.0.0.127"), ("10.0.2.0", "10.255.255.255")];
        assert_eq!(
            v4(
                &["10.0.0.0/8"],
                &["10.0.0.128/25", "10.0.1.0/24", "fd00::/8"]
            ),
            pairs(&expected)
        );
        assert_eq!(v4(&["10.0.0.0/8"], &["10.0.0.0/8"]), []);
        assert_eq!(v4(&["fd00::/8"], &[]), []);
    }

    #[test]
    fn ranges_cover_the_first_and_last_address() {
        let all = [("0.0.0.0", "255.255.255.255")];
        assert_eq!(v4(&["0.0.0.0/1", "128.0.0.0/1"], &[]), pairs(&all));
        let inner = [("0.0.0.1", "255.255.255.254")];
        assert_eq!(
            v4(&["0.0.0.0/0"], &["0.0.0.0/32", "255.255.255.255/32"]),
            pairs(&inner)
        );
        let all = addresses(&wanted(&["::/0"], &[]), Family::V6);
        assert_eq!(
            all,
            [Range {
                first: 0,
                last: u128::MAX
            }]
        );
    }
}

//! Helpers for platforms that describe links and routes in their own formats.

use std::net::IpAddr;

use corten_config::kinds::LinkRoute;
use corten_seed::{SeedDhcp, SeedLink, SeedMatch, SeedRoute, SeedShape};
use corten_values::{Cidr, Mac};

/// Parses a hardware address, with or without separators.
pub(crate) fn mac(text: &str) -> Option<Mac> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !matches!(byte, b':' | b'-'))
        .collect();
    if digits.len() != 12 {
        return None;
    }
    let mut mac = [0; 6];
    for (byte, pair) in mac.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Mac(mac))
}

/// Parses an MTU in bytes.
pub(crate) fn mtu(text: &str) -> Option<u32> {
    let mtu: u32 = text.parse().ok()?;
    (576..=65535).contains(&mtu).then_some(mtu)
}

/// Parses an address with an optional prefix, and an optional mask.
pub(crate) fn masked(address: &str, mask: &str) -> Option<Cidr> {
    if let Some(cidr) = Cidr::parse(address) {
        return Some(cidr);
    }
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match mask {
        "" => width,
        mask => bits(mask)?,
    };
    (prefix <= width).then_some(Cidr { address, prefix })
}

/// Number of bits of a mask.
fn bits(mask: &str) -> Option<u8> {
    if let Ok(bits) = mask.parse() {
        return Some(bits);
    }
    let (ones, is_mask) = match mask.parse().ok()? {
        IpAddr::V4(mask) => {
            let bits = mask.to_bits();
            (
                bits.leading_ones(),
                bits.leading_ones() + bits.trailing_zeros() >= 32,
            )
        }
        IpAddr::V6(mask) => {
            let bits = mask.to_bits();
            (
                bits.leading_ones(),
                bits.leading_ones() + bits.trailing_zeros() >= 128,
            )
        }
    };
    u8::try_from(ones).ok().filter(|_| is_mask)
}

/// The card with this address; without an address, the card of this name.
pub(crate) fn card(name: &str, mac: Option<Mac>) -> SeedLink {
    SeedLink::new(
        name,
        SeedShape::Card(SeedMatch {
            mac,
            ..SeedMatch::default()
        }),
    )
}

/// The same card with DHCPv4.
pub(crate) fn dhcp4(name: &str, mac: Option<Mac>) -> SeedLink {
    SeedLink {
        dhcp4: Some(SeedDhcp::default()),
        ..card(name, mac)
    }
}

/// Adds a default route through this gateway, if there is one.
pub(crate) fn add_gateway(link: &mut SeedLink, gateway: Option<IpAddr>) {
    if let Some(gateway) = gateway {
        add_route(link, None, gateway);
    }
}

/// Adds a route through a gateway; without a destination it is the default route. A gateway outside the link's networks
/// is treated as on-link.
pub(crate) fn add_route(link: &mut SeedLink, destination: Option<Cidr>, gateway: IpAddr) {
    let is_near = match gateway {
        IpAddr::V6(gateway) if gateway.is_unicast_link_local() => true,
        _ => link.addresses.iter().any(|own| own.contains(gateway)),
    };
    // Under DHCP the link's networks are not known yet.
    let is_static = !link.addresses.is_empty() && link.dhcp4.is_none();
    link.routes.push(SeedRoute {
        route: LinkRoute {
            destination: destination.filter(|destination| !destination.is_default()),
            gateway: Some(gateway),
            ..LinkRoute::default()
        },
        on_link: is_static && !is_near,
    });
}

//! Links and routes of platforms that describe them by forms of their own.

use std::net::IpAddr;

use corten_config::kinds::LinkRoute;
use corten_config::platform::{SeedDhcp, SeedLink, SeedMatch, SeedRoute, SeedShape};
use corten_config::values::{Cidr, Mac};

/// A hardware address with or without something between its bytes.
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

/// The largest packet of a link, in bytes.
pub(crate) fn mtu(text: &str) -> Option<u32> {
    let mtu: u32 = text.parse().ok()?;
    (576..=65535).contains(&mtu).then_some(mtu)
}

/// An address that may have its prefix, and a mask that may be absent.
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

/// How many bits a mask has.
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

/// The card with this address; without one, the card of this name.
pub(crate) fn card(name: &str, mac: Option<Mac>) -> SeedLink {
    SeedLink::new(name, SeedShape::Card(SeedMatch { mac, name: None }))
}

/// The same, which asks for an address by DHCPv4.
pub(crate) fn dhcp4(name: &str, mac: Option<Mac>) -> SeedLink {
    SeedLink {
        dhcp4: Some(SeedDhcp::default()),
        ..card(name, mac)
    }
}

/// Sends what goes nowhere else through this gateway.
pub(crate) fn add_gateway(link: &mut SeedLink, gateway: Option<IpAddr>) {
    if let Some(gateway) = gateway {
        add_route(link, None, gateway);
    }
}

/// Sends what goes to a network, or nowhere else, through a gateway. A gateway outside the networks of the link is
/// taken for a neighbour.
pub(crate) fn add_route(link: &mut SeedLink, destination: Option<Cidr>, gateway: IpAddr) {
    let is_near = match gateway {
        IpAddr::V6(gateway) if gateway.is_unicast_link_local() => true,
        _ => link.addresses.iter().any(|own| own.contains(gateway)),
    };
    // DHCP says later which networks the link has.
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

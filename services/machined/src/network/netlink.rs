//! The network's side of the kernel: what the rest of the folder decides, in rtnetlink's words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use rtnetlink::{AddressMessageBuilder, Handle, LinkUnspec, RouteMessageBuilder};

use super::link_config::{LinkConfig, Route};

/// A link as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFacts {
    pub index: u32,
    pub name: String,
    pub mac: Vec<u8>,
    pub is_ethernet: bool,
    pub is_up: bool,
    pub has_carrier: bool,
}

/// Reads a link message; `None` when it lacks a name.
pub fn link_facts(message: &LinkMessage) -> Option<LinkFacts> {
    let mut name = None;
    let mut mac = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Address(bytes) => mac.clone_from(bytes),
            _ => {}
        }
    }
    Some(LinkFacts {
        index: message.header.index,
        name: name?,
        mac,
        is_ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        is_up: message.header.flags.contains(LinkFlags::Up),
        has_carrier: message.header.flags.contains(LinkFlags::LowerUp),
    })
}

/// An address other machines can reach, with its prefix length and link.
pub fn global_address(message: &AddressMessage) -> Option<(u32, IpAddr, u8)> {
    if message.header.scope != AddressScope::Universe {
        return None;
    }
    let mut found = None;
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link `Address` is the peer's and `Local` ours.
            AddressAttribute::Local(address) => found = Some(*address),
            AddressAttribute::Address(address) if found.is_none() => found = Some(*address),
            _ => {}
        }
    }
    found.map(|address| (message.header.index, address, message.header.prefix_len))
}

/// Every link there is.
pub async fn links(handle: &Handle) -> Result<Vec<LinkMessage>, rtnetlink::Error> {
    handle.link().get().execute().try_collect().await
}

/// Every address there is.
pub async fn addresses(handle: &Handle) -> Result<Vec<AddressMessage>, rtnetlink::Error> {
    handle.address().get().execute().try_collect().await
}

/// Switches a link on.
pub async fn set_up(handle: &Handle, index: u32) -> Result<(), rtnetlink::Error> {
    handle
        .link()
        .set(LinkUnspec::new_with_index(index).up().build())
        .execute()
        .await
}

/// Gives the link what `new` has and takes away what only `old` had.
pub async fn apply(
    handle: &Handle,
    index: u32,
    old: &LinkConfig,
    new: &LinkConfig,
) -> Result<(), rtnetlink::Error> {
    if let Some(mtu) = new.mtu.filter(|_| new.mtu != old.mtu) {
        handle
            .link()
            .set(LinkUnspec::new_with_index(index).mtu(mtu).build())
            .execute()
            .await?;
    }
    for (address, prefix) in &new.addresses {
        handle
            .address()
            .add(index, *address, *prefix)
            .replace()
            .execute()
            .await?;
    }
    // The kernel takes the routes along with the address they need.
    for (address, prefix) in old
        .addresses
        .iter()
        .filter(|address| !new.addresses.contains(address))
    {
        let gone = address_message(index, *address, *prefix);
        match handle.address().del(gone).execute().await {
            // The kernel may have been faster, for example when the link went down.
            Ok(()) | Err(rtnetlink::Error::NetlinkError(_)) => {}
            Err(error) => return Err(error),
        }
    }
    for route in &new.routes {
        handle
            .route()
            .add(route_message(index, route)?)
            .replace()
            .execute()
            .await?;
    }
    Ok(())
}

fn address_message(index: u32, address: IpAddr, prefix: u8) -> AddressMessage {
    match address {
        IpAddr::V4(address) => AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(address, prefix)
            .build(),
        IpAddr::V6(address) => AddressMessageBuilder::<Ipv6Addr>::new()
            .index(index)
            .address(address, prefix)
            .build(),
    }
}

fn route_message(
    index: u32,
    route: &Route,
) -> Result<rtnetlink::packet_route::route::RouteMessage, rtnetlink::Error> {
    let (destination, prefix) = route.destination;
    let invalid =
        |error| rtnetlink::Error::InvalidNla(format!("route {destination}/{prefix}: {error}"));
    let mut builder = RouteMessageBuilder::<IpAddr>::new()
        .output_interface(index)
        .priority(route.metric)
        .destination_prefix(destination, prefix)
        .map_err(invalid)?;
    if let Some(gateway) = route.gateway {
        builder = builder.gateway(gateway).map_err(invalid)?;
    }
    let mut message = builder.build();
    if route.gateway.is_none() {
        message.header.scope = rtnetlink::packet_route::route::RouteScope::Link;
    }
    message.header.address_family = match destination {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    Ok(message)
}

//! A network as cloud-init describes it, in either version of its format.

use std::net::IpAddr;

use crate::kinds::BondConfig;
use crate::values::{Cidr, Mac};

/// A network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeedNetwork {
    /// In the order they are written; those of version 2 by name.
    pub links: Vec<SeedLink>,
    /// Routes through whatever link leads to their gateway.
    pub routes: Vec<SeedRoute>,
    /// Name servers, the first asked first.
    pub dns_servers: Vec<IpAddr>,
    /// Domains to try behind short names.
    pub search_domains: Vec<String>,
}

/// A link.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedLink {
    /// By which others call it. Of one that is made, and of a card that is not looked for: its name.
    pub id: String,
    /// What it is.
    pub shape: SeedShape,
    /// In bytes; absent: as it is.
    pub mtu: Option<u32>,
    /// The address to give it; absent: as it is.
    pub hardware_addr: Option<Mac>,
    /// Ask for an address by DHCPv4.
    pub dhcp4: Option<SeedDhcp>,
    /// Ask for an address by DHCPv6.
    pub dhcp6: Option<SeedDhcp>,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
    /// Routes through it.
    pub routes: Vec<SeedRoute>,
}

impl SeedLink {
    /// A link about which nothing is said yet.
    pub(super) fn new(id: &str, shape: SeedShape) -> SeedLink {
        SeedLink {
            id: id.to_owned(),
            shape,
            mtu: None,
            hardware_addr: None,
            dhcp4: None,
            dhcp6: None,
            addresses: Vec::new(),
            routes: Vec::new(),
        }
    }
}

/// What a link is.
#[derive(Debug, Clone, PartialEq)]
pub enum SeedShape {
    /// A network card.
    Card(SeedMatch),
    /// Several links as one; `links` of the config has their ids.
    Bond(Box<BondConfig>),
    /// A VLAN.
    Vlan {
        /// The id of the link it is on.
        parent: String,
        /// 1 to 4094.
        id: u16,
    },
}

/// How a card is found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeedMatch {
    /// The address it was built with.
    pub mac: Option<Mac>,
    /// Its name, in which `*`, `?` and `[abc]` stand for others. Without either: its name is the link's id.
    pub name: Option<String>,
}

/// How a link asks for an address.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeedDhcp {
    /// Metric of the routes it is given; absent: the usual one.
    pub route_metric: Option<u32>,
    /// Leave the routes it is given.
    pub skip_routes: bool,
    /// Leave the name it is given.
    pub skip_hostname: bool,
}

/// A route.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedRoute {
    /// Where it leads; absent: everywhere.
    pub destination: Option<Cidr>,
    /// Through whom; absent: it is on the link.
    pub gateway: Option<IpAddr>,
    /// Whether the gateway is on the link though no address of it says so.
    pub on_link: bool,
    /// The address packets are sent from.
    pub source: Option<IpAddr>,
    /// Lower wins; absent: the usual one.
    pub metric: Option<u32>,
    /// The routing table; absent: the main one.
    pub table: Option<u32>,
    /// Bytes of the largest packet; absent: the link's.
    pub mtu: Option<u32>,
}

impl SeedRoute {
    /// The route to everywhere through somebody.
    pub(super) fn everywhere(gateway: IpAddr) -> SeedRoute {
        SeedRoute {
            destination: None,
            gateway: Some(gateway),
            on_link: false,
            source: None,
            metric: None,
            table: None,
            mtu: None,
        }
    }

    /// Whether all of its addresses are of one family.
    pub(super) fn is_of_one_family(&self) -> bool {
        let destination = self.destination.map(|cidr| cidr.address);
        let given = [destination, self.gateway, self.source];
        let mut families = given.iter().flatten().map(IpAddr::is_ipv4);
        let first = families.next();
        families.all(|family| Some(family) == first)
    }
}

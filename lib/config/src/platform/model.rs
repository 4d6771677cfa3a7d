//! A network as cloud-init describes it, in either version of its format.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Size;
use crate::kinds::{BondConfig, LinkRoute};
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

impl SeedNetwork {
    pub(super) fn size(&self) -> Size<'_> {
        let sum = |of: fn(&SeedLink) -> usize| self.links.iter().map(of).sum::<usize>();
        let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut links_of_bonds = 0;
        let mut targets = 0;
        for link in &self.links {
            match &link.shape {
                SeedShape::Card(_) => {}
                SeedShape::Bond {
                    members, config, ..
                } => {
                    for member in members {
                        needs.entry(member).or_default().push(&link.id);
                    }
                    links_of_bonds += members.len();
                    targets += config.arp_ip_targets.len();
                }
                SeedShape::Vlan { parent, .. } => {
                    needs.entry(&link.id).or_default().push(parent);
                }
            }
        }
        let routes = sum(|link| link.routes.len()) + self.routes.len();
        let counts = vec![
            ("links", self.links.len()),
            ("links in bonds", links_of_bonds),
            ("addresses", sum(|link| link.addresses.len())),
            ("routes", routes),
            ("name servers", self.dns_servers.len()),
            ("search domains", self.search_domains.len()),
            ("targets of ARP probes", targets),
        ];
        Size { counts, needs }
    }
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
    /// Several links as one.
    Bond {
        /// The ids of the links bonded.
        members: Vec<String>,
        /// The id of the preferred one.
        primary: Option<String>,
        /// How they are bonded; `links` and `primary` are empty.
        config: Box<BondConfig>,
    },
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeedRoute {
    /// Where it leads, and how.
    pub route: LinkRoute,
    /// Whether the gateway is on the link though no address of it says so.
    pub on_link: bool,
}

impl From<LinkRoute> for SeedRoute {
    fn from(route: LinkRoute) -> SeedRoute {
        let on_link = false;
        SeedRoute { route, on_link }
    }
}

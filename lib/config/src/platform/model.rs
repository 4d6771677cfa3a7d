//! A network as cloud-init describes it, in either version of its format.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Size;
use crate::kinds::{BondConfig, LinkRoute};
use crate::problem::printable;
use crate::read::Reader;
use crate::tree::Node;
use crate::values::{Cidr, Mac};

/// A network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeedNetwork {
    /// In the order they are written; those of version 2 by name.
    pub links: Vec<SeedLink>,
    /// Routes through whatever link leads to their gateway.
    pub routes: Vec<SeedRoute>,
    /// Which packets look into which routing table.
    pub rules: Vec<SeedRule>,
    /// Name servers, the first asked first.
    pub dns_servers: Vec<IpAddr>,
    /// Domains to try behind short names.
    pub search_domains: Vec<String>,
}

impl SeedNetwork {
    /// Complains of what is more than a node takes, and of links that are on or part of themselves or in two places.
    pub(super) fn check(&self, node: &Node, reader: &mut Reader<'_>) {
        for what in self.problems() {
            reader.wrong(node.mark, &what);
        }
    }

    /// What of it no node does: too much, links that are on or part of themselves or in two places, rules of one
    /// priority.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.size().problems();
        let mut seen = BTreeSet::new();
        let members = self.links.iter().flat_map(|link| link.shape.members());
        for member in members.filter(|member| !seen.insert(*member)) {
            let name = printable(member);
            problems.push(format!(
                "has the link {name:?} twice in its bonds and bridges"
            ));
        }
        let mut seen = BTreeSet::new();
        for rule in &self.rules {
            let Some(priority) = rule.priority else {
                continue;
            };
            let mut families = rule.families.iter();
            if !families.all(|family| seen.insert((family, priority))) {
                let what = format!("has two rules of priority {priority}: give each its own");
                problems.push(what);
            }
        }
        problems
    }

    fn size(&self) -> Size<'_> {
        let sum = |of: fn(&SeedLink) -> usize| self.links.iter().map(of).sum::<usize>();
        let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut targets = 0;
        for link in &self.links {
            for member in link.shape.members() {
                needs.entry(member).or_default().push(&link.id);
            }
            match &link.shape {
                SeedShape::Card(_) | SeedShape::Bridge { .. } => {}
                SeedShape::Bond { config, .. } => targets += config.arp_ip_targets.len(),
                SeedShape::Vlan { parent, .. } => {
                    needs.entry(&link.id).or_default().push(parent);
                }
            }
        }
        let routes = sum(|link| link.routes.len()) + self.routes.len();
        let counts = vec![
            ("links", self.links.len()),
            (
                "links in bonds and bridges",
                sum(|link| link.shape.members().len()),
            ),
            ("addresses", sum(|link| link.addresses.len())),
            ("routes", routes),
            ("rules", self.rules.len()),
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
    #[must_use]
    pub fn new(id: &str, shape: SeedShape) -> SeedLink {
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
    /// Several links as one network.
    Bridge {
        /// The ids of the links bridged.
        members: Vec<String>,
        /// Whether it uses the spanning tree protocol.
        stp: bool,
    },
    /// A VLAN.
    Vlan {
        /// The id of the link it is on.
        parent: String,
        /// 1 to 4094.
        id: u16,
    },
}

impl SeedShape {
    /// The ids of the links that are part of it.
    fn members(&self) -> &[String] {
        match self {
            SeedShape::Card(_) | SeedShape::Vlan { .. } => &[],
            SeedShape::Bond { members, .. } | SeedShape::Bridge { members, .. } => members,
        }
    }
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

/// Packets from, or to, a network look into a routing table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeedRule {
    /// Whose packets: `inet4`, `inet6`, or both.
    pub families: &'static [&'static str],
    /// From whom; absent: from everybody.
    pub from: Option<Cidr>,
    /// To whom; absent: to everybody.
    pub to: Option<Cidr>,
    /// Where they look.
    pub table: u32,
    /// 1 to 32765, lower comes first; absent: before those said earlier.
    pub priority: Option<u32>,
    /// The mark they have; absent: any.
    pub mark: Option<u32>,
}

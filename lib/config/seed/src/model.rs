//! A network in cloud-init's terms, for both versions of its format. As JSON, a missing field has its default, and an
//! unknown one is ignored, so that an older version reads what a newer one has stored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use corten_config::kinds::{BondConfig, LinkRoute};
use corten_values::{Cidr, Mac};
use corten_yaml::problem::printable;
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;
use serde::{Deserialize, Serialize};

use crate::forms::{RouteForm, bond, families};
use crate::limits::Size;

/// A network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeedNetwork {
    /// Links in the order of the text; those of version 2 by name.
    pub links: Vec<SeedLink>,
    /// Routes; each uses the link that reaches its gateway.
    pub routes: Vec<SeedRoute>,
    /// Routing rules.
    pub rules: Vec<SeedRule>,
    /// Name servers in order of preference.
    pub dns_servers: Vec<IpAddr>,
    /// Search domains for short names.
    pub search_domains: Vec<String>,
    /// Settings of the text without an effect, each with its place; not part of the JSON.
    #[serde(skip)]
    pub left_out: Vec<String>,
}

impl SeedNetwork {
    /// Reports more entries than a node supports, and cyclic or duplicate memberships of links.
    pub(crate) fn check(&self, node: &Node, reader: &mut Reader<'_>) {
        for what in self.problems() {
            reader.wrong(node.mark, &what);
        }
    }

    /// Descriptions of unsupported content: too many entries, cyclic or duplicate memberships of links, rules with the
    /// same priority.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeedLink {
    /// Identifier for references by other links. It is the name of a virtual link, and of a card without a match.
    pub id: String,
    /// Kind of the link.
    pub shape: SeedShape,
    /// MTU in bytes; absent: unchanged.
    pub mtu: Option<u32>,
    /// Hardware address to set; absent: unchanged.
    pub hardware_addr: Option<Mac>,
    /// DHCPv4 client.
    pub dhcp4: Option<SeedDhcp>,
    /// DHCPv6 client.
    pub dhcp6: Option<SeedDhcp>,
    /// Addresses.
    #[serde(default)]
    pub addresses: Vec<Cidr>,
    /// Routes through the link.
    #[serde(default)]
    pub routes: Vec<SeedRoute>,
}

impl SeedLink {
    /// A link without settings.
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

/// Kind of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeedShape {
    /// A network card.
    Card(SeedMatch),
    /// A bond.
    Bond {
        /// Ids of its members.
        members: Vec<String>,
        /// Id of the primary member.
        primary: Option<String>,
        /// Settings of the bond; its `links` and `primary` are empty.
        #[serde(with = "bond")]
        config: Box<BondConfig>,
    },
    /// A bridge.
    Bridge {
        /// Ids of its members.
        members: Vec<String>,
        /// Whether it uses the spanning tree protocol.
        stp: bool,
    },
    /// A VLAN.
    Vlan {
        /// Id of the parent link.
        parent: String,
        /// VLAN number, 1 to 4094.
        id: u16,
    },
}

impl SeedShape {
    /// The ids of its members.
    fn members(&self) -> &[String] {
        match self {
            SeedShape::Card(_) | SeedShape::Vlan { .. } => &[],
            SeedShape::Bond { members, .. } | SeedShape::Bridge { members, .. } => members,
        }
    }
}

/// Selection of a card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeedMatch {
    /// Permanent hardware address.
    pub mac: Option<Mac>,
    /// Name pattern with `*`, `?` and `[abc]`. Without address, pattern and driver the link's id is the name.
    pub name: Option<String>,
    /// Patterns of drivers, one of which matches; empty: any driver.
    pub drivers: Vec<String>,
}

/// Settings of a DHCP client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeedDhcp {
    /// Metric of the offered routes; absent: the default.
    pub route_metric: Option<u32>,
    /// Whether to ignore the offered routes.
    pub skip_routes: bool,
    /// Whether to ignore the offered host name.
    pub skip_hostname: bool,
}

/// A route.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeedRoute {
    /// The route itself.
    #[serde(with = "RouteForm")]
    pub route: LinkRoute,
    /// Whether the gateway is on the link, even without an address of its network.
    pub on_link: bool,
}

impl From<LinkRoute> for SeedRoute {
    fn from(route: LinkRoute) -> SeedRoute {
        let on_link = false;
        SeedRoute { route, on_link }
    }
}

/// A routing rule: packets from, or to, a network use a routing table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeedRule {
    /// Address families: `inet4`, `inet6`, or both.
    #[serde(with = "families")]
    pub families: &'static [&'static str],
    /// Source network; absent: any.
    pub from: Option<Cidr>,
    /// Destination network; absent: any.
    pub to: Option<Cidr>,
    /// Routing table.
    pub table: u32,
    /// Priority, 1 to 32765, lower comes first; absent: before all earlier rules.
    pub priority: Option<u32>,
    /// Packet mark; absent: any.
    pub mark: Option<u32>,
}

//! What a layer says of the network, and what comes of several: for each id the highest layer wins, for
//! links field by field.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use corten_config::kinds::LinkRoute;
use corten_config::values::Cidr;
use corten_resources::Spec;
use corten_types::network_names::{HostnameSpec, OperatorSpec, ResolverSpec, TimeServerSpec};
use corten_types::network_rule::RoutingRuleSpec;
use corten_types::network_spec::{
    AddressSpec, Layer, LinkSpec, MAIN_TABLE, RouteSpec, family, table_name,
};
use corten_types::prefix::Prefix;

/// Of routes nobody gave a metric, so that one learnt by IPv6 autoconfiguration can win (facts: 7.1).
pub const METRIC: u32 = 1024;

/// All that one layer, or one server, says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Specs {
    /// Links.
    pub links: Vec<LinkSpec>,
    /// Addresses.
    pub addresses: Vec<AddressSpec>,
    /// Routes.
    pub routes: Vec<RouteSpec>,
    /// Rules that choose a table of routes.
    pub rules: Vec<RoutingRuleSpec>,
    /// Links that ask a server (DHCP), or share an address.
    pub operators: Vec<OperatorSpec>,
    /// The node's name.
    pub hostname: Option<HostnameSpec>,
    /// Name servers.
    pub resolver: Option<ResolverSpec>,
    /// Time servers.
    pub time_servers: Option<TimeServerSpec>,
}

impl Specs {
    /// A link, as yet without a word about it.
    pub fn link(&mut self, layer: Layer, name: &str) -> &mut LinkSpec {
        let at = self.links.iter().position(|link| link.name == name);
        let at = at.unwrap_or_else(|| {
            self.links.push(LinkSpec {
                name: name.to_owned(),
                link_type: "ether",
                layer,
                ..LinkSpec::default()
            });
            self.links.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or just pushed")]
        &mut self.links[at]
    }

    /// A link that the node makes.
    pub fn make(
        &mut self,
        layer: Layer,
        name: &str,
        kind: &'static str,
        hardware_addr: Option<[u8; 6]>,
    ) -> &mut LinkSpec {
        let link = self.link(layer, name);
        link.logical = true;
        link.kind = kind;
        link.hardware_addr = hardware_addr;
        link
    }

    /// The same without a word about these links: nothing is set on them, and nothing asked for there.
    #[must_use]
    pub fn without(mut self, links: &BTreeSet<String>) -> Specs {
        self.links.retain(|spec| !links.contains(&spec.name));
        self.addresses
            .retain(|spec| !links.contains(&spec.link_name));
        self.routes
            .retain(|spec| !links.contains(&spec.out_link_name));
        self.operators
            .retain(|spec| !links.contains(&spec.link_name));
        self
    }

    /// Adds an address of a link.
    pub fn address(&mut self, layer: Layer, link: &str, address: Prefix, priority: u32) {
        self.addresses.push(AddressSpec {
            address,
            link_name: link.to_owned(),
            family: family(address.address),
            scope: "global",
            priority,
            layer,
        });
    }
}

/// A unicast route in the main table.
#[must_use]
pub fn route(layer: Layer, link: &str, dst: Prefix, gateway: Option<IpAddr>) -> RouteSpec {
    RouteSpec {
        family: family(dst.address),
        dst: dst.network(),
        src: None,
        gateway,
        out_link_name: link.to_owned(),
        table: MAIN_TABLE,
        priority: METRIC,
        scope: if gateway.is_some() || dst.address.is_ipv6() {
            "global"
        } else {
            "link"
        },
        route_type: "unicast",
        protocol: if layer == Layer::Cmdline {
            "boot"
        } else {
            "static"
        },
        layer,
        mtu: 0,
    }
}

/// The route that a document describes; `None` when it says neither where it leads nor through whom. Through no link:
/// the name is empty.
#[must_use]
pub fn route_from(layer: Layer, link: &str, said: &LinkRoute) -> Option<RouteSpec> {
    let everywhere = said.gateway.map(Prefix::everywhere);
    let dst = said.destination.map(prefix).or(everywhere)?;
    let found = route(layer, link, dst, said.gateway);
    Some(RouteSpec {
        src: said.source,
        priority: metric(said.metric),
        mtu: said.mtu.unwrap_or(0),
        // 0 is the kernel's word for one that is not said.
        table: said
            .table
            .filter(|table| *table != 0)
            .unwrap_or(found.table),
        ..found
    })
}

/// The metric of a route. As in the reference, 0 says nothing; the kernel, too, gives an IPv6 route one of its own then.
#[must_use]
pub fn metric(said: Option<u32>) -> u32 {
    said.filter(|metric| *metric != 0).unwrap_or(METRIC)
}

/// As a document writes it.
#[must_use]
pub fn prefix(cidr: Cidr) -> Prefix {
    Prefix {
        address: cidr.address,
        length: cidr.prefix,
    }
}

/// Who is asked for names, unless nothing is said of that.
#[must_use]
pub fn resolver(said: ResolverSpec) -> Option<ResolverSpec> {
    let nothing = ResolverSpec {
        layer: said.layer,
        ..ResolverSpec::default()
    };
    (said != nothing).then_some(said)
}

/// Who is asked for the time, unless nobody is named.
#[must_use]
pub fn time_servers(layer: Layer, time_servers: Vec<String>) -> Option<TimeServerSpec> {
    (!time_servers.is_empty()).then_some(TimeServerSpec {
        time_servers,
        layer,
    })
}

/// The name and, behind the first dot, its domain.
#[must_use]
pub fn hostname(layer: Layer, name: &str) -> HostnameSpec {
    let (hostname, domainname) = name.split_once('.').unwrap_or((name, ""));
    HostnameSpec {
        hostname: hostname.to_owned(),
        domainname: domainname.to_owned(),
        layer,
    }
}

/// A spec that layers have.
pub trait Layered: Spec {
    /// Who says it.
    fn layer(&self) -> Layer;
    /// What it is about; unique among what is merged.
    fn id(&self) -> String;
    /// What comes of this and what a lower layer, or another server, says of the same thing.
    #[must_use]
    fn over(self, _lower: &Self) -> Self {
        self
    }
}

impl Layered for LinkSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        self.name.clone()
    }

    fn over(self, lower: &LinkSpec) -> LinkSpec {
        // Who makes a link, or puts it into another, decides about both.
        let has_kind = self.logical;
        let has_master = self.master().is_some();
        let base = lower.clone();
        let masters = if has_master { &self } else { &base };
        let (bond_name, bridge_slave, vrf_slave) = (
            masters.bond_name.clone(),
            masters.bridge_slave.clone(),
            masters.vrf_slave.clone(),
        );
        let made = if has_kind { self.clone() } else { base.clone() };
        LinkSpec {
            up: self.up.or(base.up),
            mtu: if self.mtu == 0 { base.mtu } else { self.mtu },
            hardware_addr: self.hardware_addr.or(base.hardware_addr),
            multicast: self.multicast.or(base.multicast),
            layer: self.layer,
            bond_name,
            bridge_slave,
            vrf_slave,
            ..made
        }
    }
}

impl Layered for AddressSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        format!("{}/{}", self.link_name, self.address)
    }
}

impl Layered for RouteSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        route_id(
            self.table,
            &self.out_link_name,
            self.gateway,
            self.dst,
            self.priority,
        )
    }
}

/// As [`RouteSpec`] says.
#[must_use]
pub fn route_id(
    table: u32,
    link: &str,
    gateway: Option<IpAddr>,
    dst: Prefix,
    priority: u32,
) -> String {
    let mut id = String::new();
    if table != MAIN_TABLE {
        id += &format!("{}/", table_name(table));
    }
    if dst.address.is_ipv6() && !link.is_empty() {
        id += &format!("{link}/");
    }
    let gateway = gateway.map(|gateway| gateway.to_string());
    let dst_text = if dst.length == 0 {
        String::new()
    } else {
        dst.to_string()
    };
    let family = family(dst.address);
    let gateway = gateway.unwrap_or_default();
    id + &format!("{family}/{gateway}/{dst_text}/{priority}")
}

impl Layered for RoutingRuleSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        format!("{}/{}", self.rule.family, self.rule.priority)
    }
}

impl Layered for OperatorSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        format!("{}/{}", self.operator, self.link_name)
    }
}

impl Layered for HostnameSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        "hostname".to_owned()
    }
}

impl Layered for ResolverSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        "resolvers".to_owned()
    }

    /// Two servers of one layer add up.
    fn over(mut self, lower: &ResolverSpec) -> ResolverSpec {
        let adds_up = self.layer == lower.layer;
        if self.dns_servers.is_empty() || adds_up {
            extend(&mut self.dns_servers, &lower.dns_servers);
        }
        if adds_up || self.search_domains.is_empty() {
            extend(&mut self.search_domains, &lower.search_domains);
        }
        self.no_own_domain |= lower.no_own_domain;
        self
    }
}

impl Layered for TimeServerSpec {
    fn layer(&self) -> Layer {
        self.layer
    }

    fn id(&self) -> String {
        "timeservers".to_owned()
    }

    fn over(mut self, lower: &TimeServerSpec) -> TimeServerSpec {
        if self.layer == lower.layer {
            extend(&mut self.time_servers, &lower.time_servers);
        }
        self
    }
}

fn extend<T: PartialEq + Clone>(these: &mut Vec<T>, others: &[T]) {
    for other in others {
        if !these.contains(other) {
            these.push(other.clone());
        }
    }
}

/// What comes of all layers, by id. Each spec stands with its id there: in one layer the first wins.
pub fn merge<'a, S: Layered>(
    specs: impl IntoIterator<Item = (&'a str, &'a S)>,
) -> BTreeMap<String, S> {
    let mut specs: Vec<(&str, &S)> = specs.into_iter().collect();
    specs.sort_by_key(|(id, spec)| (spec.layer(), Reverse(*id)));
    let mut merged: BTreeMap<String, S> = BTreeMap::new();
    for (_, spec) in specs {
        let id = spec.id();
        let spec = match merged.get(&id) {
            Some(lower) => spec.clone().over(lower),
            None => spec.clone(),
        };
        merged.insert(id, spec);
    }
    merged
}

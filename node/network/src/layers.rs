//! The specs of a layer, and the merge of several layers. The highest layer wins for each id, and for links it wins
//! field by field.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use corten_config::kinds::LinkRoute;
use corten_resources::Spec;
use corten_types::names::{NO_HEADER, table_name};
use corten_types::network_names::{HostnameSpec, OperatorSpec, ResolverSpec, TimeServerSpec};
use corten_types::network_rule::RoutingRuleSpec;
use corten_types::network_spec::{
    AddressSpec, Layer, LinkSpec, MAIN_TABLE, Master, RouteSpec, family,
};
use corten_types::network_wireguard::Wireguard;
use corten_types::prefix::Prefix;
use corten_values::Cidr;

use super::wireguard;

/// Metric of routes without one, so that a route from IPv6 autoconfiguration can win (the reference's).
pub const METRIC: u32 = 1024;

/// All specs of one layer, or of one DHCP server.
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
    /// Operators on links: DHCP clients and shared addresses.
    pub operators: Vec<OperatorSpec>,
    /// Host name.
    pub hostname: Option<HostnameSpec>,
    /// Name servers.
    pub resolver: Option<ResolverSpec>,
    /// Time servers.
    pub time_servers: Option<TimeServerSpec>,
}

impl Specs {
    /// The spec of a link; a new spec has no settings yet.
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

    /// The spec of a virtual link that the node makes.
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

    /// The spec of a WireGuard tunnel.
    pub(super) fn tunnel(&mut self, layer: Layer, name: &str, settings: Wireguard) {
        let link = self.make(layer, name, wireguard::KIND, None);
        link.link_type = NO_HEADER;
        link.wireguard = Some(settings);
    }

    /// Drops all specs of these links: their settings, and the operators on them.
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
            announce_with_arp: false,
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

/// The route of a document; `None` when the document has neither a destination nor a gateway. An empty name means no
/// link.
#[must_use]
pub fn route_from(layer: Layer, link: &str, said: &LinkRoute) -> Option<RouteSpec> {
    let everywhere = said.gateway.map(Prefix::everywhere);
    let dst = said.destination.map(prefix).or(everywhere)?;
    let found = route(layer, link, dst, said.gateway);
    Some(RouteSpec {
        src: said.source,
        priority: metric(said.metric),
        mtu: said.mtu.unwrap_or(0),
        // 0 is the kernel's word for an unspecified table.
        table: said
            .table
            .filter(|table| *table != 0)
            .unwrap_or(found.table),
        ..found
    })
}

/// The network that a routing rule matches. Every packet matches a prefix of length 0, which the kernel accepts but never
/// shows: with one, a rule would look like another one for ever.
pub(super) fn matched(said: Option<Cidr>) -> Option<Prefix> {
    let network = said.map(|cidr| prefix(cidr).network());
    network.filter(|network| network.length > 0)
}

pub(super) fn master(name: &str) -> Master {
    Master {
        master_name: name.to_owned(),
    }
}

/// The metric of a route. As in the reference, 0 counts as absent; the kernel, too, replaces 0 for an IPv6 route.
#[must_use]
pub fn metric(said: Option<u32>) -> u32 {
    said.filter(|metric| *metric != 0).unwrap_or(METRIC)
}

/// Converts the document's form of a prefix.
#[must_use]
pub fn prefix(cidr: Cidr) -> Prefix {
    Prefix {
        address: cidr.address,
        length: cidr.prefix,
    }
}

/// The resolver spec, unless it is empty.
#[must_use]
pub fn resolver(said: ResolverSpec) -> Option<ResolverSpec> {
    let nothing = ResolverSpec {
        layer: said.layer,
        ..ResolverSpec::default()
    };
    (said != nothing).then_some(said)
}

/// The time server spec, unless it has no servers.
#[must_use]
pub fn time_servers(layer: Layer, time_servers: Vec<String>) -> Option<TimeServerSpec> {
    (!time_servers.is_empty()).then_some(TimeServerSpec {
        time_servers,
        layer,
    })
}

/// Splits a host name from its domain at the first dot.
#[must_use]
pub fn hostname(layer: Layer, name: &str) -> HostnameSpec {
    let (hostname, domainname) = name.split_once('.').unwrap_or((name, ""));
    HostnameSpec {
        hostname: hostname.to_owned(),
        domainname: domainname.to_owned(),
        layer,
    }
}

/// A spec that belongs to a layer.
pub trait Layered: Spec {
    /// Layer of the spec.
    fn layer(&self) -> Layer;
    /// Identity of the spec's subject; unique among merged specs.
    fn id(&self) -> String;
    /// Merges this spec with one of a lower layer, or of another server, for the same subject.
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
        // The layer that sets the kind, or the master, decides all fields of it.
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

/// Id of a route, as defined by [`RouteSpec`].
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
        let id = format!("{}/{}", self.operator, self.link_name);
        match self.shared {
            Some(shared) => format!("{id}/{shared}"),
            None => id,
        }
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

    /// The servers of two specs of one layer add up.
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

/// Merges all layers, by id. Input specs carry the id of their resource; within one layer the first one wins.
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

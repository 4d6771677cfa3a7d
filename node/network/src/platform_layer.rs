//! Network specs of the platform, from a NoCloud seed, its metadata service or META 0x0a.

use std::collections::{BTreeMap, BTreeSet};

use corten_config::kinds::{LinkRoute, RULE_PRIORITIES, RuleAction};
use corten_seed::{
    PlatformDhcp, PlatformLink, PlatformLinkKind, PlatformNetwork, PlatformOperatorKind,
    PlatformRouteKind, SeedDhcp, SeedLink, SeedMatch, SeedRoute, SeedRule, SeedShape,
};
use corten_types::network::LinkStatus;
use corten_types::network_names::{Dhcp, OperatorSpec, ResolverSpec};
use corten_types::network_rule::{RoutingRule, RoutingRuleSpec};
use corten_types::network_spec::{Bond, Bridge, Enabled, Filtering, Layer, RouteSpec, Vlan, Vrf};
use corten_types::prefix::Prefix;
use corten_yaml::read::Word as _;
use glob::Pattern;

use super::alias::own_address;
use super::config_layer::identifier;
use super::default_layer::dhcp;
use super::layers::{
    METRIC, Specs, hostname, master, matched, metric, prefix, resolver, route, route_from,
    time_servers,
};
use super::links::{Present, real_name};
use super::seed::Seed;

const LAYER: Layer = Layer::Platform;

/// Specs of META 0x0a.
#[must_use]
pub fn of_meta(network: &PlatformNetwork, present: &Present) -> Specs {
    let mut specs = Specs::default();
    let real = |name: &str| real_name(name, present).to_owned();
    for link in &network.links {
        meta_link(&mut specs, link, &real);
    }
    for address in &network.addresses {
        let name = real(&address.link);
        // A link with an address of the platform does not run DHCP by default.
        specs.link(LAYER, &name);
        specs.address(LAYER, &name, prefix(address.address), address.priority);
        if let Some(added) = specs.addresses.last_mut() {
            added.scope = address.scope.word();
        }
    }
    for said in &network.routes {
        let leads_nowhere = said.kind == PlatformRouteKind::Blackhole;
        let link = if leads_nowhere {
            String::new()
        } else {
            real(&said.link)
        };
        let found = route_from(LAYER, &link, &LinkRoute::from(said));
        specs.routes.extend(found.map(|found| RouteSpec {
            route_type: said.kind.word(),
            scope: if leads_nowhere { "global" } else { found.scope },
            ..found
        }));
    }
    for operator in &network.operators {
        let name = real(&operator.link);
        specs.link(LAYER, &name);
        let how = match operator.kind {
            PlatformOperatorKind::Dhcp4 => &operator.dhcp4,
            PlatformOperatorKind::Dhcp6 => &operator.dhcp6,
        };
        specs.operators.push(OperatorSpec {
            dhcp: meta_dhcp(operator.kind.word(), how),
            ..dhcp(LAYER, operator.kind.word(), &name)
        });
    }
    meta_names(&mut specs, network);
    specs
}

fn meta_link(specs: &mut Specs, said: &PlatformLink, real: &impl Fn(&str) -> String) {
    let name = if said.logical {
        said.name.to_string()
    } else {
        real(&said.name)
    };
    let kind = said.kind.filter(|_| said.logical);
    let link = match kind {
        Some(kind) => specs.make(LAYER, &name, kind.word(), None),
        None => specs.link(LAYER, &name),
    };
    link.up = said.up;
    link.mtu = said.mtu;
    link.hardware_addr = said.hardware_addr.map(|mac| mac.0);
    link.multicast = said.multicast;
    link.bond_name = said.bond_name.as_deref().unwrap_or_default().to_owned();
    link.bridge_slave = said.bridge.as_ref().map(|bridge| master(&bridge.name));
    link.vrf_slave = said.vrf.as_ref().map(|vrf| master(&vrf.name));
    match kind {
        Some(PlatformLinkKind::Bond) => {
            let settings = said.bond_master.clone().unwrap_or_default().config();
            link.bond_master = Some(Bond::from(&settings));
        }
        Some(PlatformLinkKind::Bridge) => {
            let settings = said.bridge_master.clone().unwrap_or_default();
            link.bridge_master = Some(Bridge {
                stp: Enabled {
                    enabled: settings.stp.enabled,
                },
                vlan: Filtering {
                    filtering_enabled: settings.vlan.enabled,
                },
            });
        }
        Some(PlatformLinkKind::Vlan) => {
            link.parent_name = real(said.parent.as_deref().unwrap_or_default());
            let vlan = said.vlan.clone().unwrap_or_default();
            link.vlan = Some(Vlan {
                id: vlan.id,
                protocol: vlan.protocol.word(),
            });
        }
        Some(PlatformLinkKind::Vrf) => {
            let table = said.vrf_master.clone().unwrap_or_default().table.0;
            link.vrf_master = Some(Vrf { table });
        }
        Some(PlatformLinkKind::Dummy) | None => {}
    }
}

fn meta_dhcp(operator: &str, how: &PlatformDhcp) -> Dhcp {
    let said = &how.identifier;
    let duid = said.duid.as_deref().map(str::to_lowercase);
    Dhcp {
        route_metric: metric(how.route_metric),
        skip_hostname: how.skip_hostname,
        skip_routes: how.skip_routes,
        client_identifier: identifier(operator, said.kind, duid.as_deref()),
    }
}

fn meta_names(specs: &mut Specs, network: &PlatformNetwork) {
    specs.hostname = network.hostnames.first().map(|said| {
        let mut name = hostname(LAYER, &said.hostname);
        if let Some(domain) = &said.domainname {
            name.domainname = domain.to_string();
        }
        name
    });
    let resolvers = &network.resolvers;
    let servers = resolvers.iter().flat_map(|one| &one.dns_servers);
    let domains = resolvers.iter().flat_map(|one| &one.search_domains);
    specs.resolver = resolver(ResolverSpec {
        dns_servers: servers.copied().collect(),
        layer: LAYER,
        search_domains: domains.map(ToString::to_string).collect(),
        no_own_domain: resolvers.iter().any(|one| one.no_own_domain),
    });
    let servers = network.time_servers.iter();
    let servers = servers.flat_map(|one| one.time_servers.iter().map(ToString::to_string));
    specs.time_servers = time_servers(LAYER, servers.collect());
}

/// Specs of a seed, and messages about entries that match no link and settings that have no effect.
#[must_use]
pub fn of_seed(seed: &Seed, present: &Present) -> (Specs, Vec<String>) {
    let mut specs = Specs::default();
    let left_out = seed.network.left_out.iter();
    let mut complaints: Vec<String> = left_out
        .map(|what| format!("network-config: {what}"))
        .collect();
    // Bonds, bridges and VLANs refer to links by their ids.
    let mut ids: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for link in &seed.network.links {
        let found = match &link.shape {
            SeedShape::Card(how) => found(how, &link.id, present, &mut complaints),
            SeedShape::Bond { .. } | SeedShape::Bridge { .. } | SeedShape::Vlan { .. } => {
                vec![link.id.clone()]
            }
        };
        ids.insert(&link.id, found);
    }
    let named = |id: &str| ids.get(id).cloned().unwrap_or_else(|| vec![id.to_owned()]);
    for link in &seed.network.links {
        for name in named(&link.id) {
            seed_link(&mut specs, &name, link, &named);
        }
    }
    for said in &seed.network.routes {
        match through(said, &specs) {
            Some(link) => specs.routes.extend(seed_routes(&link, said)),
            None => complaints.push(format!(
                "no link of network-config reaches {}, the gateway of a route",
                said.route
                    .gateway
                    .map(|gateway| gateway.to_string())
                    .unwrap_or_default()
            )),
        }
    }
    specs.rules = seed_rules(&seed.network.rules);
    specs.hostname = seed.hostname.as_deref().map(|name| hostname(LAYER, name));
    specs.resolver = resolver(ResolverSpec {
        dns_servers: seed.network.dns_servers.clone(),
        layer: LAYER,
        search_domains: seed.network.search_domains.clone(),
        no_own_domain: false,
    });
    specs.time_servers = time_servers(LAYER, seed.time_servers.clone());
    (specs, complaints)
}

/// Names of the matching cards.
fn found(
    how: &SeedMatch,
    id: &str,
    present: &Present,
    complaints: &mut Vec<String>,
) -> Vec<String> {
    // The parser has validated the pattern.
    let Ok(pattern) = how.name.as_deref().map(Pattern::new).transpose() else {
        return Vec::new();
    };
    let drivers = how.drivers.iter();
    let drivers: Vec<Pattern> = drivers.flat_map(|text| Pattern::new(text)).collect();
    if how.mac.is_none() && pattern.is_none() && drivers.is_empty() {
        return vec![real_name(id, present).to_owned()];
    }
    let is_meant = |name: &str, link: &LinkStatus| {
        let is_called = |pattern: &Pattern| {
            pattern.matches(name) || link.alt_names.iter().any(|other| pattern.matches(other))
        };
        link.is_physical()
            && how.mac.is_none_or(|mac| own_address(link) == mac.0)
            && pattern.as_ref().is_none_or(is_called)
            && (drivers.is_empty() || drivers.iter().any(|driver| driver.matches(&link.driver)))
    };
    let names = present.iter().filter(|(name, link)| is_meant(name, link));
    let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        complaints.push(format!("no link matches {id} of network-config yet"));
    }
    names
}

fn seed_link(specs: &mut Specs, name: &str, said: &SeedLink, named: &impl Fn(&str) -> Vec<String>) {
    let hardware_addr = said.hardware_addr.map(|mac| mac.0);
    match &said.shape {
        SeedShape::Card(_) => specs.link(LAYER, name).hardware_addr = hardware_addr,
        SeedShape::Bond {
            members,
            primary,
            config,
        } => {
            let mut settings = Bond::from(&**config);
            let primary = primary.iter().flat_map(|id| named(id));
            settings.primary = primary.take(1).collect();
            let link = specs.make(LAYER, name, PlatformLinkKind::Bond.word(), hardware_addr);
            link.bond_master = Some(settings);
            for member in members.iter().flat_map(|id| named(id)) {
                name.clone_into(&mut specs.link(LAYER, &member).bond_name);
            }
        }
        SeedShape::Bridge { members, stp } => {
            let link = specs.make(LAYER, name, PlatformLinkKind::Bridge.word(), hardware_addr);
            link.bridge_master = Some(Bridge {
                stp: Enabled { enabled: *stp },
                vlan: Filtering {
                    filtering_enabled: false,
                },
            });
            for member in members.iter().flat_map(|id| named(id)) {
                specs.link(LAYER, &member).bridge_slave = Some(master(name));
            }
        }
        SeedShape::Vlan { parent, id } => {
            // The card may appear later. The seed's id for it may be another card's own name.
            let Some(parent) = named(parent).into_iter().next() else {
                return;
            };
            specs.link(LAYER, &parent);
            let link = specs.make(LAYER, name, PlatformLinkKind::Vlan.word(), hardware_addr);
            let protocol = "802.1q";
            link.vlan = Some(Vlan { id: *id, protocol });
            link.parent_name = parent;
        }
    }
    specs.link(LAYER, name).mtu = said.mtu.unwrap_or(0);
    for address in &said.addresses {
        specs.address(LAYER, name, prefix(*address), 0);
    }
    for (operator, how) in [("dhcp4", &said.dhcp4), ("dhcp6", &said.dhcp6)] {
        let Some(how) = how else { continue };
        specs.operators.push(seed_operator(operator, name, how));
    }
    let routes = said.routes.iter().flat_map(|said| seed_routes(name, said));
    specs.routes.extend(routes);
}

fn seed_operator(operator: &'static str, link: &str, how: &SeedDhcp) -> OperatorSpec {
    let mut spec = dhcp(LAYER, operator, link);
    spec.dhcp.route_metric = metric(how.route_metric);
    spec.dhcp.skip_routes = how.skip_routes;
    spec.dhcp.skip_hostname = how.skip_hostname;
    spec
}

/// A route, preceded by the route to its gateway if the gateway is on the link.
fn seed_routes(link: &str, said: &SeedRoute) -> Vec<RouteSpec> {
    let Some(mut far) = route_from(LAYER, link, &said.route) else {
        return Vec::new();
    };
    // The reference does this for platforms only. Route advertisements of IPv6 routers get metric 1024 and win over the
    // routes that a cloud writes into every seed. An operator chooses the metric in a config or in META.
    if said.route.metric.unwrap_or_default() == 0 && far.dst.address.is_ipv6() {
        far.priority = 2 * METRIC;
    }
    let gateway = far.gateway.filter(|_| said.on_link);
    let near = gateway.map(|gateway| RouteSpec {
        priority: far.priority,
        table: far.table,
        ..route(LAYER, link, Prefix::host(gateway), None)
    });
    near.into_iter().chain([far]).collect()
}

/// Routing rules; a rule without an address applies to each family. A rule without a priority gets one just before
/// those already present, as in the kernel, whose own rules begin at 32766.
fn seed_rules(said: &[SeedRule]) -> Vec<RoutingRuleSpec> {
    let taken: BTreeSet<u32> = said.iter().filter_map(|rule| rule.priority).collect();
    let mut free = RULE_PRIORITIES
        .rev()
        .filter(|number| !taken.contains(number));
    let mut specs = Vec::new();
    for said in said {
        // There are more priorities than a seed can have rules.
        let Some(priority) = said.priority.or_else(|| free.next()) else {
            break;
        };
        let mark = said.mark.filter(|mark| *mark != 0);
        specs.extend(said.families.iter().map(|family| RoutingRuleSpec {
            rule: RoutingRule {
                family,
                src: matched(said.from),
                dst: matched(said.to),
                fw_mark: mark.unwrap_or(0),
                fw_mask: mark.map_or(0, |_| u32::MAX),
                table: said.table,
                priority,
                action: RuleAction::Unicast.word(),
                ..RoutingRule::default()
            },
            layer: LAYER,
        }));
    }
    specs
}

/// The link whose network contains the gateway.
fn through(said: &SeedRoute, specs: &Specs) -> Option<String> {
    let gateway = said.route.gateway?;
    let mut addresses = specs.addresses.iter();
    let address = addresses.find(|spec| spec.address.contains(gateway))?;
    Some(address.link_name.clone())
}

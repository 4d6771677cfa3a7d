//! Network specs of the machine config's documents; `old_form.rs` reads the legacy form.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use corten_config::Document;
use corten_config::kinds::{
    BlackholeRouteConfig, BondConfig, BridgeConfig, ClientIdentifier as Identifier, DHCPv4Config,
    DHCPv6Config, DummyLinkConfig, Layer2VIPConfig, Link, LinkConfig, ResolverConfig,
    RoutingRuleConfig, RuleAction, StaticHostConfig, TimeSyncConfig, VLANConfig, VRFConfig,
    VethConfig, WireguardConfig,
};
use corten_types::network_names::{ClientIdentifier, Dhcp, OperatorSpec, ResolverSpec};
use corten_types::network_rule::{RoutingRule, RoutingRuleSpec};
use corten_types::network_spec::{
    AddressSpec, Bond, Bridge, Enabled, Filtering, Layer, RouteSpec, Veth, Vlan, Vrf, family,
};
use corten_types::network_wireguard::Wireguard;
use corten_types::prefix::Prefix;
use corten_values::LinkName;
use corten_yaml::read::Word as _;

use super::alias::aliases;
use super::default_layer::{unsaid, vip};
use super::host_dns::service_addresses;
use super::layers::{
    Specs, hostname, master, matched, metric, prefix, resolver, route, route_from, time_servers,
};
use super::links::{Present, real_name, with_real_primary};
use super::old_form;

const LAYER: Layer = Layer::Configuration;

/// Result of reading a config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// Specs of the config.
    pub specs: Specs,
    /// Links that machined leaves alone.
    pub ignored: BTreeSet<String>,
    /// Entries of `/etc/hosts`: addresses by name.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// Aliases of links, by kernel name.
    pub aliases: BTreeMap<String, String>,
    /// Failures, as messages for the operator.
    pub complaints: Vec<String>,
}

/// Reads a config. It may select links by name, alternative name, alias or properties.
#[must_use]
pub fn layer_from_config(document: &Document, present: &Present) -> Said {
    let aliases = aliases(document, present);
    let mut present = present.clone();
    for (name, link) in &mut present {
        // Aliases from an earlier config do not count.
        link.alias = aliases.by_link.get(name).cloned().unwrap_or_default();
    }
    let present = &present;
    let mut said = Said {
        aliases: aliases.by_link,
        complaints: aliases.complaints,
        ..Said::default()
    };
    for interface in &document.machine.network.interfaces {
        old_form::interface(interface, present, &mut said.specs, &mut said.ignored);
    }
    let specs = &mut said.specs;
    links(document, present, specs);
    tunnels(document, specs);
    for config in document.all::<DHCPv4Config>() {
        let name = real_name(&config.name, present);
        let duid = config.duid_raw.as_deref();
        specs.link(LAYER, name);
        specs.operators.push(OperatorSpec {
            operator: "dhcp4",
            link_name: name.to_owned(),
            require_up: true,
            dhcp: Dhcp {
                route_metric: metric(config.route_metric),
                skip_hostname: config.ignore_hostname == Some(true),
                skip_routes: config.ignore_routes == Some(true),
                client_identifier: identifier("dhcp4", config.client_identifier, duid),
            },
            shared: None,
            layer: LAYER,
        });
    }
    for config in document.all::<DHCPv6Config>() {
        let name = real_name(&config.name, present);
        let duid = config.duid_raw.as_deref();
        specs.link(LAYER, name);
        specs.operators.push(OperatorSpec {
            operator: "dhcp6",
            link_name: name.to_owned(),
            require_up: true,
            dhcp: Dhcp {
                route_metric: metric(config.route_metric),
                skip_hostname: config.ignore_hostname == Some(true),
                skip_routes: false,
                client_identifier: identifier("dhcp6", config.client_identifier, duid),
            },
            shared: None,
            layer: LAYER,
        });
    }
    specs.operators.extend(shared(document, present));
    for config in document.all::<BlackholeRouteConfig>() {
        specs.routes.push(RouteSpec {
            priority: metric(config.metric),
            route_type: "blackhole",
            scope: "global",
            ..route(LAYER, "", prefix(config.name), None)
        });
    }
    for address in service_addresses(document) {
        specs.link(LAYER, "lo");
        specs.addresses.push(AddressSpec {
            address: Prefix::host(address),
            link_name: "lo".to_owned(),
            family: family(address),
            // Every node has these addresses, so other machines cannot reach the node by them.
            scope: "host",
            announce_with_arp: false,
            priority: 0,
            layer: LAYER,
        });
    }
    let rules = document.all();
    specs.rules = rules
        .flat_map(|config| routing_rules(config, present))
        .collect();
    names(document, &mut said);
    said
}

/// Addresses that control plane nodes share. Workers have no member of etcd, which elects the holder. The link keeps its
/// default settings.
fn shared(document: &Document, present: &Present) -> impl Iterator<Item = OperatorSpec> {
    let shared = document.all::<Layer2VIPConfig>();
    let shared = shared.filter(|_| document.machine.kind.is_control_plane());
    shared.filter_map(|config| {
        let name = real_name(&config.link, present);
        Some(vip(LAYER, name, config.name?))
    })
}

/// A rule without an address applies to each family.
fn routing_rules(config: &RoutingRuleConfig, present: &Present) -> Vec<RoutingRuleSpec> {
    let address = config.src.or(config.dst).map(|cidr| cidr.address);
    let families = match address {
        Some(address) => vec![family(address)],
        None => vec!["inet4", "inet6"],
    };
    let name = |link: &Option<LinkName>| {
        let link = link.as_deref().map(|link| real_name(link, present));
        link.unwrap_or_default().to_owned()
    };
    let fw_mark = config.fw_mark.unwrap_or(0);
    // A mark without a mask matches all bits.
    let all = if fw_mark == 0 { 0 } else { u32::MAX };
    let unicast = config.action == RuleAction::Unicast;
    let rule = |family| RoutingRule {
        family,
        src: matched(config.src),
        dst: matched(config.dst),
        iif_name: name(&config.iif_name),
        oif_name: name(&config.oif_name),
        fw_mark,
        fw_mask: config.fw_mask.unwrap_or(all),
        // The other actions look up no table.
        table: config.table.filter(|_| unicast).unwrap_or(0),
        priority: config.priority,
        action: config.action.word(),
    };
    let spec = |family| RoutingRuleSpec {
        rule: rule(family),
        layer: LAYER,
    };
    families.into_iter().map(spec).collect()
}

fn links(document: &Document, present: &Present, specs: &mut Specs) {
    for config in document.all::<LinkConfig>() {
        common(specs, real_name(&config.name, present), &config.link);
    }
    for config in document.all::<DummyLinkConfig>() {
        specs.make(
            LAYER,
            &config.name,
            "dummy",
            config.hardware_addr.map(|mac| mac.0),
        );
        common(specs, &config.name, &config.link);
    }
    for config in document.all::<BondConfig>() {
        specs.make(
            LAYER,
            &config.name,
            "bond",
            config.hardware_addr.map(|mac| mac.0),
        );
        let bond = with_real_primary(Bond::from(config), present);
        specs.link(LAYER, &config.name).bond_master = Some(bond);
        for member in &config.links {
            let member = specs.link(LAYER, real_name(member, present));
            member.bond_name = config.name.to_string();
        }
        common(specs, &config.name, &config.link);
    }
    for config in document.all::<BridgeConfig>() {
        specs.make(
            LAYER,
            &config.name,
            "bridge",
            config.hardware_addr.map(|mac| mac.0),
        );
        specs.link(LAYER, &config.name).bridge_master = Some(Bridge {
            stp: Enabled {
                enabled: config.stp.enabled,
            },
            vlan: Filtering {
                filtering_enabled: config.vlan.filtering,
            },
        });
        for member in &config.links {
            let member = specs.link(LAYER, real_name(member, present));
            member.bridge_slave = Some(master(&config.name));
        }
        common(specs, &config.name, &config.link);
    }
    for config in document.all::<VLANConfig>() {
        let link = specs.make(LAYER, &config.name, "vlan", None);
        real_name(&config.parent, present).clone_into(&mut link.parent_name);
        link.vlan = Some(Vlan {
            id: config.vlan_id,
            protocol: config.vlan_mode.word(),
        });
        common(specs, &config.name, &config.link);
    }
    for config in document.all::<VethConfig>() {
        specs.make(LAYER, &config.name, "veth", None);
        let peer_name = config.peer.name.to_string();
        specs.link(LAYER, &config.name).veth = Some(Veth { peer_name });
        common(specs, &config.name, &config.link);
        // The peer exists once the other end is made.
        common(specs, &config.peer.name, &config.peer.link);
    }
    for config in document.all::<VRFConfig>() {
        specs.make(
            LAYER,
            &config.name,
            "vrf",
            config.hardware_addr.map(|mac| mac.0),
        );
        let table = config.table;
        specs.link(LAYER, &config.name).vrf_master = Some(Vrf { table });
        for member in &config.links {
            let member = specs.link(LAYER, real_name(member, present));
            member.vrf_slave = Some(master(&config.name));
        }
        common(specs, &config.name, &config.link);
    }
}

fn tunnels(document: &Document, specs: &mut Specs) {
    for config in document.all::<WireguardConfig>() {
        specs.tunnel(LAYER, &config.name, Wireguard::from(config));
        common(specs, &config.name, &config.link);
    }
}

fn common(specs: &mut Specs, name: &str, config: &Link) {
    let link = specs.link(LAYER, name);
    link.up = config.up;
    link.mtu = config.mtu.unwrap_or(0);
    link.multicast = config.multicast;
    for address in &config.addresses {
        let priority = address.route_priority.unwrap_or(0);
        specs.address(LAYER, name, prefix(address.address), priority);
    }
    for config in &config.routes {
        specs.routes.extend(route_from(LAYER, name, config));
    }
}

/// The client identifier of a link. A DUID without an identifier kind selects the kind `duid`.
pub(super) fn identifier(
    operator: &str,
    kind: Option<Identifier>,
    duid: Option<&str>,
) -> ClientIdentifier {
    let kind = kind.or(duid.map(|_| Identifier::Duid));
    ClientIdentifier {
        client_identifier: kind.map_or(unsaid(operator), Identifier::word),
        duid: duid.unwrap_or_default().replace(':', ""),
    }
}

fn names(document: &Document, said: &mut Said) {
    let network = &document.machine.network;
    let name = document.hostname();
    said.specs.hostname = name.map(|name| hostname(LAYER, name));

    let resolvers = || {
        document
            .all::<ResolverConfig>()
            .map(|config| &config.search_domains)
    };
    let by_kind = resolvers().flat_map(|search| &search.domains);
    let domains = network.search_domains.iter().chain(by_kind);
    said.specs.resolver = resolver(ResolverSpec {
        dns_servers: document.nameservers(),
        layer: LAYER,
        search_domains: domains.map(ToString::to_string).collect(),
        no_own_domain: network.disable_search_domain
            || resolvers().any(|search| search.disable_default),
    });

    let kinds = || document.all::<TimeSyncConfig>();
    let servers = kinds().filter_map(|config| config.ntp.as_ref());
    let servers = servers.flat_map(|ntp| ntp.servers.iter().map(ToString::to_string));
    let devices = kinds().filter_map(|config| config.ptp.as_ref());
    let devices = devices.flat_map(|ptp| ptp.devices.iter().map(ToString::to_string));
    let old = document
        .machine
        .time
        .servers
        .iter()
        .map(ToString::to_string);
    let servers = old.chain(servers).chain(devices).collect();
    said.specs.time_servers = time_servers(LAYER, servers);

    let old = network.extra_host_entries.iter();
    let old = old.map(|entry| (entry.ip, &entry.aliases));
    let by_kind = document.all::<StaticHostConfig>();
    let by_kind = by_kind.map(|host| (host.name, &host.hostnames));
    for (address, names) in old.chain(by_kind) {
        for (address, name) in address
            .iter()
            .flat_map(|address| names.iter().map(move |name| (address, name)))
        {
            let addresses = said.hosts.entry(name.to_string()).or_default();
            addresses.push(*address);
        }
    }
}

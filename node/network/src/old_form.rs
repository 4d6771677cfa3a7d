//! Network specs of the legacy form, `machine.network.interfaces`.

use std::collections::BTreeSet;

use corten_config::kinds::LinkRoute;
use corten_config::v1alpha1::{DeviceSelector, DhcpOptions, Interface, LegacyRoute, Vip};
use corten_types::network::LinkStatus;
use corten_types::network_spec::{Bond, Bridge, Enabled, Filtering, Layer, Vlan};
use corten_types::network_wireguard::Wireguard;
use corten_values::{Cidr, LinkName, vlan_name};

use super::default_layer::{dhcp, vip};
use super::layers::{Specs, master, metric, prefix, route_from};
use super::links::{Present, real_name, with_real_primary};

const LAYER: Layer = Layer::Configuration;

/// Adds the specs of one entry, for each link that it selects; `ignored` gets the links that machined leaves alone.
pub(super) fn interface(
    interface: &Interface,
    present: &Present,
    specs: &mut Specs,
    ignored: &mut BTreeSet<String>,
) {
    let mut names: Vec<String> = Vec::new();
    if let Some(name) = &interface.interface {
        names.push(real_name(name, present).to_owned());
    }
    if let Some(selector) = &interface.device_selector {
        names.extend(selected(selector, present));
    }
    for name in names {
        if interface.ignore {
            ignored.insert(name);
            continue;
        }
        one(interface, &name, present, specs);
    }
}

fn one(interface: &Interface, name: &str, present: &Present, specs: &mut Specs) {
    if interface.dummy {
        specs.make(LAYER, name, "dummy", None);
    }
    if let Some(config) = &interface.wireguard {
        specs.tunnel(LAYER, name, Wireguard::from(config));
    }
    if let Some(bond) = &interface.bond {
        let settings = with_real_primary(Bond::from(bond), present);
        specs.make(LAYER, name, "bond", None).bond_master = Some(settings);
        let by_look = bond.device_selectors.iter();
        let by_look = by_look.flat_map(|selector| selected(selector, present));
        for member in members(&bond.interfaces, present).chain(by_look) {
            name.clone_into(&mut specs.link(LAYER, &member).bond_name);
        }
    }
    if let Some(bridge) = &interface.bridge {
        specs.make(LAYER, name, "bridge", None).bridge_master = Some(Bridge {
            stp: Enabled {
                enabled: bridge.stp.enabled,
            },
            vlan: Filtering {
                filtering_enabled: bridge.vlan.vlan_filtering,
            },
        });
        for member in members(&bridge.interfaces, present) {
            specs.link(LAYER, &member).bridge_slave = Some(master(name));
        }
    }
    let link = specs.link(LAYER, name);
    link.mtu = interface.mtu.unwrap_or(0);
    if let Some(port) = &interface.bridge_port {
        link.bridge_slave = Some(master(&port.master));
    }
    addresses(
        specs,
        name,
        interface.addresses.iter().chain(&interface.cidr),
    );
    routes(specs, name, &interface.routes);
    if interface.dhcp == Some(true) {
        ask(specs, name, &interface.dhcp_options);
    }
    share(specs, name, interface.vip.as_ref());
    for vlan in &interface.vlans {
        let name_of_vlan = vlan_name(name, vlan.vlan_id);
        let link = specs.make(LAYER, &name_of_vlan, "vlan", None);
        name.clone_into(&mut link.parent_name);
        link.mtu = vlan.mtu.unwrap_or(0);
        link.vlan = Some(Vlan {
            id: vlan.vlan_id,
            protocol: "802.1q",
        });
        addresses(
            specs,
            &name_of_vlan,
            vlan.addresses.iter().chain(&vlan.cidr),
        );
        routes(specs, &name_of_vlan, &vlan.routes);
        if vlan.dhcp {
            ask(specs, &name_of_vlan, &vlan.dhcp_options);
        }
        share(specs, &name_of_vlan, vlan.vip.as_ref());
    }
}

fn members<'a>(names: &'a [LinkName], present: &'a Present) -> impl Iterator<Item = String> + 'a {
    names.iter().map(|name| real_name(name, present).to_owned())
}

fn addresses<'a>(specs: &mut Specs, link: &str, cidrs: impl Iterator<Item = &'a Cidr>) {
    for cidr in cidrs {
        specs.address(LAYER, link, prefix(*cidr), 0);
    }
}

fn routes(specs: &mut Specs, link: &str, configs: &[LegacyRoute]) {
    let routes = configs.iter().map(LinkRoute::from);
    let routes = routes.filter_map(|config| route_from(LAYER, link, &config));
    specs.routes.extend(routes);
}

fn ask(specs: &mut Specs, link: &str, options: &DhcpOptions) {
    let wanted = [
        ("dhcp4", options.ipv4 != Some(false)),
        ("dhcp6", options.ipv6 == Some(true)),
    ];
    for (operator, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
        let mut spec = dhcp(LAYER, operator, link);
        spec.dhcp.route_metric = metric(options.route_metric);
        if let Some(duid) = options.duidv6.as_ref().filter(|_| operator == "dhcp6") {
            spec.dhcp.client_identifier.client_identifier = "duid";
            spec.dhcp.client_identifier.duid = duid.replace(':', "");
        }
        specs.operators.push(spec);
    }
}

fn share(specs: &mut Specs, link: &str, shared: Option<&Vip>) {
    let address = shared.and_then(|shared| shared.ip);
    let shared = address.map(|address| vip(LAYER, link, address));
    specs.operators.extend(shared);
}

/// Names of the links of devices that match the selector.
fn selected(selector: &DeviceSelector, present: &Present) -> Vec<String> {
    let fits = |link: &LinkStatus| {
        let patterns = [
            (&selector.bus_path, &link.bus_path),
            (&selector.pci_id, &link.pci_id),
            (&selector.driver, &link.driver),
            (&selector.permanent_addr, &link.permanent_addr),
            (&selector.hardware_addr, &link.hardware_addr),
        ];
        let mut patterns = patterns.iter();
        let physical = selector
            .physical
            .is_none_or(|physical| physical == link.is_physical());
        physical
            && link.kind.is_empty()
            && link.link_type == "ether"
            && patterns
                .all(|(pattern, text)| pattern.as_ref().is_none_or(|pattern| like(pattern, text)))
    };
    let fitting = present.iter().filter(|(_, link)| fits(link));
    fitting.map(|(name, _)| name.clone()).collect()
}

/// Matches a shell pattern, ignoring case: hardware addresses are hexadecimal.
fn like(pattern: &str, text: &str) -> bool {
    let options = glob::MatchOptions {
        case_sensitive: false,
        ..glob::MatchOptions::new()
    };
    glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches_with(text, options))
}

//! OpenStack's network description, `network_data.json` (Nova's documentation: "Metadata", JSON schema of
//! `network_data.json`).

use std::collections::BTreeMap;

use corten_config::kinds::{BondConfig, BondMode, LacpRate, XmitHashPolicy};
use corten_seed::{SeedDhcp, SeedLink, SeedNetwork, SeedShape};
use corten_yaml::read::Word as _;

use crate::json::Json;
use crate::links;

/// Default interval of a bond's link monitoring, in milliseconds.
const MIIMON: u32 = 100;
/// Delay before a bond considers a card up or down, in milliseconds.
const SETTLED: u32 = 200;

/// Converts the document. Bonds and VLANs get new names, because the document's identifiers may be too long.
pub(crate) fn read(document: &Json<'_>) -> SeedNetwork {
    let mut seed = SeedNetwork::default();
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    let mut bonds = 0;
    let entries = document.list("links");
    for entry in &entries {
        let id = entry.text("id");
        let link = match &*entry.text("type") {
            "bond" => {
                bonds += 1;
                bond(entry, &format!("bond{}", bonds - 1))
            }
            "vlan" => match vlan(entry) {
                Some(link) => link,
                None => continue,
            },
            // All other types are cards of the host's virtual devices.
            _ => links::card(&id, entry.mac("ethernet_mac_address")),
        };
        let mtu = entry.mtu("mtu");
        at.insert(id, seed.links.len());
        seed.links.push(SeedLink { mtu, ..link });
    }
    rename(&mut seed, &at);
    for entry in document.list("networks") {
        let link = at.get(&entry.text("link"));
        match link.and_then(|link| seed.links.get_mut(*link)) {
            Some(link) => network(&entry, link, &mut seed.dns_servers),
            None => entry.wrong("is on a link that the document does not have"),
        }
    }
    services(document, &mut seed.dns_servers);
    seed
}

/// Replaces references to the document's identifiers by the names of bonds and VLANs.
fn rename(seed: &mut SeedNetwork, at: &BTreeMap<String, usize>) {
    let names: BTreeMap<&String, String> = at
        .iter()
        .filter_map(|(id, at)| Some((id, seed.links.get(*at)?.id.clone())))
        .collect();
    let rename = |id: &mut String| {
        if let Some(name) = names.get(id) {
            id.clone_from(name);
        }
    };
    for link in &mut seed.links {
        match &mut link.shape {
            SeedShape::Bond { members, .. } => members.iter_mut().for_each(rename),
            SeedShape::Vlan { parent, .. } => rename(parent),
            SeedShape::Card(_) | SeedShape::Bridge { .. } => {}
        }
    }
}

fn bond(entry: &Json<'_>, name: &str) -> SeedLink {
    let mode = entry.text("bond_mode");
    let mode = BondMode::from_word(&mode).or_else(|| {
        let all = BondMode::ALL.iter().copied();
        let numbers = all.zip(["0", "1", "2", "3", "4", "5", "6"]);
        let mut found = numbers.filter(|(_, number)| *number == mode);
        found.next().map(|(mode, _)| mode)
    });
    if mode.is_none() {
        entry.wrong("bond_mode must be a mode of bonds");
    }
    let policy = entry.text("bond_xmit_hash_policy");
    let xmit_hash_policy = XmitHashPolicy::from_word(&policy);
    if xmit_hash_policy.is_none() && !policy.is_empty() {
        entry.wrong("bond_xmit_hash_policy must be a policy of bonds");
    }
    let mode = mode.unwrap_or_default();
    let config = BondConfig {
        mode,
        miimon: entry.number("bond_miimon").or(Some(MIIMON)),
        updelay: Some(SETTLED),
        downdelay: Some(SETTLED),
        xmit_hash_policy,
        lacp_rate: (mode == BondMode::Lacp).then_some(LacpRate::Fast),
        ..BondConfig::default()
    };
    let shape = SeedShape::Bond {
        members: entry.texts("bond_links"),
        primary: None,
        config: Box::new(config),
    };
    SeedLink {
        hardware_addr: entry.mac("ethernet_mac_address"),
        ..SeedLink::new(name, shape)
    }
}

fn vlan(entry: &Json<'_>) -> Option<SeedLink> {
    let id = entry.number("vlan_id").filter(|id| (1..=4094).contains(id));
    let parent = entry.text("vlan_link");
    let (Some(id), false) = (id, parent.is_empty()) else {
        entry.wrong("needs a vlan_id from 1 to 4094 and a vlan_link");
        return None;
    };
    let shape = SeedShape::Vlan { parent, id };
    Some(SeedLink {
        hardware_addr: entry.mac("vlan_mac_address"),
        ..SeedLink::new(&format!("vlan{id}"), shape)
    })
}

fn network(entry: &Json<'_>, link: &mut SeedLink, dns_servers: &mut Vec<std::net::IpAddr>) {
    // DHCP derives a host name from the address; the metadata has the real one.
    let ask = || {
        Some(SeedDhcp {
            skip_hostname: true,
            ..SeedDhcp::default()
        })
    };
    match &*entry.text("type") {
        "ipv4_dhcp" => link.dhcp4 = ask(),
        "ipv6_dhcp" | "ipv6_dhcpv6-stateful" => link.dhcp6 = ask(),
        // The kernel configures these addresses from router advertisements.
        "ipv4" | "ipv6" | "ipv6_slaac" | "ipv6_dhcpv6-stateless" => {}
        _ => {
            entry.wrong("has a type that is not known");
            return;
        }
    }
    link.addresses.extend(entry.masked("ip_address", "netmask"));
    links::add_gateway(link, entry.address("gateway"));
    for route in entry.list("routes") {
        let destination = route.masked("network", "netmask");
        match (destination, route.address("gateway")) {
            (Some(destination), Some(gateway))
                if destination.address.is_ipv4() == gateway.is_ipv4() =>
            {
                links::add_route(link, Some(destination), gateway);
            }
            _ => route.wrong("needs a network and a gateway of the same family"),
        }
    }
    services(entry, dns_servers);
}

fn services(of: &Json<'_>, dns_servers: &mut Vec<std::net::IpAddr>) {
    for service in of.list("services") {
        if service.text("type") == "dns" {
            let server = service.address("address");
            dns_servers.extend(server.filter(|server| !dns_servers.contains(server)));
        }
    }
}

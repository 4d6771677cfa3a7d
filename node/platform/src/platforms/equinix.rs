//! Equinix Metal: bonds of the machine's cards, with the addresses on the first bond.
//!
//! Equinix's documentation: "Metadata"; the service is on the Internet, behind TLS.

use std::net::IpAddr;

use corten_config::kinds::{AdLacpActive, BondConfig, BondMode, XmitHashPolicy};
use corten_seed::{SeedLink, SeedNetwork, SeedShape};
use corten_values::Cidr;
use corten_yaml::read::Word as _;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::json::Json;
use crate::links;
use crate::request::{Platform, Request};

pub(super) const PLATFORM: Platform = Platform {
    name: "equinixMetal",
    ..PACKET
};

/// The platform under its former name.
pub(super) const PACKET: Platform = Platform {
    name: "packet",
    bases: &["https://metadata.platformequinix.com"],
    requests: &[
        Request::config("user-data", "/userdata"),
        Request::needed("metadata", "/metadata"),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let machine = given.json("metadata");
    let id = machine.text("id");
    let metadata = Metadata {
        hostname: machine.text("hostname"),
        region: machine.text("metro"),
        zone: machine.text("facility"),
        instance_type: machine.text("plan"),
        provider_id: format!("equinixmetal://{id}"),
        instance_id: id,
        tags: machine.tags("tags"),
        ..Metadata::default()
    };
    let said = machine.get("network");
    let mut seed = cards_and_bonds(&said);
    let mut external = Vec::new();
    let bond = seed
        .links
        .iter_mut()
        .find(|link| matches!(link.shape, SeedShape::Bond { .. }));
    if let Some(bond) = bond {
        let addresses = said.list("addresses");
        let used = addresses
            .iter()
            .filter(|one| one.flag("enabled") && one.flag("management"));
        let used: Vec<&Json<'_>> = used.collect();
        for one in &used {
            bond.addresses.extend(one.masked("address", "cidr"));
            external.extend(one.address("address").filter(|_| one.flag("public")));
        }
        for one in used {
            if one.flag("public") {
                links::add_gateway(bond, one.address("gateway"));
            } else {
                routes_inside(&machine, bond, one.address("gateway"));
            }
        }
    }
    let network = Network {
        seed,
        external,
        ..Network::default()
    };
    given.instance("metadata", given.config("user-data"), metadata, network)
}

/// Bonds, in the order of their first cards.
fn cards_and_bonds(said: &Json<'_>) -> SeedNetwork {
    let mode: usize = said.get("bonding").number("mode").unwrap_or_default();
    let mode = BondMode::ALL.get(mode).copied().unwrap_or_else(|| {
        said.wrong("bonding.mode must be a mode of bonds");
        BondMode::default()
    });
    let mut seed = SeedNetwork::default();
    let mut bonds: Vec<(String, Vec<String>)> = Vec::new();
    for entry in said.list("interfaces") {
        let (name, bond) = (entry.text("name"), entry.text("bond"));
        if bond.is_empty() {
            continue;
        }
        seed.links.push(links::card(&name, entry.mac("mac")));
        match bonds.iter_mut().find(|(known, _)| *known == bond) {
            Some((_, members)) => members.push(name),
            None => bonds.push((bond, vec![name])),
        }
    }
    for (name, members) in bonds {
        let config = BondConfig {
            mode,
            miimon: Some(100),
            updelay: Some(200),
            downdelay: Some(200),
            xmit_hash_policy: Some(XmitHashPolicy::Layer34),
            ad_lacp_active: (mode == BondMode::Lacp).then_some(AdLacpActive::On),
            ..BondConfig::default()
        };
        let shape = SeedShape::Bond {
            members,
            primary: None,
            config: Box::new(config),
        };
        seed.links.push(SeedLink::new(&name, shape));
    }
    seed
}

/// Adds routes to the project's networks and to the BGP neighbors.
fn routes_inside(machine: &Json<'_>, bond: &mut SeedLink, gateway: Option<IpAddr>) {
    let Some(gateway @ IpAddr::V4(_)) = gateway else {
        return;
    };
    let subnets = machine.list("private_subnets");
    let subnets = subnets.iter().filter_map(|one| one.as_cidr());
    let neighbours = machine.list("bgp_neighbors");
    let peers = neighbours.iter().flat_map(|one| one.addresses("peer_ips"));
    let peers = peers.map(|address| Cidr {
        address,
        prefix: 32,
    });
    for destination in subnets.chain(peers) {
        if destination.address.is_ipv4() {
            links::add_route(bond, Some(destination), gateway);
        }
    }
}

#[cfg(test)]
mod tests {
    //! An answer in the form of Equinix Metal's "Metadata", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    const METADATA: &str = r#"{"id":"8e67","hostname":"metal-1","plan":"c3.small.x86","metro":"sv","facility":"sv15",
      "tags":[],"private_subnets":["10.0.0.0/8"],"network":{"bonding":{"mode":4,"link_aggregation":"bonded"},
      "interfaces":[{"name":"eth0","mac":"40:a6:b7:00:00:01","bond":"bond0"},
                    {"name":"eth1","mac":"40:a6:b7:00:00:02","bond":"bond0"}],
      "addresses":[{"address_family":4,"netmask":"255.255.255.254","public":true,"cidr":31,"management":true,
         "enabled":true,"network":"203.0.113.80","address":"203.0.113.81","gateway":"203.0.113.80"},
        {"address_family":4,"public":false,"cidr":31,"management":true,"enabled":true,"network":"10.68.0.0",
         "address":"10.68.0.1","gateway":"10.68.0.0"}]},
      "bgp_neighbors":[{"address_family":4,"peer_ips":["169.254.255.1"]}]}"#;

    #[tokio::test]
    async fn machine_bonds_its_interfaces_and_has_its_addresses_on_the_bond() {
        let (instance, notes) = Script::new()
            .get("/userdata", "machine: {}")
            .get("/metadata", METADATA)
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(instance.metadata.provider_id, "equinixmetal://8e67");
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 40:a6:b7:00:00:01",
                "eth1 40:a6:b7:00:00:02",
                "bond0 bond Lacp of eth0,eth1 203.0.113.81/31 10.68.0.1/31",
                "bond0 default via 203.0.113.80",
                "bond0 10.0.0.0/8 via 10.68.0.0",
                "bond0 169.254.255.1/32 via 10.68.0.0"
            ]
        );
        assert_eq!(instance.network.external.len(), 1);
    }
}

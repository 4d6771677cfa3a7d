//! Scaleway. It returns user data only to a source port below 1024, as proof that root asks.
//!
//! Scaleway's documentation: "Instance metadata", "User data".

use corten_config::kinds::LinkRoute;
use corten_seed::{SeedNetwork, SeedRoute};
use corten_values::Cidr;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request};

/// Metric of the route to the metadata service, lower in priority than other routes.
const METRIC: u32 = 4096;

pub(super) const PLATFORM: Platform = Platform {
    name: "scaleway",
    bases: &["http://169.254.42.42", "http://[fd00:42::42]"],
    requests: &[USER_DATA, Request::needed("metadata", "/conf?format=json")],
    read,
    ..Platform::BLANK
};

const USER_DATA: Request = {
    let mut request = Request::config("user-data", "/user_data/cloud-init");
    request.from_low_port = true;
    request
};

fn read(given: &Given<'_>) -> Instance {
    let server = given.json("metadata");
    let id = server.text("id");
    let zone = server.get("location").text("zone_id");
    let region = zone.rsplit_once('-').map_or("", |(region, _)| region);
    let metadata = Metadata {
        hostname: server.text("hostname"),
        region: region.to_owned(),
        instance_type: server.text("commercial_type"),
        provider_id: format!("scaleway://instance/{zone}/{id}"),
        instance_id: id,
        tags: server.tags("tags"),
        zone,
        ..Metadata::default()
    };
    let mut link = links::dhcp4("eth0", given.first_card());
    link.routes.push(SeedRoute::from(LinkRoute {
        destination: Cidr::parse("169.254.42.42/32"),
        metric: Some(METRIC),
        ..LinkRoute::default()
    }));
    let mut external: Vec<_> = server
        .get("public_ip")
        .address("address")
        .into_iter()
        .collect();
    let fourth = server.list("public_ips_v4");
    external.extend(fourth.iter().filter_map(|one| one.address("address")));
    let old = server.get("ipv6");
    let sixth = server.list("public_ips_v6");
    for one in [&old].into_iter().chain(&sixth) {
        if let Some(address) = one.masked("address", "netmask") {
            if !link.addresses.contains(&address) {
                link.addresses.push(address);
                links::add_gateway(&mut link, one.address("gateway"));
            }
            external.push(address.address);
        }
    }
    external.sort();
    external.dedup();
    let network = Network {
        seed: SeedNetwork {
            links: vec![link],
            ..SeedNetwork::default()
        },
        external,
        ..Network::default()
    };
    given.instance("metadata", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! An answer in the form of Scaleway's "Instance metadata", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    const METADATA: &str = r#"{"id":"11111111-1111","name":"scw-1","hostname":"scw-1",
      "commercial_type":"DEV1-S","tags":["kube"],"public_ip":{"address":"203.0.113.30","family":"inet"},
      "public_ips_v4":[{"address":"203.0.113.30","netmask":"32","gateway":"62.210.0.1","family":"inet"}],
      "public_ips_v6":[{"address":"2001:db8:30::1","netmask":"64","gateway":"fe80::dc00:ff:fe1a","family":"inet6"}],
      "ipv6":null,"location":{"zone_id":"fr-par-1","platform_id":"14"}}"#;

    #[tokio::test]
    async fn first_interface_gets_the_ipv6_address() {
        let (instance, notes) = Script::new()
            .get("/user_data/cloud-init", "machine: {}")
            .get("/conf?format=json", METADATA)
            .card("ens2", [2, 0, 0, 0, 0, 7])
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert!(instance.config.is_some());
        let metadata = instance.metadata;
        assert_eq!(
            metadata.provider_id,
            "scaleway://instance/fr-par-1/11111111-1111"
        );
        assert_eq!(metadata.region, "fr-par");
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 02:00:00:00:00:07 dhcp4 2001:db8:30::1/64",
                "eth0 169.254.42.42/32 metric 4096",
                "eth0 default via fe80::dc00:ff:fe1a"
            ]
        );
        assert_eq!(instance.network.external.len(), 2);
    }
}

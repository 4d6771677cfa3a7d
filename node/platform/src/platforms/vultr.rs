//! Vultr.
//!
//! Vultr's documentation: "Metadata API reference".

use corten_seed::{SeedDhcp, SeedNetwork};

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request};

/// MTU of private networks, in bytes.
const PRIVATE_MTU: u32 = 1450;

pub(super) const PLATFORM: Platform = Platform {
    name: "vultr",
    bases: &["http://169.254.169.254"],
    requests: &[
        Request::config("user-data", "/latest/user-data"),
        Request::needed("metadata", "/v1.json"),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let server = given.json("metadata");
    let id = server.text("instance-v2-id");
    let metadata = Metadata {
        hostname: server.text("hostname"),
        region: server.get("region").text("regioncode"),
        provider_id: format!("vultr://{id}"),
        instance_id: id,
        tags: server.tags("tags"),
        ..Metadata::default()
    };
    let mut seed = SeedNetwork::default();
    let mut external = Vec::new();
    for (at, entry) in server.list("interfaces").iter().enumerate() {
        let is_public = entry.text("network-type") == "public";
        let mut link = links::card(&format!("eth{at}"), entry.mac("mac"));
        link.mtu = (!is_public).then_some(PRIVATE_MTU);
        let fourth = entry.get("ipv4");
        link.addresses.extend(fourth.masked("address", "netmask"));
        if link.addresses.is_empty() {
            link.dhcp4 = Some(SeedDhcp::default());
        } else if is_public {
            links::add_gateway(&mut link, fourth.address("gateway"));
        }
        if is_public {
            // The kernel configures the IPv6 address from router advertisements.
            let families = [
                fourth.address("address"),
                entry.get("ipv6").address("address"),
            ];
            external.extend(families.into_iter().flatten());
        }
        seed.links.push(link);
    }
    let network = Network {
        seed,
        external,
        ..Network::default()
    };
    given.instance("metadata", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! An answer in the form of Vultr's "Metadata API reference", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    const METADATA: &str = r#"{"hostname":"vultr-guest","instance-v2-id":"42872224-56bd","instanceid":"88",
      "region":{"countrycode":"US","regioncode":"EWR"},"tags":[],"interfaces":[
      {"ipv4":{"additional":[],"address":"203.0.113.8","gateway":"203.0.113.1","netmask":"255.255.254.0"},
       "ipv6":{"additional":[],"address":"2001:db8::8","network":"2001:db8::","prefix":"64"},
       "mac":"56:00:03:1b:4e:ca","network-type":"public"},
      {"ipv4":{"address":"10.1.112.5","gateway":"","netmask":"255.255.240.0"},
       "ipv6":{"address":"","network":"","prefix":""},"mac":"5a:00:03:1b:4e:ca","network-type":"private"}]}"#;

    #[tokio::test]
    async fn private_link_of_vultr_has_a_smaller_mtu() {
        let (instance, notes) = Script::new().get("/v1.json", METADATA).ask(&PLATFORM).await;
        assert_eq!(notes, [""; 0]);
        let metadata = instance.metadata;
        assert_eq!(
            (&*metadata.region, &*metadata.provider_id),
            ("EWR", "vultr://42872224-56bd")
        );
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 56:00:03:1b:4e:ca 203.0.113.8/23",
                "eth0 default via 203.0.113.1",
                "eth1 5a:00:03:1b:4e:ca mtu 1450 10.1.112.5/20"
            ]
        );
        assert_eq!(instance.network.external.len(), 2);
    }
}

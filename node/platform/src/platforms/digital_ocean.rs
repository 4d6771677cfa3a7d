//! DigitalOcean.
//!
//! DigitalOcean's documentation: "Metadata API".

use std::net::IpAddr;

use corten_seed::{SeedLink, SeedNetwork};

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::json::Json;
use crate::links;
use crate::request::{Platform, Request};

pub(super) const PLATFORM: Platform = Platform {
    name: "digital-ocean",
    bases: &["http://169.254.169.254/metadata"],
    requests: &[
        Request::config("user-data", "/v1/user-data"),
        Request::needed("metadata", "/v1.json"),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let droplet = given.json("metadata");
    let id = droplet.text("droplet_id");
    let metadata = Metadata {
        hostname: droplet.text("hostname"),
        region: droplet.text("region"),
        provider_id: format!("digitalocean://{id}"),
        instance_id: id,
        tags: droplet.tags("tags"),
        ..Metadata::default()
    };
    let mut seed = SeedNetwork {
        dns_servers: droplet.get("dns").addresses("nameservers"),
        ..SeedNetwork::default()
    };
    let mut external = Vec::new();
    let interfaces = droplet.get("interfaces");
    for kind in ["public", "private"] {
        for entry in interfaces.list(kind) {
            let link = card(&entry, &format!("eth{}", seed.links.len()));
            if kind == "public" {
                let families = [entry.get("ipv4"), entry.get("ipv6")];
                external.extend(families.iter().filter_map(|one| one.address("ip_address")));
            }
            seed.links.push(link);
        }
    }
    external.extend(reserved(&droplet));
    let network = Network {
        seed,
        external,
        ..Network::default()
    };
    given.instance("metadata", given.config("user-data"), metadata, network)
}

fn card(entry: &Json<'_>, name: &str) -> SeedLink {
    let mut link = links::card(name, entry.mac("mac"));
    let fourth = entry.get("ipv4");
    link.addresses
        .extend(fourth.masked("ip_address", "netmask"));
    let anchor = entry.get("anchor_ipv4");
    link.addresses
        .extend(anchor.masked("ip_address", "netmask"));
    let sixth = entry.get("ipv6");
    link.addresses.extend(sixth.masked("ip_address", "cidr"));
    // The gateway of a private network has no route to the Internet.
    if entry.text("type") != "private" {
        links::add_gateway(&mut link, fourth.address("gateway"));
        links::add_gateway(&mut link, sixth.address("gateway"));
    }
    link
}

fn reserved(droplet: &Json<'_>) -> Option<IpAddr> {
    let reserved = droplet.get("reserved_ip");
    let reserved = reserved.get("ipv4");
    reserved
        .flag("active")
        .then(|| reserved.address("ip_address"))?
}

#[cfg(test)]
mod tests {
    //! An answer in the form of DigitalOcean's "Metadata API", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    const METADATA: &str = r#"{"droplet_id":2756294,"hostname":"sample-droplet","region":"nyc3",
      "tags":["kube"],"dns":{"nameservers":["192.0.2.53"]},
      "interfaces":{
       "public":[{"ipv4":{"ip_address":"203.0.113.20","netmask":"255.255.240.0","gateway":"203.0.112.1"},
         "ipv6":{"ip_address":"2001:db8:1::5","cidr":64,"gateway":"2001:db8:1::1"},
         "anchor_ipv4":{"ip_address":"10.17.0.5","netmask":"255.255.0.0","gateway":"10.17.0.1"},
         "mac":"04:01:2a:0f:2a:01","type":"public"}],
       "private":[{"ipv4":{"ip_address":"10.132.255.113","netmask":"255.255.0.0","gateway":"10.132.0.1"},
         "mac":"04:01:2a:0f:2a:02","type":"private"}]},
      "reserved_ip":{"ipv4":{"active":true,"ip_address":"203.0.113.99"}}}"#;

    #[tokio::test]
    async fn droplet_has_static_addresses_on_both_interfaces() {
        let (instance, notes) = Script::new()
            .get("/metadata/v1/user-data", "machine: {}")
            .get("/metadata/v1.json", METADATA)
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert!(instance.config.is_some());
        assert_eq!(instance.metadata.provider_id, "digitalocean://2756294");
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 04:01:2a:0f:2a:01 203.0.113.20/20 10.17.0.5/16 2001:db8:1::5/64",
                "eth0 default via 203.0.112.1",
                "eth0 default via 2001:db8:1::1",
                "eth1 04:01:2a:0f:2a:02 10.132.255.113/16",
                "dns 192.0.2.53"
            ]
        );
        assert_eq!(instance.network.external.len(), 3);
    }
}

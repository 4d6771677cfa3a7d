//! UpCloud.
//!
//! UpCloud's documentation: "Metadata service".

use corten_seed::{SeedDhcp, SeedNetwork};
use corten_values::Cidr;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::json::Json;
use crate::links;
use crate::request::{Platform, Request};

pub(super) const PLATFORM: Platform = Platform {
    name: "upcloud",
    bases: &["http://169.254.169.254/metadata"],
    requests: &[
        Request::config("user-data", "/v1/user_data"),
        Request::needed("metadata", "/v1.json"),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let server = given.json("metadata");
    let id = server.text("instance_id");
    let metadata = Metadata {
        hostname: server.text("hostname"),
        zone: server.text("region"),
        provider_id: format!("upcloud://{id}"),
        instance_id: id,
        tags: server.tags("tags"),
        ..Metadata::default()
    };
    let mut seed = SeedNetwork::default();
    let mut external = Vec::new();
    let said = server.get("network");
    for (at, entry) in said.list("interfaces").iter().enumerate() {
        let is_public = entry.text("type") == "public";
        let mut link = links::card(&format!("eth{at}"), entry.mac("mac"));
        for one in entry.list("ip_addresses") {
            let address = one.address("address");
            external.extend(address.filter(|_| is_public));
            for server in one.addresses("dns") {
                if !seed.dns_servers.contains(&server) {
                    seed.dns_servers.push(server);
                }
            }
            match (one.flag("dhcp"), &*one.text("family")) {
                (true, "IPv4") => link.dhcp4 = Some(SeedDhcp::default()),
                // The kernel configures the address from router advertisements.
                (true, _) => {}
                (false, _) => {
                    link.addresses.extend(of_network(&one));
                    links::add_gateway(&mut link, one.address("gateway"));
                }
            }
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

/// An address with the prefix of the network in the same entry.
fn of_network(entry: &Json<'_>) -> Option<Cidr> {
    let address = entry.address("address")?;
    let network = entry.cidr("network")?;
    if !network.contains(address) {
        entry.wrong("has an address outside of its network");
        return None;
    }
    Some(Cidr {
        address,
        prefix: network.prefix,
    })
}

#[cfg(test)]
mod tests {
    //! An answer in the form of UpCloud's "Metadata service", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    const METADATA: &str = r#"{"cloud_name":"upcloud","instance_id":"00123456-1111","hostname":"debian.example",
      "region":"fi-hel2","tags":[],"network":{"interfaces":[
      {"index":1,"ip_addresses":[{"address":"203.0.113.40","dhcp":true,"dns":["192.0.2.53","192.0.2.54"],
        "family":"IPv4","floating":false,"gateway":"203.0.113.1","network":"203.0.113.0/24"}],
       "mac":"52:54:00:00:00:11","network_id":"03","type":"public"},
      {"index":2,"ip_addresses":[{"address":"10.5.0.9","dhcp":false,"dns":null,"family":"IPv4",
        "gateway":"","network":"10.5.0.0/22"}],"mac":"52:54:00:00:00:12","type":"private"}],
      "dns":["192.0.2.53"]}}"#;

    #[tokio::test]
    async fn private_link_of_upcloud_has_the_prefix_of_its_network() {
        let (instance, notes) = Script::new()
            .get("/metadata/v1.json", METADATA)
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(instance.metadata.provider_id, "upcloud://00123456-1111");
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 52:54:00:00:00:11 dhcp4",
                "eth1 52:54:00:00:00:12 10.5.0.9/22",
                "dns 192.0.2.53",
                "dns 192.0.2.54"
            ]
        );
        assert_eq!(instance.network.external.len(), 1);
    }
}

//! Hetzner Cloud.
//!
//! Hetzner's documentation: "Server metadata"; the network is a `network-config` of cloud-init, version 1.

use std::net::IpAddr;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::request::{Platform, Request};

pub(super) const PLATFORM: Platform = Platform {
    name: "hcloud",
    bases: &["http://169.254.169.254/hetzner/v1"],
    requests: &[
        Request::config("user-data", "/userdata"),
        Request::needed("instance-id", "/metadata/instance-id"),
        Request::optional("hostname", "/metadata/hostname"),
        Request::optional("zone", "/metadata/availability-zone"),
        Request::optional("public-ipv4", "/metadata/public-ipv4"),
        Request::optional("network-config", "/metadata/network-config"),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let (id, zone) = (given.text("instance-id"), given.text("zone"));
    let region = zone.split('-').next().unwrap_or_default().to_owned();
    let metadata = Metadata {
        hostname: given.text("hostname"),
        provider_id: format!("hcloud://{id}"),
        instance_id: id,
        region,
        zone,
        ..Metadata::default()
    };
    let seed = given.network_config("network-config");
    let mut external: Vec<IpAddr> = given.address("public-ipv4").into_iter().collect();
    let addresses = seed.links.iter().flat_map(|link| &link.addresses);
    let v6 = addresses.map(|cidr| cidr.address).filter(IpAddr::is_ipv6);
    external.extend(v6);
    let network = Network {
        seed,
        external,
        ..Network::default()
    };
    given.instance(
        "network-config",
        given.config("user-data"),
        metadata,
        network,
    )
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Hetzner's "Server metadata", written by hand.

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::testing::{Script, links};

    const NETWORK: &str = "\
config:
- mac_address: 96:00:00:1a:2b:3c
  name: eth0
  subnets:
  - dns_nameservers:
    - 185.12.64.1
    - 185.12.64.2
    ipv4: true
    type: dhcp
  - address: 2001:db8:1:2::1/64
    gateway: fe80::1
    ipv6: true
    type: static
  type: physical
version: 1
";

    #[tokio::test]
    async fn a_server_has_a_lease_and_an_ipv6_network_of_its_own() {
        let user_data = STANDARD.encode("machine: {}\n");
        let script = Script::new()
            .get("/hetzner/v1/userdata", &user_data)
            .get("/hetzner/v1/metadata/instance-id", "42424242")
            .get("/hetzner/v1/metadata/hostname", "worker-1")
            .get("/hetzner/v1/metadata/availability-zone", "hel1-dc2")
            .get("/hetzner/v1/metadata/public-ipv4", "203.0.113.7")
            .get("/hetzner/v1/metadata/network-config", NETWORK);
        let (instance, notes) = script.ask(&PLATFORM).await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(
            instance.config.as_deref(),
            Some(b"machine: {}\n".as_slice())
        );
        let metadata = &instance.metadata;
        assert_eq!((&*metadata.region, &*metadata.zone), ("hel1", "hel1-dc2"));
        assert_eq!(metadata.provider_id, "hcloud://42424242");
        let network = instance.network;
        assert_eq!(network.hostname.as_deref(), Some("worker-1"));
        let external: Vec<String> = network.external.iter().map(ToString::to_string).collect();
        assert_eq!(external, ["203.0.113.7", "2001:db8:1:2::1"]);
        assert_eq!(
            links(&network.seed),
            [
                "eth0 96:00:00:1a:2b:3c dhcp4 2001:db8:1:2::1/64",
                "eth0 default via fe80::1",
                "dns 185.12.64.1",
                "dns 185.12.64.2"
            ]
        );
    }
}

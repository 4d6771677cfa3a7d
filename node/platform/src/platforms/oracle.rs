//! Oracle Cloud Infrastructure.
//!
//! Oracle's documentation: "Getting instance metadata", "Using the VNIC metadata".

use std::net::{IpAddr, Ipv4Addr};

use corten_seed::{SeedDhcp, SeedNetwork};
use corten_values::Cidr;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request, Value};

/// Address of the name and time server, the same as the metadata service's.
const SERVER: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

pub(super) const PLATFORM: Platform = Platform {
    name: "oracle",
    bases: &["http://169.254.169.254/opc/v2"],
    headers: &[("Authorization", Value::Is("Bearer Oracle"))],
    requests: &[
        Request::config("user-data", "/instance/metadata/user_data"),
        Request::needed("instance", "/instance/"),
        Request::optional("cards", "/vnics/"),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let machine = given.json("instance");
    let id = machine.text("id");
    let domain = machine.text("availabilityDomain");
    let metadata = Metadata {
        hostname: machine.text("hostname"),
        region: machine.text("region"),
        zone: domain.rsplit(':').next().unwrap_or_default().to_owned(),
        instance_type: machine.text("shape"),
        provider_id: format!("oci://{id}"),
        instance_id: id,
        ..Metadata::default()
    };
    let mut seed = SeedNetwork::default();
    let cards = given.json("cards");
    for (at, entry) in cards.entries().iter().enumerate() {
        let mut link = links::card(&format!("eth{at}"), entry.mac("macAddr"));
        if at == 0 {
            link.dhcp4 = Some(SeedDhcp::default());
        } else if let (Some(address), Some(network)) =
            (entry.address("privateIp"), entry.cidr("subnetCidrBlock"))
        {
            // DHCP answers only on the first card.
            let prefix = network.prefix;
            link.addresses.push(Cidr { address, prefix });
        }
        if let (Some(_), Some(gateway)) = (
            entry.cidr("ipv6SubnetCidrBlock"),
            entry.address("ipv6VirtualRouterIp"),
        ) {
            link.dhcp6 = Some(SeedDhcp::default());
            links::add_gateway(&mut link, Some(gateway));
        }
        seed.links.push(link);
    }
    seed.dns_servers.push(IpAddr::V4(SERVER));
    let network = Network {
        seed,
        time_servers: vec![SERVER.to_string()],
        ..Network::default()
    };
    given.instance("instance", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Oracle's "Getting instance metadata", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    #[tokio::test]
    async fn second_interface_has_the_address_of_its_subnet() {
        let (instance, notes) = Script::new()
            .needs("authorization", "Bearer Oracle")
            .get("/opc/v2/instance/metadata/user_data", "bWFjaGluZToge30=")
            .get(
                "/opc/v2/instance/",
                r#"{"id":"ocid1.instance.oc1.phx.x","hostname":"node-1","region":"phx",
                  "availabilityDomain":"EMIr:PHX-AD-1","faultDomain":"FAULT-DOMAIN-3","shape":"VM.Standard.E3.Flex"}"#,
            )
            .get(
                "/opc/v2/vnics/",
                r#"[{"vnicId":"a","privateIp":"10.0.3.6","vlanTag":11,"macAddr":"02:00:17:00:00:01",
                   "virtualRouterIp":"10.0.3.1","subnetCidrBlock":"10.0.3.0/24",
                   "ipv6SubnetCidrBlock":"2001:db8::/64","ipv6VirtualRouterIp":"fe80::200:17ff:fe00:1"},
                  {"vnicId":"b","privateIp":"10.0.4.3","vlanTag":12,"macAddr":"02:00:17:00:00:02",
                   "virtualRouterIp":"10.0.4.1","subnetCidrBlock":"10.0.4.0/24"}]"#,
            )
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert!(instance.config.is_some());
        let metadata = instance.metadata;
        assert_eq!(
            (&*metadata.zone, &*metadata.provider_id),
            ("PHX-AD-1", "oci://ocid1.instance.oc1.phx.x")
        );
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 02:00:17:00:00:01 dhcp4 dhcp6",
                "eth0 default via fe80::200:17ff:fe00:1",
                "eth1 02:00:17:00:00:02 10.0.4.3/24",
                "dns 169.254.169.254"
            ]
        );
    }
}

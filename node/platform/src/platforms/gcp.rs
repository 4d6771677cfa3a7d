//! Google Compute Engine.
//!
//! Google's documentation: "Predefined metadata keys", "Query VM metadata".

use std::net::{IpAddr, Ipv4Addr};

use corten_seed::SeedNetwork;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request, Value};

const RESOLVER: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const TIME_SERVER: &str = "metadata.google.internal";

pub(super) const PLATFORM: Platform = Platform {
    name: "gcp",
    // Address of `metadata.google.internal`, which avoids a DNS query.
    bases: &["http://169.254.169.254/computeMetadata/v1"],
    headers: &[("Metadata-Flavor", Value::Is("Google"))],
    requests: &[
        Request::config("user-data", "/instance/attributes/user-data"),
        Request::needed("id", "/instance/id"),
        Request::optional("project", "/project/project-id"),
        Request::optional("name", "/instance/name"),
        Request::optional("hostname", "/instance/hostname"),
        Request::optional("zone", "/instance/zone"),
        Request::optional("machine-type", "/instance/machine-type"),
        Request::optional("preemptible", "/instance/scheduling/preemptible"),
        Request::optional("tags", "/instance/tags?alt=json"),
        Request::optional(
            "interfaces",
            "/instance/network-interfaces/?recursive=true&alt=json",
        ),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let last = |name: &str| {
        let text = given.text(name);
        text.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let zone = last("zone");
    let region = zone.rsplit_once('-').map_or(&*zone, |(region, _)| region);
    let tags = given.json("tags");
    let tags = tags.entries().into_iter().map(|tag| tag.as_text());
    let metadata = Metadata {
        hostname: given.text("hostname"),
        region: region.to_owned(),
        instance_type: last("machine-type"),
        instance_id: given.text("id"),
        provider_id: format!(
            "gce://{}/{zone}/{}",
            given.text("project"),
            given.text("name")
        ),
        spot: given.text("preemptible").eq_ignore_ascii_case("true"),
        tags: tags.map(|tag| (tag, String::new())).collect(),
        zone,
        ..Metadata::default()
    };
    let mut seed = SeedNetwork::default();
    let mut external = Vec::new();
    let interfaces = given.json("interfaces");
    for (at, entry) in interfaces.entries().iter().enumerate() {
        let mut link = links::dhcp4(&format!("eth{at}"), entry.mac("mac"));
        link.mtu = entry.mtu("mtu");
        link.addresses = entry
            .list("ipv6")
            .iter()
            .filter_map(|one| one.as_masked())
            .collect();
        if !link.addresses.is_empty() {
            links::add_gateway(&mut link, entry.address("gatewayIpv6"));
        }
        let translated = entry.list("accessConfigs");
        external.extend(
            translated
                .iter()
                .filter_map(|one| one.address("externalIp")),
        );
        seed.links.push(link);
    }
    seed.dns_servers.push(IpAddr::V4(RESOLVER));
    let network = Network {
        seed,
        time_servers: vec![TIME_SERVER.to_owned()],
        external,
        ..Network::default()
    };
    given.instance("interfaces", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Google's "Predefined metadata keys", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    #[tokio::test]
    async fn gcp_instance_has_its_identity_and_mtu() {
        let base = "/computeMetadata/v1";
        let (instance, notes) = Script::new()
            .needs("metadata-flavor", "Google")
            .get(
                &format!("{base}/instance/attributes/user-data"),
                "machine: {}",
            )
            .get(&format!("{base}/instance/id"), "4407000000000000000")
            .get(&format!("{base}/project/project-id"), "my-project")
            .get(&format!("{base}/instance/name"), "node-1")
            .get(
                &format!("{base}/instance/hostname"),
                "node-1.c.my-project.internal",
            )
            .get(
                &format!("{base}/instance/zone"),
                "projects/77/zones/us-central1-a",
            )
            .get(
                &format!("{base}/instance/machine-type"),
                "projects/77/machineTypes/n1-standard-1",
            )
            .get(&format!("{base}/instance/scheduling/preemptible"), "TRUE")
            .get(&format!("{base}/instance/tags?alt=json"), r#"["kube"]"#)
            .get(
                &format!("{base}/instance/network-interfaces/?recursive=true&alt=json"),
                r#"[{"accessConfigs":[{"externalIp":"203.0.113.9","type":"ONE_TO_ONE_NAT"}],
                  "gateway":"10.0.0.1","gatewayIpv6":"fe80::4001:aff:fe00:1","ip":"10.0.0.2",
                  "ipv6":["2600:1900:4000::1/128"],"mac":"42:01:0a:00:00:02","mtu":1460}]"#,
            )
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert!(instance.config.is_some());
        let metadata = instance.metadata;
        assert_eq!(
            metadata.provider_id,
            "gce://my-project/us-central1-a/node-1"
        );
        assert_eq!(
            (&*metadata.region, &*metadata.instance_type),
            ("us-central1", "n1-standard-1")
        );
        assert!(metadata.spot && metadata.tags.contains_key("kube"));
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 42:01:0a:00:00:02 dhcp4 mtu 1460 2600:1900:4000::1/128",
                "eth0 default via fe80::4001:aff:fe00:1",
                "dns 169.254.169.254"
            ]
        );
        assert_eq!(
            instance.network.external,
            ["203.0.113.9".parse::<IpAddr>().unwrap()]
        );
    }
}

//! Amazon EC2: the instance metadata service, version 2, which requires a token.
//!
//! Amazon's documentation: "Instance metadata categories", "Configure the Amazon Time Sync Service", "Amazon DNS".

use std::net::{IpAddr, Ipv6Addr};

use corten_seed::{SeedDhcp, SeedNetwork};

use crate::documents::{Documents, Given};
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request, Value, tag_requests};

/// Fixed addresses of Amazon's time and name servers.
const TIME_SERVERS: [&str; 2] = ["169.254.169.123", "fd00:ec2::123"];
const RESOLVER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x253);

pub(super) const PLATFORM: Platform = Platform {
    name: "aws",
    bases: &["http://169.254.169.254", "http://[fd00:ec2::254]"],
    headers: &[("X-aws-ec2-metadata-token", Value::Of("token"))],
    requests: &[
        Request::token(
            "token",
            "/latest/api/token",
            &[("X-aws-ec2-metadata-token-ttl-seconds", Value::Is("300"))],
        ),
        Request::config("user-data", "/latest/user-data"),
        Request::needed("instance-id", "/latest/meta-data/instance-id"),
        Request::optional("hostname", "/latest/meta-data/hostname"),
        Request::optional("instance-type", "/latest/meta-data/instance-type"),
        Request::optional("life-cycle", "/latest/meta-data/instance-life-cycle"),
        Request::optional("public-ipv4", "/latest/meta-data/public-ipv4"),
        Request::optional("local-hostname", "/latest/meta-data/local-hostname"),
        Request::optional("public-hostname", "/latest/meta-data/public-hostname"),
        Request::optional("region", "/latest/meta-data/placement/region"),
        Request::optional("zone", "/latest/meta-data/placement/availability-zone"),
        Request::optional("tags", "/latest/meta-data/tags/instance"),
        Request::optional("mac", "/latest/meta-data/mac"),
    ],
    more,
    read,
    ..Platform::BLANK
};

/// Requests for each tag, and for the addresses of the first card.
fn more(documents: &Documents) -> Vec<Request> {
    let base = "/latest/meta-data";
    let macs = documents.words("mac").into_iter().take(1);
    let families = macs.flat_map(|mac| {
        ["local-ipv4s", "ipv6s"].map(|name| {
            let path = format!("{base}/network/interfaces/macs/{mac}/{name}");
            Request::named(name.to_owned(), path)
        })
    });
    let tags = tag_requests(documents, "tags", "/latest/meta-data/tags/instance");
    families.chain(tags).collect()
}

fn read(given: &Given<'_>) -> Instance {
    let (id, zone) = (given.text("instance-id"), given.text("zone"));
    let metadata = Metadata {
        hostname: given.text("hostname"),
        region: given.text("region"),
        instance_type: given.text("instance-type"),
        provider_id: format!("aws:///{zone}/{id}"),
        instance_id: id,
        zone,
        spot: given.text("life-cycle") == "spot",
        internal_dns: given.text("local-hostname"),
        external_dns: given.text("public-hostname"),
        tags: given.tags("tags"),
        ..Metadata::default()
    };
    let external: Vec<IpAddr> = given.address("public-ipv4").into_iter().collect();
    let has_v6 = !given.documents.words("ipv6s").is_empty();
    let has_v4 =
        !given.documents.words("local-ipv4s").is_empty() || !external.is_empty() || !has_v6;
    let mut seed = SeedNetwork::default();
    if let Some(mac) = given.mac("mac") {
        let mut link = links::card("primary", Some(mac));
        link.dhcp4 = has_v4.then(SeedDhcp::default);
        link.dhcp6 = has_v6.then(SeedDhcp::default);
        seed.links.push(link);
    }
    // Amazon's DHCPv6 provides no name server.
    seed.dns_servers
        .extend(has_v6.then_some(IpAddr::V6(RESOLVER)));
    let network = Network {
        seed,
        time_servers: TIME_SERVERS.map(str::to_owned).to_vec(),
        external,
        ..Network::default()
    };
    given.instance("instance-id", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Amazon's "Instance metadata categories" and "Use IMDSv2", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    fn script() -> Script {
        Script::new()
            .put("/latest/api/token", "dG9rZW4=")
            .needs("x-aws-ec2-metadata-token", "dG9rZW4=")
            .get("/latest/user-data", "machine: {}\n")
            .get("/latest/meta-data/instance-id", "i-1234567890abcdef0")
            .get("/latest/meta-data/hostname", "ip-10-251-50-12.ec2.internal")
            .get("/latest/meta-data/instance-type", "m5.large")
            .get("/latest/meta-data/instance-life-cycle", "spot")
            .get("/latest/meta-data/public-ipv4", "203.0.113.25")
            .get(
                "/latest/meta-data/local-hostname",
                "ip-10-251-50-12.ec2.internal",
            )
            .get(
                "/latest/meta-data/public-hostname",
                "ec2-203-0-113-25.compute-1.amazonaws.com",
            )
            .get("/latest/meta-data/placement/region", "us-east-1")
            .get(
                "/latest/meta-data/placement/availability-zone",
                "us-east-1a",
            )
            .get("/latest/meta-data/tags/instance", "Name\nowner")
            .get("/latest/meta-data/tags/instance/Name", "first")
            .get("/latest/meta-data/tags/instance/owner", "someone")
            .get("/latest/meta-data/mac", "0e:49:61:0f:c3:11")
            .get(
                "/latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11/local-ipv4s",
                "10.251.50.12\n10.251.50.13",
            )
    }

    #[tokio::test]
    async fn aws_spot_instance_is_read_with_a_token() {
        let (instance, notes) = script().ask(&PLATFORM).await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(
            instance.config.as_deref(),
            Some(b"machine: {}\n".as_slice())
        );
        let metadata = instance.metadata;
        assert_eq!(metadata.platform, "aws");
        assert_eq!(
            metadata.provider_id,
            "aws:///us-east-1a/i-1234567890abcdef0"
        );
        assert_eq!(metadata.region, "us-east-1");
        assert_eq!(metadata.instance_type, "m5.large");
        assert!(metadata.spot);
        assert_eq!(
            metadata.external_dns,
            "ec2-203-0-113-25.compute-1.amazonaws.com"
        );
        assert_eq!(metadata.tags["Name"], "first");
        assert_eq!(metadata.tags["owner"], "someone");
        let network = instance.network;
        assert_eq!(
            network.hostname.as_deref(),
            Some("ip-10-251-50-12.ec2.internal")
        );
        assert_eq!(
            network.external,
            ["203.0.113.25".parse::<IpAddr>().unwrap()]
        );
        assert_eq!(told(&network.seed), ["primary 0e:49:61:0f:c3:11 dhcp4"]);
        assert_eq!(network.time_servers, TIME_SERVERS);
    }

    #[tokio::test]
    async fn ipv6_only_instance_uses_dhcpv6() {
        let macs = "/latest/meta-data/network/interfaces/macs/0e:49:61:0f:c3:11";
        let script = script()
            .without("/latest/meta-data/public-ipv4")
            .without(&format!("{macs}/local-ipv4s"))
            .get(&format!("{macs}/ipv6s"), "2600:1f18::5");
        let (instance, notes) = script.ask(&PLATFORM).await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(
            told(&instance.network.seed),
            ["primary 0e:49:61:0f:c3:11 dhcp6", "dns fd00:ec2::253"]
        );
    }

    #[tokio::test]
    async fn an_instance_without_user_data_has_no_config() {
        let script = script().without("/latest/user-data");
        let (instance, notes) = script.ask(&PLATFORM).await;
        assert_eq!((instance.config, notes.len()), (None, 0));
    }
}

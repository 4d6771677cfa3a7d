//! Alibaba Cloud: the metadata service requires a token; its address is in a range of the cloud's own network.
//!
//! Alibaba's documentation: "Access instance metadata".

use corten_seed::{SeedDhcp, SeedNetwork};

use crate::documents::{Documents, Given};
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request, Value, tag_requests};

/// Limit of time servers.
const MOST_TIME_SERVERS: usize = 5;

pub(super) const PLATFORM: Platform = Platform {
    name: "alibabacloud",
    bases: &["http://100.100.100.200/latest"],
    headers: &[("X-aliyun-ecs-metadata-token", Value::Of("token"))],
    requests: &[
        Request::token(
            "token",
            "/api/token",
            &[("X-aliyun-ecs-metadata-token-ttl-seconds", Value::Is("300"))],
        ),
        Request::config("user-data", "/user-data"),
        Request::needed("instance-id", "/meta-data/instance-id"),
        Request::optional("hostname", "/meta-data/hostname"),
        Request::optional("region", "/meta-data/region-id"),
        Request::optional("zone", "/meta-data/zone-id"),
        Request::optional("instance-type", "/meta-data/instance/instance-type"),
        Request::optional("public-ipv4", "/meta-data/public-ipv4"),
        Request::optional("elastic-ipv4", "/meta-data/eipv4"),
        Request::optional("name-servers", "/meta-data/dns-conf/nameservers"),
        Request::optional("time-servers", "/meta-data/ntp-conf/ntp-servers"),
        Request::optional("tags", "/meta-data/tags/instance/"),
        Request::optional("mac", "/meta-data/mac"),
    ],
    more,
    read,
    ..Platform::BLANK
};

fn more(documents: &Documents) -> Vec<Request> {
    let macs = documents.words("mac").into_iter().take(1);
    let sixth = macs.map(|mac| {
        let path = format!("/meta-data/network/interfaces/macs/{mac}/ipv6s");
        Request::named("ipv6s".to_owned(), path)
    });
    let tags = tag_requests(documents, "tags", "/meta-data/tags/instance");
    sixth.chain(tags).collect()
}

fn read(given: &Given<'_>) -> Instance {
    let (id, region) = (given.text("instance-id"), given.text("region"));
    let metadata = Metadata {
        hostname: given.text("hostname"),
        zone: given.text("zone"),
        instance_type: given.text("instance-type"),
        provider_id: format!("{region}.{id}"),
        instance_id: id,
        region,
        tags: given.tags("tags"),
        ..Metadata::default()
    };
    let mut seed = SeedNetwork::default();
    if let Some(mac) = given.mac("mac") {
        let mut link = links::dhcp4("primary", Some(mac));
        let sixth = given.json("ipv6s");
        link.dhcp6 = (!sixth.entries().is_empty()).then(SeedDhcp::default);
        seed.links.push(link);
    }
    for word in given.documents.words("name-servers") {
        match word.parse() {
            Ok(address) => seed.dns_servers.push(address),
            Err(_) => given.note(given.place("name-servers"), "must be IP addresses"),
        }
    }
    let translated = given
        .address("public-ipv4")
        .or(given.address("elastic-ipv4"));
    let mut time_servers = given.documents.words("time-servers");
    time_servers.truncate(MOST_TIME_SERVERS);
    let network = Network {
        seed,
        time_servers,
        external: translated.into_iter().collect(),
        ..Network::default()
    };
    given.instance("instance-id", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Alibaba's "Access instance metadata", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    #[tokio::test]
    async fn alibaba_instance_has_name_and_time_servers() {
        let base = "/latest/meta-data";
        let (instance, notes) = Script::new()
            .put("/latest/api/token", "AAAA==")
            .needs("x-aliyun-ecs-metadata-token", "AAAA==")
            .get("/latest/user-data", "machine: {}")
            .get(&format!("{base}/instance-id"), "i-bp13")
            .get(&format!("{base}/hostname"), "node-1")
            .get(&format!("{base}/region-id"), "cn-hangzhou")
            .get(&format!("{base}/zone-id"), "cn-hangzhou-i")
            .get(&format!("{base}/eipv4"), "203.0.113.70")
            .get(
                &format!("{base}/dns-conf/nameservers"),
                "100.100.2.136\n100.100.2.138",
            )
            .get(
                &format!("{base}/ntp-conf/ntp-servers"),
                "ntp1.aliyun.com\nntp2.aliyun.com",
            )
            .get(&format!("{base}/tags/instance/"), "owner/")
            .get(&format!("{base}/tags/instance/owner"), "someone")
            .get(&format!("{base}/mac"), "00:16:3e:00:00:01")
            .get(
                &format!("{base}/network/interfaces/macs/00:16:3e:00:00:01/ipv6s"),
                r#"["2408:4001::1"]"#,
            )
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(instance.metadata.provider_id, "cn-hangzhou.i-bp13");
        assert_eq!(instance.metadata.tags["owner"], "someone");
        assert_eq!(
            told(&instance.network.seed),
            [
                "primary 00:16:3e:00:00:01 dhcp4 dhcp6",
                "dns 100.100.2.136",
                "dns 100.100.2.138"
            ]
        );
        assert_eq!(instance.network.time_servers.len(), 2);
        assert_eq!(instance.network.external.len(), 1);
    }
}

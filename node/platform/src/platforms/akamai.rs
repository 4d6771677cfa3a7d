//! Akamai (Linode): the metadata service requires a token.
//!
//! Akamai's documentation: "Metadata service API".

use corten_seed::SeedNetwork;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Headers, Platform, Request, Value};

pub(super) const PLATFORM: Platform = Platform {
    name: "akamai",
    bases: &["http://169.254.169.254/v1", "http://[fd00:a9fe:a9fe::1]/v1"],
    headers: &[("Metadata-Token", Value::Of("token"))],
    requests: &[
        Request::token(
            "token",
            "/token",
            &[("Metadata-Token-Expiry-Seconds", Value::Is("300"))],
        ),
        Request::config("user-data", "/user-data"),
        as_json(Request::needed("instance", "/instance")),
        as_json(Request::optional("network", "/network")),
    ],
    read,
    ..Platform::BLANK
};

const JSON: Headers = &[("Accept", Value::Is("application/json"))];

const fn as_json(mut request: Request) -> Request {
    request.headers = JSON;
    request
}

fn read(given: &Given<'_>) -> Instance {
    let machine = given.json("instance");
    let id = machine.text("id");
    let metadata = Metadata {
        // A label may contain characters that a host name may not.
        hostname: machine.text("label").replace('_', "-"),
        region: machine.text("region"),
        instance_type: machine.text("type"),
        provider_id: format!("linode://{id}"),
        instance_id: id,
        tags: machine.tags("tags"),
        ..Metadata::default()
    };
    // DHCP configures the public IPv4 address, router advertisements the first IPv6 address.
    let mut link = links::dhcp4("eth0", given.first_card());
    let said = given.json("network");
    let (fourth, sixth) = (said.get("ipv4"), said.get("ipv6"));
    let private = fourth.list("private");
    link.addresses
        .extend(private.iter().filter_map(|one| one.as_cidr()));
    let public = fourth.list("public");
    let slaac = sixth.get("slaac");
    let public = public.iter().chain([&slaac]);
    let external = public
        .filter_map(|one| one.as_cidr())
        .map(|one| one.address);
    let network = Network {
        external: external.collect(),
        seed: SeedNetwork {
            links: vec![link],
            ..SeedNetwork::default()
        },
        ..Network::default()
    };
    given.instance("instance", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Akamai's "Metadata service API", written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    #[tokio::test]
    async fn akamai_instance_is_read_with_a_token() {
        let (instance, notes) = Script::new()
            .put("/v1/token", "abcdef")
            .needs("metadata-token", "abcdef")
            .get("/v1/user-data", "bWFjaGluZToge30=")
            .get(
                "/v1/instance",
                r#"{"id":12345,"label":"my_linode","region":"us-ord","type":"g6-nanode-1","tags":["kube"],
                  "backups":{"enabled":false,"status":null},"specs":{"vcpus":1}}"#,
            )
            .get(
                "/v1/network",
                r#"{"interfaces":[],"ipv4":{"public":["203.0.113.60/32"],"private":["192.168.1.5/17"],"shared":[]},
                  "ipv6":{"slaac":"2001:db8::60/128","link_local":"fe80::60/128","ranges":[],"shared_ranges":[]}}"#,
            )
            .card("eth0", [0xf2, 0x3c, 0x91, 0, 0, 1])
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert!(instance.config.is_some());
        assert_eq!(instance.metadata.provider_id, "linode://12345");
        assert_eq!(instance.network.hostname.as_deref(), Some("my-linode"));
        assert_eq!(
            told(&instance.network.seed),
            ["eth0 f2:3c:91:00:00:01 dhcp4 192.168.1.5/17"]
        );
        assert_eq!(instance.network.external.len(), 2);
    }
}

//! OpenStack: the config drive, or else the metadata service.
//!
//! Nova's documentation: "Metadata", "Config drives"; JSON schema of `network_data.json`.

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::network_data;
use crate::request::{Platform, Request, Role, Volume};

pub(super) const PLATFORM: Platform = Platform {
    name: "openstack",
    volume: Some(Volume {
        labels: &["config-2", "CONFIG-2"],
        files: &[
            ("user-data", "openstack/latest/user_data"),
            ("meta-data", "openstack/latest/meta_data.json"),
            ("network-data", "openstack/latest/network_data.json"),
        ],
        role: Role::Whole,
    }),
    bases: &["http://169.254.169.254"],
    requests: &[
        Request::config("user-data", "/openstack/latest/user_data"),
        Request::needed("meta-data", "/openstack/latest/meta_data.json"),
        Request::optional("network-data", "/openstack/latest/network_data.json"),
        Request::optional("public-ipv4", "/latest/meta-data/public-ipv4"),
        Request::optional("instance-type", "/latest/meta-data/instance-type"),
    ],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let meta = given.json("meta-data");
    let id = meta.text("uuid");
    let kind = meta.text("instance_type");
    let metadata = Metadata {
        hostname: meta.text("hostname"),
        zone: meta.text("availability_zone"),
        instance_type: if kind.is_empty() {
            given.text("instance-type")
        } else {
            kind
        },
        provider_id: format!("openstack:///{id}"),
        instance_id: id,
        tags: meta.pairs("meta").into_iter().collect(),
        ..Metadata::default()
    };
    let network = Network {
        seed: network_data::read(&given.json("network-data")),
        external: given.address("public-ipv4").into_iter().collect(),
        ..Network::default()
    };
    given.instance("network-data", given.config("user-data"), metadata, network)
}

#[cfg(test)]
mod tests {
    //! Documents in the form of Nova's "Metadata" and its JSON schema, written by hand.

    use super::*;
    use crate::client::LARGEST;
    use crate::round::{self, Stage};
    use crate::testing::{Script, links};

    const META: &str = r#"{"uuid":"d8e02d56-2648-49a3-bf97-6be8f1204f38","hostname":"node.novalocal",
        "availability_zone":"nova","project_id":"f7ac","meta":{"role":"worker"},"random_seed":"..."}"#;
    const NETWORK: &str = r#"{
        "links":[
          {"id":"nic0","type":"phy","ethernet_mac_address":"fa:16:3e:00:00:01","mtu":9000,"vif_id":"v0"},
          {"id":"nic1","type":"phy","ethernet_mac_address":"fa:16:3e:00:00:02","mtu":null},
          {"id":"uplink","type":"bond","bond_links":["nic0","nic1"],"bond_mode":"802.3ad","bond_miimon":100,
           "bond_xmit_hash_policy":"layer3+4","ethernet_mac_address":"fa:16:3e:00:00:03"},
          {"id":"storage","type":"vlan","vlan_id":101,"vlan_link":"uplink","vlan_mac_address":"fa:16:3e:00:00:04"},
          {"id":"tapv","type":"ovs","ethernet_mac_address":"fa:16:3e:00:00:05","mtu":1450}],
        "networks":[
          {"id":"n0","type":"ipv4","link":"uplink","ip_address":"192.0.2.5","netmask":"255.255.255.0",
           "gateway":"192.0.2.1","routes":[{"network":"10.0.0.0","netmask":"255.0.0.0","gateway":"192.0.2.2"}],
           "services":[{"type":"dns","address":"192.0.2.53"}]},
          {"id":"n1","type":"ipv6","link":"storage","ip_address":"2001:db8::5","netmask":"64","gateway":"2001:db8::1"},
          {"id":"n2","type":"ipv4_dhcp","link":"tapv"}],
        "services":[{"type":"dns","address":"192.0.2.53"},{"type":"ntp","address":"192.0.2.7"}]}"#;

    fn check(instance: &Instance) {
        assert_eq!(instance.config.as_deref(), Some(b"machine: {}".as_slice()));
        let metadata = &instance.metadata;
        assert_eq!(
            metadata.provider_id,
            "openstack:///d8e02d56-2648-49a3-bf97-6be8f1204f38"
        );
        assert_eq!(metadata.tags["role"], "worker");
        assert_eq!(instance.network.hostname.as_deref(), Some("node.novalocal"));
        assert_eq!(
            links(&instance.network.seed),
            [
                "nic0 fa:16:3e:00:00:01 mtu 9000",
                "nic1 fa:16:3e:00:00:02",
                "bond0 bond Lacp of nic0,nic1 set fa:16:3e:00:00:03 192.0.2.5/24",
                "bond0 default via 192.0.2.1",
                "bond0 10.0.0.0/8 via 192.0.2.2",
                "vlan101 vlan 101 on bond0 set fa:16:3e:00:00:04 2001:db8::5/64",
                "vlan101 default via 2001:db8::1",
                "tapv fa:16:3e:00:00:05 dhcp4 mtu 1450",
                "dns 192.0.2.53"
            ]
        );
    }

    #[tokio::test]
    async fn openstack_server_with_a_config_drive_sends_no_request() {
        let (instance, notes) = Script::new()
            .file("openstack/latest/user_data", b"machine: {}")
            .file("openstack/latest/meta_data.json", META.as_bytes())
            .file("openstack/latest/network_data.json", NETWORK.as_bytes())
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        check(&instance);
    }

    #[tokio::test]
    async fn a_server_without_a_drive_asks_the_metadata_service() {
        let (instance, notes) = Script::new()
            .get("/openstack/latest/user_data", "machine: {}")
            .get("/openstack/latest/meta_data.json", META)
            .get("/openstack/latest/network_data.json", NETWORK)
            .get("/latest/meta-data/public-ipv4", "203.0.113.3")
            .get("/latest/meta-data/instance-type", "m1.small")
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        check(&instance);
        assert_eq!(instance.metadata.instance_type, "m1.small");
        assert_eq!(instance.network.external.len(), 1);
    }

    #[tokio::test]
    async fn drive_that_cannot_be_read_never_counts_as_one_without_a_config() {
        let large = vec![b' '; LARGEST + 1];
        for (script, why) in [
            (
                Script::new().with_unreadable_volume(),
                "the disc is scratched",
            ),
            (
                Script::new().file("openstack/latest/user_data", &large),
                "volume config-2 or CONFIG-2: openstack/latest/user_data: is larger than 1024 KiB",
            ),
        ] {
            let script = script.get("/openstack/latest/meta_data.json", META);
            let ask = async |script: Script| {
                let (server, _) = script.serve().await;
                let round = round::ask(&PLATFORM, &script.sources(server), Stage::First(9)).await?;
                Ok::<_, String>(script.read(&PLATFORM, round).0)
            };
            assert_eq!(ask(script.clone()).await.unwrap_err(), why);
            let with_config = script
                .clone()
                .get("/openstack/latest/user_data", "machine: {}");
            assert!(ask(with_config).await.unwrap().config.is_some());
            ask(script.with_config()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn cyclic_link_leaves_out_the_network_only() {
        let circle = r#"{"links":[{"id":"a","type":"vlan","vlan_id":1,"vlan_link":"a"}]}"#;
        let (instance, notes) = Script::new()
            .get("/openstack/latest/meta_data.json", META)
            .get("/openstack/latest/network_data.json", circle)
            .ask(&PLATFORM)
            .await;
        assert!(notes[0].contains("/openstack/latest/network_data.json: the network has the link"));
        assert!(instance.network.seed.links.is_empty());
        assert_eq!(instance.network.hostname.as_deref(), Some("node.novalocal"));
    }
}

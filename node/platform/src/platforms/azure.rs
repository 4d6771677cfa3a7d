//! Microsoft Azure: the instance metadata service with the user data, and a disc with the custom data.
//!
//! Microsoft's documentation: "Azure Instance Metadata Service", "User data for Azure virtual machines", "Custom data
//! and cloud-init on Azure Virtual Machines"; cloud-init's documentation: "Azure" (the disc).

use corten_seed::{SeedDhcp, SeedNetwork};
use roxmltree::Document;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request, Role, Value, Volume};
use crate::text::is_line;

/// OVF environment of the disc.
const ENVIRONMENT: &str = "ovf-env.xml";

pub(super) const PLATFORM: Platform = Platform {
    name: "azure",
    volume: Some(Volume {
        labels: &[],
        files: &[(ENVIRONMENT, ENVIRONMENT)],
        role: Role::Spare {
            instead_of: &["user-data"],
        },
    }),
    bases: &["http://169.254.169.254/metadata"],
    headers: &[("Metadata", Value::Is("true"))],
    requests: &[
        Request::config(
            "user-data",
            "/instance/compute/userData?api-version=2021-01-01&format=text",
        ),
        Request::needed(
            "compute",
            "/instance/compute?api-version=2021-02-01&format=json",
        ),
        Request::optional(
            "interfaces",
            "/instance/network/interface?api-version=2021-02-01&format=json",
        ),
        Request::optional(
            "balancer",
            "/loadbalancer?api-version=2021-02-01&format=json",
        ),
    ],
    wants_report: true,
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let compute = given.json("compute");
    let region = compute.text("location").to_ascii_lowercase();
    let zone = compute.text("zone");
    let zone = match &*zone {
        "" => compute.text("platformFaultDomain"),
        zone => format!("{region}-{zone}"),
    };
    let id = compute.text("resourceId");
    let provider_id = match &*id {
        "" => String::new(),
        id => format!("azure://{}", with_small_group(id)),
    };
    let disc = Disc::read(given);
    let hostname = compute.get("osProfile").text("computerName");
    let metadata = Metadata {
        hostname: if hostname.is_empty() {
            disc.hostname
        } else {
            hostname
        },
        zone: zone.to_ascii_lowercase(),
        instance_type: compute.text("vmSize"),
        provider_id,
        instance_id: id,
        spot: !compute.text("evictionPolicy").is_empty(),
        region,
        ..Metadata::default()
    };
    let mut seed = SeedNetwork::default();
    let mut external = Vec::new();
    let interfaces = given.json("interfaces");
    for (at, entry) in interfaces.entries().iter().enumerate() {
        let mut link = links::dhcp4(&format!("eth{at}"), entry.mac("macAddress"));
        let sixth = entry.get("ipv6");
        let sixth = sixth.list("ipAddress");
        link.dhcp6 = (!sixth.is_empty()).then(|| SeedDhcp {
            route_metric: Some(2048),
            ..SeedDhcp::default()
        });
        seed.links.push(link);
        let fourth = entry.get("ipv4");
        let fourth = fourth.list("ipAddress");
        let both = fourth.iter().chain(&sixth);
        external.extend(both.filter_map(|one| one.address("publicIpAddress")));
    }
    let balancer = given.json("balancer");
    let balancer = balancer.get("loadbalancer");
    for one in balancer.list("publicIpAddresses") {
        // IPv6 addresses are in brackets.
        let text = one.text("frontendIpAddress");
        let text = text.trim_start_matches('[').split(']').next();
        match text.unwrap_or_default().parse() {
            Ok(address) if !external.contains(&address) => external.push(address),
            Ok(_) => {}
            Err(_) => one.wrong("needs a frontendIpAddress"),
        }
    }
    let network = Network {
        seed,
        external,
        ..Network::default()
    };
    let config = given.config("user-data").or(disc.config);
    given.instance("compute", config, metadata, network)
}

/// Settings on the disc of a machine's first start.
#[derive(Debug, Default)]
struct Disc {
    hostname: String,
    config: Option<Vec<u8>>,
}

impl Disc {
    fn read(given: &Given<'_>) -> Disc {
        let text = given.documents.raw(ENVIRONMENT);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Disc::default();
        }
        let place = given.place(ENVIRONMENT);
        let Ok(document) = Document::parse(text) else {
            given.lose_config(place, "is not XML");
            return Disc::default();
        };
        // The namespace has several spellings.
        let field = |name: &str| {
            let mut nodes = document.descendants();
            let found = nodes.find(|node| node.tag_name().name() == name);
            found
                .and_then(|node| node.text())
                .unwrap_or_default()
                .trim()
        };
        let config = given.decoded(place, "CustomData ", field("CustomData").as_bytes());
        let mut hostname = field("HostName").to_owned();
        if !is_line(&hostname) {
            given.note(place, "HostName must be one short line of text");
            hostname.clear();
        }
        Disc { hostname, config }
    }
}

/// Lower-cases the resource group, as the cloud controller does; the metadata keeps the original case.
fn with_small_group(id: &str) -> String {
    let mut is_group = false;
    let parts = id.split('/').map(|part| {
        let small = is_group.then(|| part.to_ascii_lowercase());
        is_group = part.eq_ignore_ascii_case("resourceGroups");
        small.unwrap_or_else(|| part.to_owned())
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    //! Answers in the form of Microsoft's "Azure Instance Metadata Service", written by hand.

    use super::*;
    use crate::round::{self, Stage};
    use crate::testing::{Reply, Script, links as told};

    const COMPUTE: &str = r#"{"location":"westus","name":"node","osProfile":{"computerName":"node-1"},
        "platformFaultDomain":"0","vmSize":"Standard_B1ms","zone":"2","evictionPolicy":"Delete",
        "resourceId":"/subscriptions/0000/resourceGroups/My-Group/providers/Microsoft.Compute/virtualMachines/node"}"#;

    #[tokio::test]
    async fn azure_instance_behind_a_load_balancer_has_its_external_addresses() {
        let (instance, notes) = Script::new()
            .needs("metadata", "true")
            .get(
                "/metadata/instance/compute/userData?api-version=2021-01-01&format=text",
                "bWFjaGluZToge30K",
            )
            .get("/metadata/instance/compute?api-version=2021-02-01&format=json", COMPUTE)
            .get(
                "/metadata/instance/network/interface?api-version=2021-02-01&format=json",
                r#"[{"ipv4":{"ipAddress":[{"privateIpAddress":"10.0.0.4","publicIpAddress":""}],
                  "subnet":[{"address":"10.0.0.0","prefix":"24"}]},
                  "ipv6":{"ipAddress":[{"privateIpAddress":"fd00::4"}]},"macAddress":"0022481234AB"}]"#,
            )
            .get(
                "/metadata/loadbalancer?api-version=2021-02-01&format=json",
                r#"{"loadbalancer":{"publicIpAddresses":[
                  {"frontendIpAddress":"203.0.113.4","privateIpAddress":"10.0.0.4"},
                  {"frontendIpAddress":"[2001:db8::4]","privateIpAddress":"[fd00::4]"}],
                  "inboundRules":[],"outboundRules":[]}}"#,
            )
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(
            instance.config.as_deref(),
            Some(b"machine: {}\n".as_slice())
        );
        let metadata = instance.metadata;
        assert_eq!(
            (&*metadata.hostname, &*metadata.zone),
            ("node-1", "westus-2")
        );
        assert!(metadata.spot);
        assert!(
            metadata
                .provider_id
                .contains("/resourceGroups/my-group/providers/")
        );
        assert!(metadata.instance_id.contains("/My-Group/"));
        assert_eq!(
            told(&instance.network.seed),
            ["eth0 00:22:48:12:34:ab dhcp4 dhcp6"]
        );
        let external: Vec<String> = instance
            .network
            .external
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(external, ["203.0.113.4", "2001:db8::4"]);
    }

    const DISC: &str = r#"<ns0:Environment xmlns:ns0="http://schemas.dmtf.org/ovf/environment/1"
        xmlns:ns1="http://schemas.microsoft.com/windowsazure"><ns1:ProvisioningSection><ns1:Version>1.0</ns1:Version>
        <ns1:LinuxProvisioningConfigurationSet><ns1:UserName>user</ns1:UserName><ns1:HostName>node-7</ns1:HostName>
        <ns1:CustomData>bWFjaGluZToge30K</ns1:CustomData></ns1:LinuxProvisioningConfigurationSet>
        </ns1:ProvisioningSection></ns0:Environment>"#;
    const CONFIG: Option<&[u8]> = Some(b"machine: {}\n");

    /// The service without user data.
    fn service() -> Script {
        Script::new().get(
            "/metadata/instance/compute?api-version=2021-02-01&format=json",
            COMPUTE,
        )
    }

    async fn ask(script: &Script, stage: Stage) -> Result<(Instance, Vec<String>), String> {
        let (server, _) = script.serve().await;
        let round = round::ask(&PLATFORM, &script.sources(server), stage).await?;
        Ok(script.read(&PLATFORM, round))
    }

    #[tokio::test]
    async fn custom_data_of_the_disc_is_the_config_without_user_data() {
        let script = service().file(ENVIRONMENT, DISC.as_bytes());
        let (instance, notes) = ask(&script, Stage::First(0)).await.unwrap();
        assert_eq!(notes, [""; 0]);
        assert_eq!(instance.config.as_deref(), CONFIG);
        // The service knows a name that was changed later.
        assert_eq!(instance.metadata.hostname, "node-1");
        let script = script.get(
            "/metadata/instance/compute/userData?api-version=2021-01-01&format=text",
            "dmVyc2lvbjogdjEK",
        );
        let (instance, _) = ask(&script, Stage::First(0)).await.unwrap();
        assert_eq!(
            instance.config.as_deref(),
            Some(b"version: v1\n".as_slice())
        );
    }

    #[tokio::test]
    async fn disc_replaces_a_service_that_never_answers() {
        let script = Script::new().file(ENVIRONMENT, DISC.as_bytes());
        for stage in [Stage::First(0), Stage::First(1), Stage::Later] {
            let why = ask(&script, stage).await.unwrap_err();
            assert!(why.ends_with("the answer is 404"), "{why}");
        }
        let (instance, notes) = ask(&script, Stage::First(2)).await.unwrap();
        assert!(
            notes[0].ends_with("the answer is 404; going on with the disc"),
            "{notes:?}"
        );
        assert_eq!(instance.config.as_deref(), CONFIG);
        assert_eq!(instance.network.hostname.as_deref(), Some("node-7"));
        assert_eq!(instance.metadata.provider_id, "");
        let without_config = DISC.replace("bWFjaGluZToge30K", "");
        let script = script.file(ENVIRONMENT, without_config.as_bytes());
        let why = ask(&script, Stage::First(9)).await.unwrap_err();
        assert!(why.ends_with("the answer is 404"), "{why}");
    }

    #[tokio::test]
    async fn disc_that_appears_late_is_awaited_for_three_rounds() {
        let script = service();
        for failed in 0..2 {
            let why = ask(&script, Stage::First(failed)).await.unwrap_err();
            assert_eq!(why, "it has no config, and there is no disc");
        }
        for stage in [Stage::First(2), Stage::Later] {
            let (instance, _) = ask(&script, stage).await.unwrap();
            assert_eq!(instance.config, None);
        }
    }

    #[tokio::test]
    async fn disc_that_cannot_be_read_never_counts_as_one_without_a_config() {
        let script = service().with_unreadable_volume();
        for stage in [Stage::First(2), Stage::First(9), Stage::Later] {
            let why = ask(&script, stage).await.unwrap_err();
            assert_eq!(why, "it has no config, and the disc is scratched");
        }
        let script = script.with_config();
        let (instance, _) = ask(&script, Stage::First(2)).await.unwrap();
        assert_eq!(instance.metadata.region, "westus");
    }

    #[tokio::test]
    async fn custom_data_replace_user_data_that_never_come() {
        let path = "/metadata/instance/compute/userData?api-version=2021-01-01&format=text";
        let script = service()
            .file(ENVIRONMENT, DISC.as_bytes())
            .reply(&format!("GET {path}"), Reply::Status(500));
        let (instance, notes) = ask(&script, Stage::First(2)).await.unwrap();
        assert!(notes[0].ends_with("the answer is 500; going on with the disc"));
        assert_eq!(instance.config.as_deref(), CONFIG);
        assert_eq!(instance.metadata.region, "westus");
        let script = service().reply(&format!("GET {path}"), Reply::Status(500));
        ask(&script, Stage::First(9)).await.unwrap_err();
    }

    #[tokio::test]
    async fn broken_disc_is_named_without_its_content() {
        for (content, expected) in [
            ("<a", "disc: ovf-env.xml: is not XML"),
            (
                "<!DOCTYPE a [<!ENTITY x 'y'>]><a/>",
                "disc: ovf-env.xml: is not XML",
            ),
            (
                "<a><CustomData>IyEvYmluL3NoCg==</CustomData></a>",
                "disc: ovf-env.xml: CustomData is for a shell: use a machine config instead",
            ),
            (
                "<a><HostName>a\nb</HostName></a>",
                "disc: ovf-env.xml: HostName must be one short line of text",
            ),
        ] {
            let script = service().file(ENVIRONMENT, content.as_bytes());
            let (instance, notes) = ask(&script, Stage::First(0)).await.unwrap();
            assert_eq!((instance.config, notes), (None, vec![expected.to_owned()]));
            let may_have_config = !expected.contains("HostName");
            assert_eq!(instance.unusable.is_some(), may_have_config, "{expected}");
        }
    }
}

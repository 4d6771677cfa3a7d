//! Microsoft Azure: the instance metadata service, and its user data.
//!
//! Microsoft's documentation: "Azure Instance Metadata Service", "User data for Azure virtual machines".

use corten_config::platform::{SeedDhcp, SeedNetwork};

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Request, Value};

pub(super) const PLATFORM: Platform = Platform {
    name: "azure",
    bases: &["http://169.254.169.254/metadata"],
    headers: &[("Metadata", Value::Is("true"))],
    requests: &[
        Request::optional(
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
    let metadata = Metadata {
        hostname: compute.get("osProfile").text("computerName"),
        zone: zone.to_ascii_lowercase(),
        instance_type: compute.text("vmSize"),
        provider_id: format!("azure://{}", with_small_group(&id)),
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
    given.instance("compute", given.config("user-data"), metadata, network)
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
    use crate::testing::{Script, links as told};

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
}

//! VMware: guest properties, one of which is the OVF environment, or a disc with the OVF environment.
//!
//! VMware's documentation: "Virtual machine guest properties"; DMTF DSP0243, 9.5.1 (OVF environment); cloud-init's
//! documentation: "VMware" (the metadata).

use corten_seed::{identity, network};
use roxmltree::Document;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::request::{Platform, Role, Volume};
use crate::user_data;

/// Each one is a guest property or a property of the OVF environment; the first one present counts.
const CONFIGS: [&str; 3] = [
    "guestinfo.corten.config",
    "guestinfo.talos.config",
    "guestinfo.userdata",
];
const METADATA: &str = "guestinfo.metadata";
const ENVIRONMENT: &str = "guestinfo.ovfEnv";
/// The OVF environment of a disc, in other hypervisors that import an OVA.
const DISC: &str = "OVF environment";

pub(super) const PLATFORM: Platform = Platform {
    name: "vmware",
    volume: Some(Volume {
        labels: &[],
        files: &[(DISC, "ovf-env.xml")],
        role: Role::Spare {
            instead_of: &[CONFIGS[0], CONFIGS[1], CONFIGS[2], ENVIRONMENT],
        },
    }),
    guestinfo: &[CONFIGS[0], CONFIGS[1], CONFIGS[2], METADATA, ENVIRONMENT],
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let properties = environment(given);
    let found = |key: &str| {
        let property = given.documents.raw(key).trim().to_owned();
        if !property.is_empty() {
            return Some(property);
        }
        let bare = key.trim_start_matches("guestinfo.");
        let mut properties = properties.iter();
        let property = properties.find(|(name, _)| name == bare || name == key);
        property
            .map(|(_, value)| value.clone())
            .filter(|value| !value.is_empty())
    };
    let config = CONFIGS
        .iter()
        .find_map(|key| given.decoded(key, "", found(key)?.as_bytes()));
    let (metadata, network) =
        found(METADATA).map_or_else(Default::default, |value| said(given, &value));
    given.instance(METADATA, config, metadata, network)
}

/// Parses the metadata: names, and a network in either version of cloud-init's format.
fn said(given: &Given<'_>, value: &str) -> (Metadata, Network) {
    let mut metadata = Metadata::default();
    let mut said = Network::default();
    let bytes = match user_data::unwrap(value.as_bytes()) {
        Ok(bytes) => bytes,
        Err(why) => {
            given.note(METADATA, &why);
            return (metadata, said);
        }
    };
    match identity(&bytes) {
        Ok(found) => metadata = Metadata::of_seed(&found),
        Err(problems) => given.note(METADATA, &problems.to_string()),
    }
    match network(&bytes) {
        Ok(found) => said.seed = found.unwrap_or_default(),
        // The metadata may contain only names.
        Err(_) if !mentions_network(&bytes) => {}
        Err(problems) => given.note(METADATA, &problems.to_string()),
    }
    (metadata, said)
}

fn mentions_network(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    lines.any(|line| line.starts_with("network:") || line.contains("\"network\""))
}

/// Keys and values of the OVF environment: the guest property, else the disc.
fn environment(given: &Given<'_>) -> Vec<(String, String)> {
    let mut names = [ENVIRONMENT, DISC].into_iter();
    let Some(name) = names.find(|name| !given.documents.raw(name).trim().is_empty()) else {
        return Vec::new();
    };
    let text = given.documents.raw(name);
    let document = match Document::parse(text.trim()) {
        Ok(document) => document,
        Err(_) => {
            given.lose_config(given.place(name), "is not XML");
            return Vec::new();
        }
    };
    let properties = document.descendants().filter(|node| {
        node.has_tag_name(("http://schemas.dmtf.org/ovf/environment/1", "Property"))
    });
    // The attributes are in the namespace, too.
    let attribute = |node: &roxmltree::Node<'_, '_>, name: &str| {
        let mut attributes = node.attributes();
        let found = attributes.find(|attribute| attribute.name() == name);
        found.map(|attribute| attribute.value().to_owned())
    };
    properties
        .filter_map(|node| Some((attribute(&node, "key")?, attribute(&node, "value")?)))
        .collect()
}

#[cfg(test)]
mod tests {
    //! Properties in the forms of the documents named above, written by hand.

    use std::io::Write as _;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::testing::{Script, links};

    const NETWORK: &str = "\
instance-id: vm-7
local-hostname: node-1
network:
  version: 2
  ethernets:
    first:
      match: {macaddress: '00:50:56:00:00:01'}
      addresses: [192.0.2.7/24]
      routes: [{to: default, via: 192.0.2.1}]
      nameservers: {addresses: [192.0.2.53]}
";

    #[tokio::test]
    async fn properties_may_be_packed_and_encoded() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(b"machine: {}\n").unwrap();
        let packed = STANDARD.encode(encoder.finish().unwrap());
        let (instance, notes) = Script::new()
            .guestinfo("guestinfo.talos.config", &packed)
            .guestinfo("guestinfo.metadata", &STANDARD.encode(NETWORK))
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(
            instance.config.as_deref(),
            Some(b"machine: {}\n".as_slice())
        );
        assert_eq!(instance.metadata.instance_id, "vm-7");
        assert_eq!(instance.network.hostname.as_deref(), Some("node-1"));
        assert_eq!(
            links(&instance.network.seed),
            [
                "first 00:50:56:00:00:01 192.0.2.7/24",
                "first default via 192.0.2.1",
                "dns 192.0.2.53"
            ]
        );
    }

    /// An OVF environment with a config and a name.
    fn ovf() -> String {
        format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:oe="http://schemas.dmtf.org/ovf/environment/1"
  xmlns:ve="http://www.vmware.com/schema/ovfenv" oe:id="" ve:esxId="vm-7">
  <PlatformSection><Kind>VMware ESXi</Kind></PlatformSection>
  <PropertySection>
    <Property oe:key="metadata" oe:value="{}"/>
    <Property oe:key="talos.config" oe:value="{}"/>
  </PropertySection>
</Environment>"#,
            STANDARD.encode("local-hostname: node-2\n"),
            STANDARD.encode("machine: {}\n"),
        )
    }

    #[tokio::test]
    async fn ovf_environment_fills_missing_properties() {
        for (script, expected) in [
            (Script::new().guestinfo("guestinfo.ovfEnv", &ovf()), ""),
            (
                Script::new()
                    .without_guestinfo()
                    .file("ovf-env.xml", ovf().as_bytes()),
                "this machine is not a VMware guest; going on with the disc",
            ),
        ] {
            let (instance, notes) = script.ask(&PLATFORM).await;
            assert_eq!(notes.concat(), expected);
            assert_eq!(
                instance.config.as_deref(),
                Some(b"machine: {}\n".as_slice())
            );
            assert_eq!(instance.network.hostname.as_deref(), Some("node-2"));
        }
    }

    #[tokio::test]
    async fn broken_property_is_named_and_the_others_are_used() {
        let (instance, notes) = Script::new()
            .guestinfo("guestinfo.userdata", "machine: {}")
            .guestinfo("guestinfo.metadata", "network: {version: 3}")
            .guestinfo("guestinfo.ovfEnv", "<a")
            .ask(&PLATFORM)
            .await;
        assert!(instance.config.is_some());
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("guestinfo.ovfEnv: is not XML"));
        assert!(notes[1].contains("version must be 1 or 2"), "{notes:?}");
    }
}

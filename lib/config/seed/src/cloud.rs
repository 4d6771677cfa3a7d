//! The files of a NoCloud seed (cloud-init's documentation: "NoCloud").

use std::collections::BTreeSet;

use corten_values::HostName;
use corten_yaml::problem::{Notes, Problems};
use corten_yaml::read::{Reader, Section as _, read_section};
use corten_yaml::tree::{Content, Node};
use corten_yaml::{section, table};

use crate::limits::only;
use crate::model::SeedNetwork;
use crate::v1::NetworkV1;
use crate::v2::NetworkV2;

/// Parses `network-config`, with its fields at the top or below `network`. `None` for an empty file. Settings that the
/// node does not support are left out and reported ([`SeedNetwork::left_out`]).
///
/// # Errors
/// All problems of the file.
pub fn network(bytes: &[u8]) -> Result<Option<SeedNetwork>, Problems> {
    let mut notes = Notes::lenient();
    let Some(node) = only(bytes, &mut notes)? else {
        return notes.into_result(None);
    };
    let mut reader = Reader::new(&mut notes, false);
    let mut found = match node.get("network") {
        Some(inner) if node.get("version").is_none() => {
            reader.within("network", |reader| by_version(inner, reader))
        }
        _ => by_version(&node, &mut reader),
    };
    let left_out = notes.take_left_out();
    if let Some(network) = &mut found {
        network.left_out = left_out;
    }
    notes.into_result(found)
}

fn by_version(node: &Node, reader: &mut Reader<'_>) -> Option<SeedNetwork> {
    if !matches!(node.content, Content::Map(_)) {
        reader.wrong(node.mark, "must be a map of fields");
        return None;
    }
    let network = match node.get("version").and_then(Node::text) {
        Some("1") => {
            let node = respelt(node, reader);
            SeedNetwork::from(read_section::<NetworkV1>(&node, &[], reader)?)
        }
        Some("2") => SeedNetwork::from(read_section::<NetworkV2>(node, &[], reader)?),
        _ => {
            reader.wrong_in(node, "version", "must be 1 or 2");
            return None;
        }
    };
    network.check(node, reader);
    Some(network)
}

/// Version 1 with one spelling of the settings of bonds and bridges. A file may have `-` or `_`.
fn respelt(node: &Node, reader: &mut Reader<'_>) -> Node {
    let mut node = node.clone();
    for item in field_mut(&mut node, "config")
        .into_iter()
        .flat_map(items_mut)
    {
        let Some(Content::Map(params)) =
            field_mut(item, "params").map(|params| &mut params.content)
        else {
            continue;
        };
        let mut seen = BTreeSet::new();
        for (key, _) in params {
            let written = key.name.clone();
            if key.name.starts_with("bond") {
                key.name = key.name.replace('_', "-");
            } else if key.name.starts_with("bridge") {
                key.name = key.name.replace('-', "_");
            }
            if !seen.insert(key.name.clone()) {
                reader.within(&written, |reader| {
                    reader.wrong(key.mark, "is given twice, in two spellings");
                });
            }
        }
    }
    node
}

fn field_mut<'a>(node: &'a mut Node, name: &str) -> Option<&'a mut Node> {
    let Content::Map(entries) = &mut node.content else {
        return None;
    };
    let found = entries.iter_mut().find(|(key, _)| key.name == name);
    found.map(|(_, value)| value)
}

fn items_mut(node: &mut Node) -> &mut [Node] {
    match &mut node.content {
        Content::List(items) => items,
        _ => &mut [],
    }
}

section! {
    /// Identity of a machine, from `meta-data`.
    pub struct SeedIdentity {
        Acted "hostname" hostname: Option<HostName> = "Host name of the machine";
        Acted "local-hostname" local_hostname: Option<HostName> = "Host name if `hostname` is absent";
        Acted "instance-id" instance_id: String = "Identifier of the machine on the platform";
        Acted "instance-type" instance_type: String = "Size of the machine on the platform";
        Acted "provider-id" provider_id: String = "Identifier of the machine for the Kubernetes cloud controller";
        Acted "region" region: String = "Region of the machine";
        Acted "zone" zone: String = "Zone of the machine within the region";
        Acted "internal-dns" internal_dns: String = "DNS name of the machine in the platform's network";
        Acted "external-dns" external_dns: String = "Public DNS name of the machine";
    }
}

impl SeedIdentity {
    /// The host name of the machine, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let name = self.hostname.as_ref().or(self.local_hostname.as_ref());
        name.map(|name| &**name)
    }
}

/// Parses `meta-data`. Unknown fields are ignored: platforms have many, and none is about the network.
///
/// # Errors
/// All problems of the file.
pub fn identity(bytes: &[u8]) -> Result<SeedIdentity, Problems> {
    let mut notes = Notes::default();
    let Some(node) = only(bytes, &mut notes)? else {
        return notes.into_result(SeedIdentity::default());
    };
    let mut reader = Reader::new(&mut notes, false);
    let names = node.entries().iter().map(|(key, _)| key.name.as_str());
    let others: Vec<&str> = names
        .filter(|name| table::find(SeedIdentity::TABLE, name).is_none())
        .collect();
    let identity = read_section(&node, &others, &mut reader).unwrap_or_default();
    notes.into_result(identity)
}

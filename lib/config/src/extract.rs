//! From a tree to the sections the node reads, noting what makes no sense.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::check::truth;
use crate::document::{Cluster, KeyPair, Machine, MachineType};
use crate::problem::{Mark, Notes};
use crate::secret::Secret;
use crate::tree::{Kind, Node};

/// The sections of a v1alpha1 document; `hostname` comes from a document of
/// its own and wins.
pub(crate) fn extract(
    root: &Node,
    hostname: Option<&Node>,
    notes: &mut Notes,
) -> (Machine, Cluster) {
    if root.at("version").and_then(Node::text) != Some("v1alpha1") {
        let mark = root.at("version").map_or(root.mark, |node| node.mark);
        notes.add(mark, "version", "version must be v1alpha1");
    }
    for (path, why) in [
        (
            "persist",
            "persist: a config that is not kept is not supported",
        ),
        (
            "machine.features.rbac",
            "machine.features.rbac: the API always checks roles",
        ),
        (
            "machine.features.apidCheckExtKeyUsage",
            "machine.features.apidCheckExtKeyUsage: key usage is always checked",
        ),
    ] {
        if let Some(node) = root.at(path).filter(|node| truth(node) == Some(false)) {
            notes.add(node.mark, path, why);
        }
    }
    (machine(root, hostname, notes), cluster(root, notes))
}

fn machine(root: &Node, hostname: Option<&Node>, notes: &mut Notes) -> Machine {
    let kind = match root.at("machine.type").and_then(Node::text) {
        Some("controlplane" | "init") => MachineType::ControlPlane,
        Some("worker") => MachineType::Worker,
        _ => {
            let mark = root.at("machine.type").map_or(root.mark, |node| node.mark);
            notes.add(
                mark,
                "machine.type",
                "machine.type must be controlplane or worker",
            );
            MachineType::Worker
        }
    };
    let ca = root
        .at("machine.ca")
        .map(|node| pair(node, "machine.ca", notes));
    let accepted_cas: Vec<String> = match root.at("machine.acceptedCAs").map(|node| &node.kind) {
        Some(Kind::List(items)) => items
            .iter()
            .filter_map(|item| item.get("crt"))
            .filter_map(|crt| decoded(crt, "machine.acceptedCAs.crt", "CERTIFICATE", notes))
            .collect(),
        _ => Vec::new(),
    };
    let has = |part: fn(&KeyPair) -> bool| ca.as_ref().is_some_and(part);
    let place = root.at("machine.ca").map_or(root.mark, |node| node.mark);
    match kind {
        MachineType::ControlPlane if !has(|ca| !ca.crt.is_empty() && !ca.key.is_empty()) => {
            notes.add(
                place,
                "machine.ca",
                "a control plane node needs machine.ca.crt and machine.ca.key",
            );
        }
        MachineType::Worker if has(|ca| !ca.key.is_empty()) => {
            notes.add(
                place,
                "machine.ca.key",
                "machine.ca.key must not be given to a worker",
            );
        }
        MachineType::Worker if !has(|ca| !ca.crt.is_empty()) && accepted_cas.is_empty() => {
            notes.add(
                place,
                "machine.ca",
                "a worker needs machine.ca.crt or machine.acceptedCAs",
            );
        }
        _ => {}
    }
    let hostname = hostname.or_else(|| root.at("machine.network.hostname"));
    if let Some(node) = hostname.filter(|node| !node.text().is_some_and(is_host_name)) {
        notes.add(
            node.mark,
            "hostname",
            "the host name must be letters, digits and dashes in parts of at most 63",
        );
    }
    Machine {
        kind,
        token: Secret::new(
            root.at("machine.token")
                .and_then(Node::text)
                .unwrap_or_default(),
        ),
        ca,
        accepted_cas,
        cert_sans: texts(root, "machine.certSANs")
            .into_iter()
            .map(|(t, _)| t.to_owned())
            .collect(),
        hostname: hostname.and_then(Node::text).map(str::to_owned),
        nameservers: nameservers(root, notes),
        sysctls: sysctls(root, notes),
        install_disk: root
            .at("machine.install.disk")
            .and_then(Node::text)
            .map(str::to_owned),
    }
}

fn cluster(root: &Node, notes: &mut Notes) -> Cluster {
    let path = "cluster.controlPlane.endpoint";
    let endpoint = root.at(path).and_then(Node::text).unwrap_or_default();
    let host = endpoint.strip_prefix("https://").unwrap_or_default();
    if host.is_empty() || host.starts_with([':', '/']) || host.contains(char::is_whitespace) {
        let mark = root.at(path).map_or(root.mark, |node| node.mark);
        notes.add(
            mark,
            path,
            format!("{path} must be a URL such as https://10.0.0.1:6443"),
        );
    }
    Cluster {
        name: root
            .at("cluster.clusterName")
            .and_then(Node::text)
            .unwrap_or_default()
            .to_owned(),
        endpoint: endpoint.to_owned(),
    }
}

fn texts<'a>(root: &'a Node, path: &str) -> Vec<(&'a str, Mark)> {
    root.at(path).map(Node::texts).unwrap_or_default()
}

fn nameservers(root: &Node, notes: &mut Notes) -> Vec<IpAddr> {
    let path = "machine.network.nameservers";
    let mut servers = Vec::new();
    for (text, mark) in texts(root, path) {
        match text.parse() {
            Ok(address) => servers.push(address),
            Err(_) => notes.add(mark, path, format!("{path}: not an IP address")),
        }
    }
    servers
}

fn sysctls(root: &Node, notes: &mut Notes) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let Some(Kind::Map(entries)) = root.at("machine.sysctls").map(|node| &node.kind) else {
        return values;
    };
    for (key, value) in entries {
        let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '*');
        // The name becomes a path under /proc/sys: it must stay there.
        if key.name.is_empty() || key.name.contains("..") || !key.name.chars().all(usual) {
            notes.add(
                key.mark,
                "machine.sysctls",
                "machine.sysctls: not the name of a sysctl",
            );
        } else if let Some(text) = value.text() {
            values.insert(key.name.clone(), text.to_owned());
        }
    }
    values
}

fn pair(node: &Node, path: &str, notes: &mut Notes) -> KeyPair {
    let mut part = |name: &str, tag: &str| {
        let found = node.get(name)?;
        decoded(found, &format!("{path}.{name}"), tag, notes)
    };
    KeyPair {
        crt: part("crt", "CERTIFICATE").unwrap_or_default(),
        key: Secret::new(part("key", "PRIVATE KEY").unwrap_or_default()),
    }
}

/// PEM text out of its base64.
fn decoded(node: &Node, path: &str, tag: &str, notes: &mut Notes) -> Option<String> {
    let text: String = node.text()?.split_whitespace().collect();
    let pem = STANDARD
        .decode(text)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let pem = pem.filter(|pem| pem.contains("-----BEGIN ") && pem.contains(tag));
    if pem.is_none() {
        notes.add(
            node.mark,
            path,
            format!("{path} must be base64 of a PEM {tag}"),
        );
    }
    pem
}

/// RFC 1123, with dots between the labels.
fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

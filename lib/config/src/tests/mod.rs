//! Tests of the whole crate; tests of one file are in that file.

mod alike;
mod carried;
mod containerd;
mod cri;
mod encryption;
mod forms;
mod hostile;
mod installation;
mod kept;
mod kinds;
mod kubernetes;
mod links;
mod page;
mod parse;
mod patch;
mod plan;
mod pod_access;
mod reach;
mod registries;
mod senseless;
mod volumes;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_yaml::table::Support;

use crate::Document;

const KEY_TEXT: &str = "c2VjcmV0LWtleS1ib2R5";
/// Valid content of every parsed kind.
const EXAMPLES: &str = include_str!("examples.yaml");

fn crt() -> String {
    STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
}

fn key() -> String {
    let pem = format!(
        "-----BEGIN ED25519 PRIVATE KEY-----\n{KEY_TEXT}\n-----END ED25519 PRIVATE KEY-----\n"
    );
    STANDARD.encode(pem)
}

fn good() -> String {
    format!(
        "version: v1alpha1
debug: false
persist: true
machine:
    type: controlplane
    token: abcdef.0123456789abcdef
    ca:
        crt: {}
        key: {}
    certSANs: [node.example, 10.0.2.15]
    network:
        hostname: 'cp-1'
        nameservers:
            - 10.0.2.3
    sysctls:
        net.ipv4.ip_forward: \"1\"
        vm.max_map_count: 262144
    registries: {{}}
    install:
        disk: /dev/vda
    features:
        rbac: true
        kubePrism: {{enabled: true, port: 7445}}
cluster:
    id: aaaa
    secret: cluster-secret-value
    controlPlane:
        endpoint: https://10.0.2.15:6443
    clusterName: demo
",
        crt(),
        key()
    )
}

/// A config with the minimum in the old form, to be completed by documents with a kind.
fn bare(machine_type: &str) -> String {
    let key = match machine_type {
        "worker" => String::new(),
        _ => format!(", key: {}", key()),
    };
    let crt = crt();
    format!("version: v1alpha1\nmachine:\n    type: {machine_type}\n    ca: {{crt: {crt}{key}}}\n")
}

/// A config with these items in `machine.network.interfaces`.
fn with_interfaces(items: &str) -> String {
    let (good, network) = (good(), "    network:\n");
    assert!(good.contains(network));
    let interfaces = format!("{network}        interfaces: [{items}]\n");
    good.replace(network, &interfaces)
}

/// An additional document.
fn doc(kind: &str, fields: &str) -> String {
    format!("---\napiVersion: v1alpha1\nkind: {kind}\n{fields}\n")
}

/// Effective support of a nested field: a field within a kept one is only kept.
fn least(around: Support, own: Support) -> Support {
    match (around, own) {
        (Support::Later, _) | (_, Support::Later) => Support::Later,
        (Support::Held, _) | (_, Support::Held) => Support::Held,
        (Support::Acted, Support::Acted) => Support::Acted,
    }
}

fn document(text: &str) -> Document {
    Document::parse(text.as_bytes()).unwrap()
}

/// Parses as if all known fields were supported.
fn future(text: &str) -> Document {
    Document::read(text.as_bytes(), true).unwrap()
}

fn problems(text: &str) -> Vec<String> {
    match Document::parse(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

fn future_problems(text: &str) -> Vec<String> {
    match Document::read(text.as_bytes(), true) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

//! Configs for the tests of this crate and of those above it.
#![expect(
    clippy::unwrap_used,
    reason = "a config that is not valid fails its test"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_yaml::problem::Problems;

use crate::document::Document;

/// The text in [`key`], which nothing may show.
pub const KEY_TEXT: &str = "c2VjcmV0LWtleS1ib2R5";
/// Valid content of every parsed kind.
pub const EXAMPLES: &str = include_str!("tests/examples.yaml");

/// A certificate as in the old form.
#[must_use]
pub fn crt() -> String {
    STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
}

/// A private key as in the old form.
#[must_use]
pub fn key() -> String {
    let pem = format!(
        "-----BEGIN ED25519 PRIVATE KEY-----\n{KEY_TEXT}\n-----END ED25519 PRIVATE KEY-----\n"
    );
    STANDARD.encode(pem)
}

/// A complete config in the old form.
#[must_use]
pub fn good() -> String {
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
#[must_use]
pub fn bare(machine_type: &str) -> String {
    let key = match machine_type {
        "worker" => String::new(),
        _ => format!(", key: {}", key()),
    };
    let crt = crt();
    format!("version: v1alpha1\nmachine:\n    type: {machine_type}\n    ca: {{crt: {crt}{key}}}\n")
}

/// A config with these items in `machine.network.interfaces`.
#[must_use]
pub fn with_interfaces(items: &str) -> String {
    let (good, network) = (good(), "    network:\n");
    assert!(good.contains(network));
    let interfaces = format!("{network}        interfaces: [{items}]\n");
    good.replace(network, &interfaces)
}

/// An additional document.
#[must_use]
pub fn doc(kind: &str, fields: &str) -> String {
    format!("---\napiVersion: v1alpha1\nkind: {kind}\n{fields}\n")
}

/// A config with an additional document.
#[must_use]
pub fn with(kind: &str, fields: &str) -> String {
    let plain = good().replace(
        "        hostname: 'cp-1'\n        nameservers:\n            - 10.0.2.3\n",
        "        hostname:\n",
    );
    format!("{plain}---\napiVersion: v1alpha1\nkind: {kind}\n{fields}\n")
}

/// The default output of the reference client's `gen config` since 1.14, in its form and order.
fn generated(file: &str) -> String {
    file.replace("CRT", &crt())
        .replace("KEY\n", &format!("{}\n", key()))
        .replace("SECRET", KEY_TEXT)
}

/// The reference client's default config of a control plane node.
#[must_use]
pub fn control_plane() -> String {
    generated(include_str!("tests/controlplane-1.14.yaml"))
}

/// The reference client's default config of a worker.
#[must_use]
pub fn worker() -> String {
    generated(include_str!("tests/worker-1.14.yaml"))
}

/// The lines of [`good`] and [`EXAMPLES`], from which tests make damaged configs.
#[must_use]
pub fn lines() -> Vec<String> {
    let good = good();
    let lines = good.lines().chain(EXAMPLES.lines());
    lines.map(|line| format!("{line}\n")).collect()
}

/// A small text that expands to `10^levels` items.
#[must_use]
pub fn bomb(levels: usize, item: &str) -> String {
    let mut text = format!("a0: &a0 [{item}]\n");
    for level in 1..levels {
        let previous = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    text
}

/// A valid config.
pub fn document(text: &str) -> Document {
    Document::parse(text.as_bytes()).unwrap()
}

/// Parses as if all known fields were supported.
///
/// # Errors
/// All problems.
pub fn read(text: &str) -> Result<Document, Problems> {
    Document::read(text.as_bytes(), true)
}

/// Parses as if all known fields were supported.
pub fn future(text: &str) -> Document {
    read(text).unwrap()
}

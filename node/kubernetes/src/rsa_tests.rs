//! A control plane with the RSA keys of kubeadm.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::Document;
use corten_corpus::sample;
use corten_pki::{CertificateAndKey, certificates_from_pem, verify_client, verify_issued};

use crate::certificates::{Cas, Certificates};
use crate::etcd;
use crate::files::Component;
use crate::tests::{document, facts, made, now};

fn text(name: &str) -> String {
    String::from_utf8(sample("pki", name)).unwrap()
}

/// The default config with RSA keys in place of all others.
fn rsa_document() -> Document {
    let [crt, key] = ["rsa.crt", "rsa.key"].map(|name| STANDARD.encode(text(name)));
    let pair = format!("{{crt: {crt}, key: {key}}}");
    let config = document("");
    let lines = config.source().lines().map(|line| {
        let name = line.split(':').next().unwrap();
        match name {
            "  ca" | "  aggregatorCA" => format!("{name}: {pair}\n"),
            "  serviceAccount" => format!("{name}: {{key: {key}}}\n"),
            "  etcd" => format!("{name}: {{ca: {pair}, image: 'example.org/etcd:v3.7.3'}}\n"),
            _ => format!("{line}\n"),
        }
    });
    let config: String = lines.collect();
    assert_eq!(config.matches(&pair).count(), 4, "{config}");
    Document::parse(config.as_bytes()).unwrap()
}

#[test]
fn rsa_cas_sign_every_certificate_of_the_control_plane_and_of_etcd() {
    let cas = Cas::of(&rsa_document()).unwrap();
    let own = Certificates::issue(&cas, &["cp.example.org".to_owned()], now()).unwrap();
    let etcd = etcd::Certificates::issue(&cas.etcd, &facts(), now()).unwrap();
    let crt = text("rsa.crt");
    let anchors = certificates_from_pem(crt.as_bytes()).unwrap();
    for server in [&own.api_server, &etcd.server, &etcd.peer] {
        verify_issued(server, &anchors, now()).unwrap();
    }
    let chain = |pair: &CertificateAndKey| certificates_from_pem(pair.crt.as_bytes()).unwrap();
    for client in [
        &own.kubelet_client,
        &own.front_proxy,
        &own.controller_manager,
        &own.scheduler,
        &etcd.admin,
        &etcd.api_server,
    ] {
        verify_client(&chain(client), &anchors, now()).unwrap();
    }
}

#[test]
fn components_get_rsa_keys_as_the_config_has_them() {
    let (_, _, components) = made(&rsa_document());
    let files = |component: &Component, name: &str| {
        let files = component.secrets.iter();
        let found: Vec<_> = files.filter(|file| file.name == name).collect();
        assert_eq!(found.len(), 1, "{name} of {}", component.name);
        found[0].content.expose().to_owned()
    };
    for (component, name, expected) in [
        ("kube-controller-manager", "issuing-ca.crt", "rsa.crt"),
        ("kube-controller-manager", "issuing-ca.key", "rsa.key"),
        ("kube-controller-manager", "service-account.key", "rsa.key"),
        ("kube-apiserver", "service-account.key", "rsa.key"),
    ] {
        let component = components.iter().find(|one| one.name == component).unwrap();
        assert_eq!(files(component, name), text(expected), "{name}");
    }
}

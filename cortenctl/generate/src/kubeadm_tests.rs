//! The import of a PKI of kubeadm. The files are samples of `tests/corpus/pki`.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::{Document, Mode};
use corten_corpus::sample;
use serde_json::Value;
use tempfile::TempDir;

use super::super::{bundle, reuse, tests};
use super::*;
use crate::args::GenConfig;

const TOKEN: &str = "abcdef.0123456789abcdef";

/// The files of kubeadm, and the samples that stand for them.
const FILES: [(&str, &str); 7] = [
    ("ca.crt", "rsa.crt"),
    ("ca.key", "rsa.key"),
    ("front-proxy-ca.crt", "p384.crt"),
    ("front-proxy-ca.key", "p384.key"),
    ("etcd/ca.crt", "rsa.crt"),
    ("etcd/ca.key", "rsa-pkcs8.key"),
    ("sa.key", "rsa.key"),
];

fn pki() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("etcd")).unwrap();
    for (name, sample_name) in FILES {
        let file = directory.path().join(name);
        fs::write(file, sample("pki", sample_name)).unwrap();
    }
    directory
}

fn import(directory: &Path) -> Secrets {
    read(directory, Some(TOKEN), SystemTime::now()).unwrap()
}

/// The refusal of a directory, without the directory's name.
fn refusal(directory: &Path, now: SystemTime) -> String {
    let error = match read(directory, None, now) {
        Ok(_) => panic!("it was taken"),
        Err(error) => format!("{error:#}"),
    };
    error.replace(directory.to_str().unwrap(), "DIR")
}

#[test]
fn pki_of_kubeadm_becomes_secrets_with_the_text_of_its_files() {
    let directory = pki();
    let secrets = bundle::value(&import(directory.path()));
    let places = [
        "/certs/k8s/crt",
        "/certs/k8s/key",
        "/certs/k8saggregator/crt",
        "/certs/k8saggregator/key",
        "/certs/etcd/crt",
        "/certs/etcd/key",
        "/certs/k8sserviceaccount/key",
    ];
    for (place, (name, sample_name)) in places.iter().zip(FILES) {
        let found = secrets.pointer(place).and_then(Value::as_str).unwrap();
        let expected = sample("pki", sample_name);
        assert_eq!(STANDARD.decode(found).unwrap(), expected, "{name}");
    }
    let token = secrets.pointer("/secrets/bootstraptoken");
    assert_eq!(token.and_then(Value::as_str), Some(TOKEN));
}

#[test]
fn configs_from_imported_secrets_pass_the_checks_of_a_node() {
    let directory = pki();
    let expected = bundle::value(&import(directory.path()));
    let file = directory.path().join("secrets.yaml");
    fs::write(&file, corten_client::yaml::render(&expected).unwrap()).unwrap();
    let args = GenConfig {
        with_secrets: Some(file),
        ..tests::args(directory.path())
    };
    crate::config(&args).unwrap();
    let controlplane = directory.path().join("controlplane.yaml");
    let document = Document::parse(&fs::read(&controlplane).unwrap()).unwrap();
    document.validate(Mode::Metal).unwrap();
    let again = reuse::read(&controlplane).unwrap();
    assert_eq!(bundle::value(&again), expected);
}

#[test]
fn config_without_the_new_encryption_key_passes_the_checks_of_a_node() {
    let directory = pki();
    let whole = corten_client::yaml::render(&bundle::value(&import(directory.path()))).unwrap();
    let lines = whole
        .lines()
        .filter(|line| !line.contains("secretboxencryptionsecret"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(text.len() < whole.len());
    let file = directory.path().join("secrets.yaml");
    fs::write(&file, text).unwrap();
    let args = GenConfig {
        with_secrets: Some(file),
        ..tests::args(directory.path())
    };
    crate::config(&args).unwrap();
    let controlplane = fs::read(directory.path().join("controlplane.yaml")).unwrap();
    let document = Document::parse(&controlplane).unwrap();
    document.validate(Mode::Metal).unwrap();
    assert!(document.cluster.secretbox_encryption_secret.is_empty());
}

#[test]
fn secrets_that_kubeadm_lacks_are_new() {
    let directory = pki();
    let imports = [(); 2].map(|()| read(directory.path(), None, SystemTime::now()).unwrap());
    for of in [
        |one: &Secrets| one.cluster_id.clone(),
        |one: &Secrets| one.cluster_secret.clone(),
        |one: &Secrets| one.bootstrap_token.clone(),
        |one: &Secrets| one.machine_token.clone(),
        |one: &Secrets| one.secretbox.clone(),
        |one: &Secrets| one.os.pem().crt.clone(),
    ] {
        let both: BTreeSet<String> = imports.iter().map(of).collect();
        assert!(both.len() == 2 && !both.contains(""), "{both:?}");
    }
    let [one, other] = &imports;
    assert!(one.os.pem().key.contains("BEGIN ED25519 PRIVATE KEY"));
    assert_eq!(one.kubernetes.pem(), other.kubernetes.pem());
}

#[test]
fn every_missing_file_is_named_with_the_remedy() {
    let directory = pki();
    let now = SystemTime::now();
    for name in ["ca.key", "sa.key"] {
        fs::remove_file(directory.path().join(name)).unwrap();
    }
    fs::remove_dir_all(directory.path().join("etcd")).unwrap();
    let why = refusal(directory.path(), now);
    let expected = format!("DIR lacks ca.key, etcd/ca.crt, etcd/ca.key, sa.key; {COPY}");
    assert_eq!(why, expected);
    let file = directory.path().join("ca.crt");
    let why = refusal(&file, now);
    let expected = format!("DIR is not a directory that can be read; {COPY}");
    assert_eq!(why, expected);
}

#[test]
fn unusable_file_is_named_with_the_reason_and_the_remedy() {
    let short = || text_of("rsa-512.key");
    let cut = || {
        let key = text_of("rsa.key");
        let lines: Vec<&str> = key.lines().collect();
        [&lines[..5], &lines[8..]].concat().join("\n")
    };
    let encrypted = || text_of("rsa-pkcs8.key").replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let leaf = || {
        let ca = Ca::from_pem(&text_of("rsa.crt"), &text_of("rsa.key")).unwrap();
        let leaf = ca.client(&["x"], SystemTime::now(), NODE_LIFETIME);
        leaf.unwrap().crt
    };
    let cases = [
        (
            "ca.key",
            text_of("p384.key"),
            "DIR/ca.key: the private key does not belong to the certificate DIR/ca.crt; copy both",
        ),
        (
            "etcd/ca.key",
            short(),
            "DIR/etcd/ca.key: the RSA key has 512 bits: use one of 2048 to 4096 bits",
        ),
        (
            "sa.key",
            short(),
            "DIR/sa.key: the RSA key has 512 bits: use one of 2048 to 4096 bits",
        ),
        (
            "front-proxy-ca.key",
            cut(),
            "DIR/front-proxy-ca.key: the private key is damaged",
        ),
        (
            "ca.key",
            encrypted(),
            "DIR/ca.key: the private key is encrypted: decrypt it",
        ),
        (
            "sa.key",
            encrypted(),
            "DIR/sa.key: the private key is encrypted: decrypt it",
        ),
        (
            "sa.key",
            "sa".to_owned(),
            "DIR/sa.key: no private key in the PEM text; copy /etc/kubernetes/pki",
        ),
        (
            "ca.crt",
            "ca".to_owned(),
            "DIR/ca.crt: no certificate in the PEM text; copy /etc/kubernetes/pki",
        ),
        (
            "ca.crt",
            leaf(),
            "DIR/ca.key: the private key does not belong to the certificate DIR/ca.crt; copy both",
        ),
        (
            "ca.crt",
            " ".repeat(2_000_000),
            "DIR/ca.crt: larger than 1048576 bytes; copy /etc/kubernetes/pki",
        ),
    ];
    for (name, text, expected) in cases {
        let directory = pki();
        fs::write(directory.path().join(name), text).unwrap();
        let why = refusal(directory.path(), SystemTime::now());
        assert!(why.starts_with(expected), "{name}: {why}");
        assert!(!why.contains("BEGIN"), "{why}");
    }
}

#[test]
fn certificate_of_a_server_is_refused_as_a_ca() {
    let directory = pki();
    let ca = import(directory.path()).kubernetes;
    let leaf = ca.client(&["x"], SystemTime::now(), NODE_LIFETIME).unwrap();
    for (name, text) in [("ca.crt", leaf.crt), ("ca.key", leaf.key)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let why = refusal(directory.path(), SystemTime::now());
    let expected =
        "DIR/ca.crt: the certificate is not a CA certificate; put the certificate of the CA first";
    assert!(why.starts_with(expected), "{why}");
}

#[test]
fn ca_whose_certificates_would_be_refused_is_not_imported() {
    let directory = pki();
    let century = Duration::from_secs(100 * 366 * 24 * 60 * 60);
    let why = refusal(directory.path(), SystemTime::now() + century);
    assert!(why.starts_with("DIR/ca.crt: the CA has expired"), "{why}");
    for (name, sample_name) in [("ca.crt", "two-units.crt"), ("ca.key", "two-units.key")] {
        let file = directory.path().join(name);
        fs::write(file, sample("pki", sample_name)).unwrap();
    }
    let why = refusal(directory.path(), SystemTime::now());
    let expected = "DIR/ca.crt: a certificate that this CA signs would be refused";
    assert!(why.starts_with(expected), "{why}");
}

fn text_of(name: &str) -> String {
    String::from_utf8(sample("pki", name)).unwrap()
}

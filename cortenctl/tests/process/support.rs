//! Runs the program, and makes the certificates of a node that serves it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::SystemTime;

use corten_config::Document;
use corten_pki::{Ca, CertificateAndKey, NODE_LIFETIME};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// Starts a program that heeds every signal: a shell's background job would inherit that SIGINT is ignored, and one of
/// `nohup` that SIGHUP is.
pub(crate) const HEEDING: [&str; 2] = ["env", "--default-signal=INT,HUP"];

pub(crate) fn cortenctl(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cortenctl"))
        .args(arguments)
        .env_remove("CORTENCONFIG")
        .env_remove("TALOSCONFIG")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap()
}

pub(crate) fn generate(directory: &Path) {
    let path = directory.to_str().unwrap();
    let output = cortenctl(&[
        "gen",
        "config",
        "demo",
        "https://127.0.0.1:6443",
        "-o",
        path,
    ]);
    assert!(output.status.success(), "{output:?}");
}

/// An editor as a script, started through a shell. A newly written program cannot be executed while
/// a child forked by another test still holds it open (execve(2), `ETXTBSY`).
pub(crate) fn editor(script: &Path) -> String {
    format!("sh {}", script.display())
}

/// The server library reads only the general label of a key's PEM block.
pub(crate) fn identity(pem: &CertificateAndKey) -> Identity {
    Identity::from_pem(
        &pem.crt,
        pem.key.replace("ED25519 PRIVATE KEY", "PRIVATE KEY"),
    )
}

/// The certificate of a node that has the config in a directory and these names.
pub(crate) fn certificate(directory: &Path, names: &[&str]) -> (Ca, CertificateAndKey) {
    let config = std::fs::read(directory.join("controlplane.yaml")).unwrap();
    let ca = Document::parse(&config).unwrap().machine.ca.unwrap();
    let ca = Ca::from_pem(&ca.crt, ca.key.expose()).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let server = ca
        .control_plane_server("node", &names, SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    (ca, server)
}

/// TLS of a node that has the config in a directory and these names.
pub(crate) fn tls(directory: &Path, names: &[&str]) -> ServerTlsConfig {
    let (ca, server) = certificate(directory, names);
    ServerTlsConfig::new()
        .identity(identity(&server))
        .client_ca_root(Certificate::from_pem(&*ca.pem().crt))
}

//! Settings of machined's HTTPS clients: timeout and trusted CAs.

use std::fs;
use std::time::Duration;

use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;

use crate::trusted_roots::CA_FILE;

/// Agent settings. `patience` is the timeout from name resolution to the last byte.
pub fn config(patience: Duration) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .timeout_global(Some(patience))
        .tls_config(TlsConfig::builder().root_certs(cas()).build())
}

/// CAs trusted by the image and the config; none without an image.
fn cas() -> RootCerts {
    let pem = fs::read(CA_FILE).unwrap_or_default();
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    RootCerts::new_with_certs(&certificates)
}

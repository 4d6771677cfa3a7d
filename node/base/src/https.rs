//! How machined asks web servers: by whose certificates it believes them.

use std::fs;
use std::time::Duration;

use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::AgentScope;

use crate::trusted_roots::AUTHORITIES;

/// Settings of an agent. `patience` is from a name's resolution to the last byte.
pub fn config(patience: Duration) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .timeout_global(Some(patience))
        .tls_config(TlsConfig::builder().root_certs(authorities()).build())
}

/// What the image and the config trust; nothing, where there is no image.
fn authorities() -> RootCerts {
    let pem = fs::read(AUTHORITIES).unwrap_or_default();
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    RootCerts::new_with_certs(&certificates)
}

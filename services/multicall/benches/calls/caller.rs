//! TLS of apid's callers, for the benchmark of calls and the tests of streams.

use std::sync::Arc;
use std::time::SystemTime;

use corten_pki::{Ca, NODE_LIFETIME};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, version};

/// TLS configuration of a caller with a role.
pub fn config(ca: &Ca, role: &str) -> Arc<ClientConfig> {
    let own = ca
        .client(&[role], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let mut roots = RootCertStore::empty();
    for root in corten_pki::certificates_from_pem(ca.pem().crt.as_bytes()).unwrap() {
        roots.add(root).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap(),
            corten_pki::private_key_from_pem(own.key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

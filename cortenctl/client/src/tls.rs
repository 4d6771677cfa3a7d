//! The trusted certificates of a connection, and readable errors of a failed handshake.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::clientconfig::Identity;
use crate::units;

/// The requested protocol; a server that selects another is no node.
pub(crate) const ALPN: &[u8] = b"h2";

/// TLS with the context's certificate, trusting the context's CA only.
pub fn mutual(identity: &Identity, now: SystemTime) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for ca in
        corten_pki::certificates_from_pem(identity.ca.as_bytes()).context("ca of the context")?
    {
        roots.add(ca).context("ca of the context")?;
    }
    let (chain, key) = chain_and_key(identity)?;
    let leaf = chain
        .first()
        .ok_or_else(|| anyhow!("crt of the context is empty"))?;
    let (_, end) = corten_pki::validity(leaf).context("crt of the context")?;
    if let Ok(past) = now.duration_since(end) {
        let ago = units::duration(past);
        bail!(
            "the client certificate expired {ago} ago; let an operator with the role os:admin make a new one"
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .context("crt and key of the context do not match")?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// The client's certificate with its chain, and its key.
fn chain_and_key(
    identity: &Identity,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let chain =
        corten_pki::certificates_from_pem(identity.crt.as_bytes()).context("crt of the context")?;
    let key =
        corten_pki::private_key_from_pem(identity.key.as_bytes()).context("key of the context")?;
    Ok((chain, key))
}

/// The roles in the context's certificate, for a message about a refusal.
pub fn roles(identity: &Identity) -> Vec<String> {
    corten_pki::certificates_from_pem(identity.crt.as_bytes())
        .ok()
        .and_then(|chain| corten_pki::organizations(chain.first()?).ok())
        .unwrap_or_default()
}

/// TLS to a node without a config. The node's certificate is trusted, or must have one of these
/// fingerprints if any are given. A locked node requests a certificate and gets the owner's.
pub fn insecure(fingerprints: &[String], owner: Option<&Identity>) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Pinned {
        fingerprints: fingerprints
            .iter()
            .map(|text| text.trim().to_owned())
            .collect(),
        provider: Arc::clone(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match owner {
        None => config.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = chain_and_key(identity)?;
            config
                .with_client_auth_cert(chain, key)
                .context("crt and key of the context do not match")?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// Verifies a certificate by its key's fingerprint alone, or not at all. The handshake's signature
/// is always verified, which proves that the peer holds the key.
#[derive(Debug)]
struct Pinned {
    fingerprints: Vec<String>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.fingerprints.is_empty() {
            return Ok(ServerCertVerified::assertion());
        }
        let found = corten_pki::fingerprint(leaf)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if self.fingerprints.contains(&found) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General(format!(
                "its fingerprint is {found}, not the one given with --cert-fingerprint; compare with the node's console"
            )))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The meaning of a failed handshake, and the remedy.
pub fn explain(error: &io::Error, host: &str) -> String {
    let Some(tls) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>())
    else {
        return if matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
        ) {
            "the connection was closed during the TLS handshake; the node may still be booting"
                .to_owned()
        } else {
            error.to_string()
        };
    };
    match tls {
        Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not from the CA of this context; the node belongs to another cluster, or has no config yet (then add --insecure)".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
                "its certificate does not name {host}; use an address it names, or put {host} into machine.certSANs of its config (gen config --additional-sans {host})"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired; check the clocks of the node and of this machine".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; check the clocks of the node and of this machine".to_owned()
            }
            other => format!("its certificate is not acceptable: {other}"),
        },
        Error::General(text) => text.clone(),
        Error::AlertReceived(alert) => alert_text(*alert),
        other => format!("the TLS handshake failed: {other}"),
    }
}

/// The alerts with which a node refuses our certificate.
const REFUSALS: [AlertDescription; 8] = [
    AlertDescription::CertificateRequired,
    AlertDescription::UnknownCA,
    AlertDescription::BadCertificate,
    AlertDescription::DecryptError,
    AlertDescription::AccessDenied,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateExpired,
];

/// The meaning of a TLS alert below `error`, if there is one. With TLS 1.3 a node refuses our
/// certificate only after the handshake, during the call. The HTTP/2 library keeps only the text of
/// that error.
pub(crate) fn refusal_below(error: &dyn std::error::Error) -> Option<String> {
    let text = chain(error);
    REFUSALS
        .into_iter()
        .find(|alert| text.contains(&Error::AlertReceived(*alert).to_string()))
        .map(alert_text)
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the node asks for a client certificate: it has an owner; leave --insecure out, or, if the node is locked, name \
             the owner's client config with --cortenconfig".to_owned()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "the node does not accept our client certificate; use the client config that was made with its machine config".to_owned()
        }
        AlertDescription::CertificateExpired => {
            "the node says our client certificate has expired; check its clock, or make a new client config".to_owned()
        }
        other => format!("the node ended the handshake: {other:?}"),
    }
}

/// The text of an error and of all its sources.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_client_certificate_is_recognised_by_the_alert_text() {
        let below = |alert| {
            let text = format!("connection error: {}", Error::AlertReceived(alert));
            refusal_below(&io::Error::other(text))
        };
        let required = below(AlertDescription::CertificateRequired).unwrap();
        assert!(required.contains("leave --insecure out"), "{required}");
        let unknown = below(AlertDescription::UnknownCA).unwrap();
        assert!(
            unknown.contains("does not accept our client certificate"),
            "{unknown}"
        );
        assert_eq!(below(AlertDescription::CloseNotify), None);
        assert_eq!(refusal_below(&io::Error::other("broken pipe")), None);
    }

    #[test]
    fn failed_handshake_start_is_reported_as_a_node_that_is_not_up() {
        let text = explain(&io::ErrorKind::UnexpectedEof.into(), "node1");
        assert!(text.contains("may still be booting"), "{text}");
        let name = io::Error::other(Error::InvalidCertificate(CertificateError::NotValidForName));
        assert!(explain(&name, "node1").contains("--additional-sans node1"));
    }
}

//! The client's trust in a server before the time is known.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use x509_parser::parse_x509_certificate;

/// ALPN name of the protocol (RFC 8915, section 4).
pub(crate) const PROTOCOL: &[u8] = b"ntske/1";

/// An error of setting up trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The list has no usable CA.
    #[error("the list has no usable CA")]
    NoCa,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Trusted CAs, and the earliest possible time.
///
/// The clock is not set yet, or a bad server has set it wrong. So a certificate is verified at the earliest possible
/// time, or at the start of its validity if that is later. The time that the server states must lie within the
/// validity.
#[derive(Debug, Clone)]
pub struct Trust {
    pub(crate) config: Arc<ClientConfig>,
}

impl Trust {
    /// Trusts these CAs from that time on. Unparsable ones are skipped.
    ///
    /// # Errors
    /// None is usable.
    pub fn new(
        cas: impl IntoIterator<Item = CertificateDer<'static>>,
        earliest: SystemTime,
    ) -> Result<Trust, TrustError> {
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(cas).0 == 0 {
            return Err(TrustError::NoCa);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let failed = |error: &dyn std::error::Error| TrustError::Tls(error.to_string());
        let verifier = verifier(roots, provider.clone()).map_err(|error| failed(&error))?;
        let verifier = Arc::new(AtTheEarliest { verifier, earliest });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Trust {
            config: Arc::new(config),
        })
    }
}

fn verifier(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, rustls::client::VerifierBuilderError> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()
}

/// Start and end of a certificate's validity.
pub(crate) fn validity(certificate: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let validity = certificate.validity();
    let at = |seconds: i64| {
        let since = Duration::from_secs(u64::try_from(seconds).ok()?);
        UNIX_EPOCH.checked_add(since)
    };
    let from = at(validity.not_before.timestamp().max(0))?;
    Some((from, at(validity.not_after.timestamp())?))
}

#[derive(Debug)]
struct AtTheEarliest {
    verifier: Arc<WebPkiServerVerifier>,
    earliest: SystemTime,
}

impl ServerCertVerifier for AtTheEarliest {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let bad = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let (from, _) = validity(end_entity).ok_or_else(bad)?;
        let at = self.earliest.max(from).duration_since(UNIX_EPOCH);
        let at = UnixTime::since_unix_epoch(at.unwrap_or_default());
        self.verifier
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, at)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

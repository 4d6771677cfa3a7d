//! Keys and certificates as PEM text.
//!
//! An Ed25519 key is written as `ED25519 PRIVATE KEY` with a PKCS#8 body, the form of the client config; `PRIVATE KEY`
//! is accepted as well. A P-256 key is written as `EC PRIVATE KEY` with a SEC 1 (RFC 5915) body.

use std::fmt;

use rcgen::KeyPair;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};

use crate::PkiError;

/// A certificate and its private key, both PEM. `Debug` hides the key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateAndKey {
    /// The certificate, or a chain with the leaf first.
    pub crt: String,
    /// The private key; secret.
    pub key: String,
}

impl fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAndKey")
            .field("crt", &self.crt)
            .finish_non_exhaustive()
    }
}

/// Encodes one PEM block.
#[must_use]
pub fn to_pem(tag: &str, body: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, body), config)
}

/// All certificates of a PEM text, in order; other blocks are skipped.
///
/// # Errors
/// [`PkiError::Missing`] when the text is not PEM or has no certificate.
pub fn certificates_from_pem(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let blocks = pem::parse_many(text).map_err(|_| PkiError::Missing("certificate"))?;
    let found: Vec<_> = blocks
        .into_iter()
        .filter(|block| block.tag() == "CERTIFICATE")
        .map(|block| CertificateDer::from(block.into_contents()))
        .collect();
    if found.is_empty() {
        Err(PkiError::Missing("certificate"))
    } else {
        Ok(found)
    }
}

/// Wraps a DER certificate; its content is only checked at verification.
#[must_use]
pub fn certificate_from_der(der: Vec<u8>) -> CertificateDer<'static> {
    CertificateDer::from(der)
}

/// The first private key of a PEM text.
///
/// # Errors
/// [`PkiError::Missing`] when the text has none.
pub fn private_key_from_pem(text: &[u8]) -> Result<PrivateKeyDer<'static>, PkiError> {
    let blocks = pem::parse_many(text).map_err(|_| PkiError::Missing("private key"))?;
    for block in blocks {
        match block.tag() {
            "ED25519 PRIVATE KEY" | "PRIVATE KEY" => {
                return Ok(PrivatePkcs8KeyDer::from(block.into_contents()).into());
            }
            "EC PRIVATE KEY" => return Ok(PrivateSec1KeyDer::from(block.into_contents()).into()),
            _ => {}
        }
    }
    Err(PkiError::Missing("private key"))
}

/// The signing key of a PEM text.
pub(crate) fn key_pair_from_pem(text: &[u8]) -> Result<KeyPair, PkiError> {
    let der = match private_key_from_pem(text)? {
        PrivateKeyDer::Pkcs8(der) => der,
        PrivateKeyDer::Sec1(der) => sec1_to_pkcs8(der.secret_sec1_der())?.into(),
        _ => return Err(PkiError::NotAKey),
    };
    KeyPair::try_from(&der).map_err(|_| PkiError::NotAKey)
}

/// Encodes a key pair as PEM.
pub(crate) fn key_to_pem(key: &KeyPair) -> Result<String, PkiError> {
    if key.algorithm() == &rcgen::PKCS_ED25519 {
        return Ok(to_pem("ED25519 PRIVATE KEY", key.serialized_der()));
    }
    Ok(to_pem(
        "EC PRIVATE KEY",
        &pkcs8_to_sec1(key.serialized_der())?,
    ))
}

// DER of the two encodings of a P-256 key. All parts have fixed lengths: a constant, the 32-byte scalar, another
// constant, and the 65-byte point (RFC 5915 section 3, RFC 5958 section 2).
const PKCS8_HEAD: &[u8] = &[
    0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02,
    0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02,
    0x01, 0x01, 0x04, 0x20,
];
const SEC1_HEAD: &[u8] = &[0x30, 0x77, 0x02, 0x01, 0x01, 0x04, 0x20];
/// `[0] { prime256v1 }`, in SEC 1 only: PKCS#8 names the curve outside of it.
const SEC1_CURVE: &[u8] = &[
    0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
];
/// `[1] { BIT STRING of 65 bytes }`.
const POINT_HEAD: &[u8] = &[0xa1, 0x44, 0x03, 0x42, 0x00];

fn pkcs8_to_sec1(der: &[u8]) -> Result<Vec<u8>, PkiError> {
    let rest = der.strip_prefix(PKCS8_HEAD).ok_or(PkiError::NotAKey)?;
    let (scalar, rest) = rest.split_at_checked(32).ok_or(PkiError::NotAKey)?;
    let point = rest.strip_prefix(POINT_HEAD).ok_or(PkiError::NotAKey)?;
    Ok([SEC1_HEAD, scalar, SEC1_CURVE, POINT_HEAD, point].concat())
}

fn sec1_to_pkcs8(der: &[u8]) -> Result<Vec<u8>, PkiError> {
    let rest = der.strip_prefix(SEC1_HEAD).ok_or(PkiError::NotAKey)?;
    let (scalar, rest) = rest.split_at_checked(32).ok_or(PkiError::NotAKey)?;
    let rest = rest.strip_prefix(SEC1_CURVE).ok_or(PkiError::NotAKey)?;
    let point = rest
        .strip_prefix(POINT_HEAD)
        .filter(|p| p.len() == 65)
        .ok_or(PkiError::NotAKey)?;
    Ok([PKCS8_HEAD, scalar, POINT_HEAD, point].concat())
}

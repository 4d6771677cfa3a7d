//! Keys and certificates as PEM text.
//!
//! An Ed25519 key is written as `ED25519 PRIVATE KEY` with a PKCS#8 body, the form of the client config. A P-256 key is
//! written as `EC PRIVATE KEY`. Keys are also read as `PRIVATE KEY` and `RSA PRIVATE KEY`; no RSA key is made.

use std::fmt;

use rcgen::KeyPair;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

use crate::{PkiError, encodings};

/// Sizes in bits of the RSA keys that the signing library takes.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

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
/// [`PkiError::Missing`] when the text has none, [`PkiError::Encrypted`] when it needs a passphrase.
pub fn private_key_from_pem(text: &[u8]) -> Result<PrivateKeyDer<'static>, PkiError> {
    let blocks = pem::parse_many(text).map_err(|_| PkiError::Missing("private key"))?;
    for block in blocks {
        // The encryption of the older encodings is a header of the block (RFC 1421, section 4.6.1.1).
        let header = block.headers().get("Proc-Type");
        if header.is_some_and(|kind| kind.ends_with("ENCRYPTED")) {
            return Err(PkiError::Encrypted);
        }
        match block.tag() {
            "ENCRYPTED PRIVATE KEY" => return Err(PkiError::Encrypted),
            "ED25519 PRIVATE KEY" | "PRIVATE KEY" => {
                return Ok(PrivatePkcs8KeyDer::from(block.into_contents()).into());
            }
            "RSA PRIVATE KEY" => return Ok(PrivatePkcs1KeyDer::from(block.into_contents()).into()),
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
        PrivateKeyDer::Pkcs1(der) => encodings::from_pkcs1(der.secret_pkcs1_der()).into(),
        PrivateKeyDer::Sec1(der) => encodings::from_sec1(der.secret_sec1_der())?.into(),
        _ => return Err(PkiError::NotAKey),
    };
    if let Some(bits) = encodings::rsa_bits(der.secret_pkcs8_der())
        && !RSA_BITS.contains(&bits)
    {
        return Err(PkiError::RsaSize(bits));
    }
    KeyPair::try_from(&der).map_err(|_| PkiError::NotAKey)
}

/// Checks that the text has a private key that can sign.
///
/// # Errors
/// As of [`private_key_from_pem`], or the key is damaged or of an unsupported type.
pub fn check_key(text: &[u8]) -> Result<(), PkiError> {
    key_pair_from_pem(text).map(drop)
}

/// Encodes a key pair as PEM.
pub(crate) fn key_to_pem(key: &KeyPair) -> Result<String, PkiError> {
    if key.algorithm() == &rcgen::PKCS_ED25519 {
        return Ok(to_pem("ED25519 PRIVATE KEY", key.serialized_der()));
    }
    Ok(to_pem(
        "EC PRIVATE KEY",
        &encodings::to_sec1(key.serialized_der())?,
    ))
}

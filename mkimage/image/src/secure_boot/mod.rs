//! Secure Boot: signs programs ([`authenticode`]), and writes updates that enrol our keys in firmware ([`enrolment`]).
//!
//! The same key gives the same bytes: RSA signatures of PKCS #1 v1.5 have no randomness, and the signatures no date.

pub mod authenticode;
pub mod enrolment;
mod pkcs7;

use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use corten_steps::error::{Remedy as _, Result};
use ring::rand::SystemRandom;
use ring::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;

use crate::checksums;
use enrolment::Variable;

/// A private key with its certificate.
///
/// UEFI Specification 2.10, chapter 32.
#[derive(Debug)]
pub struct Signer {
    key: RsaKeyPair,
    /// The certificate, DER.
    certificate: Vec<u8>,
    /// Its issuer, DER.
    issuer: Vec<u8>,
    /// Its serial number, big-endian.
    serial: Vec<u8>,
    /// Begin of its validity, in seconds since 1970.
    since: u64,
}

impl Signer {
    /// The key and the certificate of `variable` in the key set `dir` (PEM: PKCS #8, X.509).
    ///
    /// # Errors
    /// A file is missing or invalid, or the certificate belongs to another key.
    pub fn read(dir: &Path, variable: &Variable) -> Result<Self> {
        let part = |name: String, tag| pem(&read(dir, &name)?, tag).context(name);
        let key = part(variable.key(), "PRIVATE KEY")?;
        let certificate = part(variable.certificate(), "CERTIFICATE")?;
        Self::new(&key, certificate).or_fail(
            format!("{} in {} cannot sign", variable.name, dir.display()),
            "give an RSA key of 2048 bits or more and the certificate of that key, as made by `mkimage keys`",
        )
    }

    fn new(key: &[u8], certificate: Vec<u8>) -> Result<Self> {
        let key = RsaKeyPair::from_pkcs8(key).map_err(|error| anyhow!("the key: {error}"))?;
        let (issuer, serial, since) = {
            let (_, parsed) = X509Certificate::from_der(&certificate).context("the certificate")?;
            let public = &parsed.public_key().subject_public_key.data;
            ensure!(
                key.public_key().as_ref() == public.as_ref(),
                "the certificate belongs to another key"
            );
            let since = u64::try_from(parsed.validity().not_before.timestamp());
            let since = since.context("the certificate is dated before 1970")?;
            let (issuer, serial) = (parsed.issuer().as_raw(), parsed.raw_serial());
            (issuer.to_vec(), serial.to_vec(), since)
        };
        Ok(Self {
            key,
            certificate,
            issuer,
            serial,
            since,
        })
    }

    /// Digest by which a node identifies the key: SHA-256 of the public key (RFC 8017, `RSAPublicKey` in DER),
    /// hexadecimal.
    pub fn digest(&self) -> String {
        checksums::of_bytes(self.key.public_key().as_ref())
    }

    /// The signature of `message`: RSA, PKCS #1 v1.5, SHA-256.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let mut signature = vec![0; self.key.public().modulus_len()];
        // The random numbers only blind the computation against timing attacks.
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                message,
                &mut signature,
            )
            .map_err(|_| anyhow!("signing with RSA failed"))?;
        Ok(signature)
    }
}

/// Digest by which a node identifies the key of a certificate (PEM), as [`Signer::digest`].
///
/// # Errors
/// The file cannot be read, or is not a certificate with an RSA key.
pub fn digest_of_certificate(path: &Path) -> Result<String> {
    let digest = || {
        let certificate = pem(&std::fs::read(path)?, "CERTIFICATE")?;
        let (_, parsed) = X509Certificate::from_der(&certificate).context("the certificate")?;
        let key = parsed.public_key();
        ensure!(
            matches!(key.parsed(), Ok(PublicKey::RSA(_))),
            "the key of the certificate is not an RSA key"
        );
        Ok(checksums::of_bytes(&key.subject_public_key.data))
    };
    digest().or_fail(
        format!("{} names no key to accept", path.display()),
        "give the file db.crt of a key set made by `mkimage keys`",
    )
}

/// Reads a file of the key set `dir`.
///
/// # Errors
/// The file cannot be read: no build is unsigned.
pub fn read(dir: &Path, name: &str) -> Result<Vec<u8>> {
    let path = dir.join(name);
    std::fs::read(&path).or_fail(
        format!("reading the Secure Boot key {}", path.display()),
        "make a key set with `mkimage keys`; an older key set needs the PK, KEK and db files of a new one",
    )
}

/// The content of the first block called `tag`.
///
/// # Errors
/// The text is not PEM, or has no such block.
pub fn pem(text: &[u8], tag: &str) -> Result<Vec<u8>> {
    let blocks = pem::parse_many(text).context("this is not PEM")?;
    let found = blocks.into_iter().find(|block| block.tag() == tag);
    found
        .map(pem::Pem::into_contents)
        .ok_or_else(|| anyhow!("there is no {tag} in it"))
}

#[cfg(test)]
pub(crate) mod tests {
    use corten_steps::error::Failure;

    use super::*;
    use crate::testing::{Scratch, development, host, text};

    /// Whether openssl verifies `signature` (PKCS #7, DER) of `content` with the certificate of
    /// `variable`.
    pub(crate) fn openssl_agrees(signature: &[u8], content: &[u8], variable: &Variable) -> bool {
        let scratch = Scratch::new();
        let (signature, content) = (
            scratch.file("signature", signature),
            scratch.file("content", content),
        );
        let certificate = development().join(variable.certificate());
        let call = ["smime", "-verify", "-binary", "-inform", "DER", "-nointern"];
        let verified = corten_steps::tool::Tool::new("openssl")
            .args(call)
            .args(["-in", text(&signature), "-content", text(&content)])
            // `-nointern` takes the signer's certificate from this file, not from the signature.
            .args(["-certfile", text(&certificate), "-noverify"])
            .output();
        verified.is_ok()
    }

    #[test]
    fn certificate_names_the_key_that_its_signer_has() {
        let keys = development();
        let of = |name: &str| digest_of_certificate(&keys.join(name));
        let signer = Signer::read(&keys, &enrolment::DB).unwrap();
        assert_eq!(of("db.crt").unwrap(), signer.digest());
        let error = of("db.key").unwrap_err();
        assert!(format!("{error:#}").contains("CERTIFICATE"), "{error:#}");
    }

    #[test]
    fn a_key_set_without_secure_boot_keys_is_refused() {
        let scratch = Scratch::new();
        let dir = scratch
            .file("keys/db.key", b"")
            .parent()
            .unwrap()
            .to_owned();
        let error = Signer::read(&dir, &enrolment::PK).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert!(failure.remedy().contains("mkimage keys"), "{error:#}");
        let error = Signer::read(&dir, &enrolment::DB).unwrap_err();
        assert!(format!("{error:#}").contains("no PRIVATE KEY"), "{error:#}");
    }

    #[test]
    fn the_certificate_of_another_key_is_refused() {
        let scratch = Scratch::new();
        let file = |name: &str| std::fs::read(development().join(name)).unwrap();
        scratch.file("db.key", &file("db.key"));
        let wrong = scratch.file("db.crt", &file("PK.crt"));
        let error = Signer::read(wrong.parent().unwrap(), &enrolment::DB).unwrap_err();
        assert!(
            format!("{error:#}").contains("belongs to another key"),
            "{error:#}"
        );
    }

    #[test]
    fn the_development_certificates_are_valid_for_long() {
        for variable in &enrolment::ALL {
            let certificate = development().join(variable.certificate());
            let years = (50_u64 * 365 * 86_400).to_string();
            let call = ["x509", "-noout", "-checkend", &years, "-in"];
            host("openssl", &[&call[..], &[text(&certificate)]].concat());
        }
    }
}

//! Requests for client certificates; the private key stays with its owner.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, ExtendedKeyUsagePurpose,
    KeyPair,
};
use rustls_pki_types::CertificateSigningRequestDer;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use crate::keys::{key_pair_from_pem, key_to_pem, to_pem};
use crate::{Algorithm, Ca, PkiError, name};

/// The PEM type of a request (RFC 7468, section 7).
const TAG: &str = "CERTIFICATE REQUEST";
/// The PEM type of a request in some other programs.
const OLD_TAG: &str = "NEW CERTIFICATE REQUEST";

/// Generates a private key as PEM.
///
/// # Errors
/// The system's random source fails.
pub fn new_key(algorithm: Algorithm) -> Result<String, PkiError> {
    key_to_pem(&algorithm.key()?)
}

/// Creates a request (PEM) of the key in `key` for these roles and names.
///
/// # Errors
/// The text has no usable key, a name is invalid, or there are more than two roles.
pub fn request(key: &str, roles: &[&str], names: &[String]) -> Result<String, PkiError> {
    let key = key_pair_from_pem(key.as_bytes())?;
    csr(&key, name::subject(roles, "")?, names)
}

/// A request (PKCS#10, RFC 2986), PEM.
pub(crate) fn csr(
    key: &KeyPair,
    subject: DistinguishedName,
    names: &[String],
) -> Result<String, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.subject_alt_names = name::alternatives(names)?;
    let request = params.serialize_request(key).map_err(PkiError::Signing)?;
    Ok(to_pem(TAG, request.der()))
}

/// The first request of a PEM text: its DER and its content. The signature is verified.
pub(crate) fn read(text: &[u8]) -> Result<(Vec<u8>, CertificateSigningRequestParams), PkiError> {
    let missing = || PkiError::Missing("certificate request");
    let blocks = pem::parse_many(text).map_err(|_| missing())?;
    let block = blocks
        .into_iter()
        .find(|block| matches!(block.tag(), TAG | OLD_TAG));
    let der = block.ok_or_else(missing)?.into_contents();
    let read =
        CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(&*der));
    let read = read.map_err(|error| match error {
        rcgen::Error::InvalidCertificationRequestSignature => {
            PkiError::BadRequest("is not signed by its own key")
        }
        rcgen::Error::UnsupportedExtension => {
            PkiError::BadRequest("asks for an extension that is never granted")
        }
        rcgen::Error::UnsupportedSignatureAlgorithm => PkiError::BadRequest(KEYS),
        _ => PkiError::BadRequest("cannot be read"),
    })?;
    Ok((der, read))
}

/// The refusal of an unsupported key.
pub(crate) const KEYS: &str = "has a key that is neither Ed25519 nor ECDSA on P-256";

impl Ca {
    /// Issues the requested client certificate (PEM). It has the key, roles (organizations) and names of the request,
    /// and always exactly `clientAuth`. The requester has proved possession of the key; the caller must verify its
    /// identity.
    ///
    /// # Errors
    /// [`PkiError::Missing`] for a text without a request, [`PkiError::BadRequest`] for one that must not be signed,
    /// [`PkiError::TooManyRoles`] for more than two organizations.
    pub fn sign(
        &self,
        request: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, PkiError> {
        let (der, asked) = read(request.as_bytes())?;
        // Parsed a second time, because rcgen keeps only one organization.
        let unreadable = || PkiError::BadRequest("cannot be read");
        let (_, parsed) = X509CertificationRequest::from_der(&der).map_err(|_| unreadable())?;
        let organizations = parsed
            .certification_request_info
            .subject
            .iter_organization();
        let roles: Vec<&str> = organizations
            .map(|name| name.as_str().map_err(|_| unreadable()))
            .collect::<Result<_, _>>()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name::subject(&roles, "")?;
        params.subject_alt_names = asked.params.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_leaf(params, &asked.public_key, now, lifetime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NODE_LIFETIME, certificates_from_pem, verify_client};

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn signing_request_becomes_a_client_certificate_for_its_key() {
        let ca = Ca::generate(Algorithm::Ed25519, "o", "", now()).unwrap();
        for algorithm in [Algorithm::Ed25519, Algorithm::EcdsaP256] {
            let key = new_key(algorithm).unwrap();
            let roles = ["os:reader", "os:etcd:backup"];
            let asked = request(&key, &roles, &["10.0.0.1".to_owned()]).unwrap();
            let crt = ca.sign(&asked, now(), NODE_LIFETIME).unwrap();
            let chain = certificates_from_pem(crt.as_bytes()).unwrap();
            let anchors = certificates_from_pem(ca.pem().crt.as_bytes()).unwrap();
            assert_eq!(verify_client(&chain, &anchors, now()).unwrap(), roles);
            let pair = key_pair_from_pem(key.as_bytes()).unwrap();
            let own = crate::inspect::public_key(chain.first().unwrap()).unwrap();
            assert_eq!(own, pair.public_key_raw());
            // Two certificates of one key get different serial numbers, so logs and revocations can tell them apart.
            let again = ca.sign(&asked, now(), NODE_LIFETIME).unwrap();
            let again = certificates_from_pem(again.as_bytes()).unwrap();
            let [first, second] = [&chain, &again].map(|chain| crate::serial(&chain[0]).unwrap());
            assert_ne!(first, second);
        }
    }

    #[test]
    fn malformed_signing_requests_are_refused() {
        let ca = Ca::generate(Algorithm::Ed25519, "o", "", now()).unwrap();
        let key = new_key(Algorithm::Ed25519).unwrap();
        let good = request(&key, &["os:admin"], &[]).unwrap();
        let mut der = pem::parse(&good).unwrap().into_contents();
        // The last byte belongs to the signature.
        *der.last_mut().unwrap() ^= 1;
        for text in [
            "",
            "hello",
            &ca.pem().crt,
            &to_pem(TAG, &der),
            &to_pem(TAG, &[0x30, 0x80]),
        ] {
            let refusal = ca.sign(text, now(), NODE_LIFETIME);
            assert!(
                matches!(refusal, Err(PkiError::Missing(_) | PkiError::BadRequest(_))),
                "{refusal:?}"
            );
        }
        let refusal = request("no key", &[], &[]);
        assert!(matches!(refusal, Err(PkiError::Missing(_))), "{refusal:?}");
    }
}

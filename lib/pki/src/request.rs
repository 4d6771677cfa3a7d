//! Certificate requests: a key's owner asks for a client certificate and keeps
//! the key to themselves.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose,
};
use rustls_pki_types::CertificateSigningRequestDer;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use crate::ca::set_validity;
use crate::inspect::is_authority;
use crate::keys::{key_pair_from_pem, key_to_pem, to_pem};
use crate::{Algorithm, Ca, PkiError, certificates_from_pem, name};

/// The PEM type of a request.
const TAG: &str = "CERTIFICATE REQUEST";

/// A new private key, PEM.
///
/// # Errors
/// When the system's random source fails.
pub fn new_key(algorithm: Algorithm) -> Result<String, PkiError> {
    key_to_pem(&algorithm.key()?)
}

/// A request, PEM, for the key in `key`: its owner wants these roles, and the
/// names in the certificate.
///
/// # Errors
/// For a text without a usable key, a name that is none, or more than two roles.
pub fn request(key: &str, roles: &[&str], names: &[String]) -> Result<String, PkiError> {
    let key = key_pair_from_pem(key.as_bytes())?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name::subject(roles, "")?;
    params.subject_alt_names = name::alternatives(names)?;
    let request = params.serialize_request(&key).map_err(PkiError::Signing)?;
    Ok(to_pem(TAG, request.der()))
}

impl Ca {
    /// The certificate, PEM, a request asks for: its key, its organizations as
    /// roles and its names; `clientAuth` only, whatever else it asks for. The
    /// requester has shown to hold the key; who they are is for the caller to know.
    ///
    /// # Errors
    /// [`PkiError::NotARequest`] for a text that is none or is not signed by its
    /// own key, [`PkiError::TooManyRoles`] for more than two organizations,
    /// [`PkiError::NotAnAuthority`] when this one's own certificate is a leaf's.
    pub fn sign(
        &self,
        request: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, PkiError> {
        let own = certificates_from_pem(self.pem().crt.as_bytes())?;
        let own = own.first().ok_or(PkiError::Missing("certificate"))?;
        if !is_authority(own)? {
            return Err(PkiError::NotAnAuthority);
        }
        let blocks = pem::parse_many(request).map_err(|_| PkiError::NotARequest)?;
        let block = blocks.into_iter().find(|block| block.tag() == TAG);
        let der = block.ok_or(PkiError::NotARequest)?.into_contents();
        let (_, parsed) =
            X509CertificationRequest::from_der(&der).map_err(|_| PkiError::NotARequest)?;
        let subject = &parsed.certification_request_info.subject;
        let organizations = subject.iter_organization();
        let roles: Vec<&str> = organizations
            .map(|name| name.as_str().map_err(|_| PkiError::NotARequest))
            .collect::<Result<_, _>>()?;
        let subject = name::subject(&roles, "")?;
        // Checks the signature.
        let asked = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(
            der.as_slice(),
        ))
        .map_err(|_| PkiError::NotARequest)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject;
        params.subject_alt_names = asked.params.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, lifetime)?;
        let certificate = params
            .signed_by(&asked.public_key, self.issuer())
            .map_err(PkiError::Signing)?;
        Ok(to_pem("CERTIFICATE", certificate.der()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NODE_LIFETIME, verify_client};

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    #[test]
    fn a_request_becomes_a_client_certificate_of_its_key() {
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
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let ca = Ca::generate(Algorithm::Ed25519, "o", "", now()).unwrap();
        let key = new_key(Algorithm::Ed25519).unwrap();
        let good = request(&key, &["os:admin"], &[]).unwrap();
        let mut der = pem::parse(&good).unwrap().into_contents();
        // The last byte is the signature's.
        *der.last_mut().unwrap() ^= 1;
        for text in [
            "",
            "hello",
            &ca.pem().crt,
            &to_pem(TAG, &der),
            &to_pem(TAG, &[0x30, 0x80]),
        ] {
            let refusal = ca.sign(text, now(), NODE_LIFETIME);
            assert!(matches!(refusal, Err(PkiError::NotARequest)), "{refusal:?}");
        }
        let leaf = ca.client(&["os:admin"], now(), NODE_LIFETIME).unwrap();
        let leaf = Ca::from_pem(&leaf.crt, &leaf.key).unwrap();
        let refusal = leaf.sign(&good, now(), NODE_LIFETIME);
        assert!(
            matches!(refusal, Err(PkiError::NotAnAuthority)),
            "{refusal:?}"
        );
        let refusal = request("no key", &[], &[]);
        assert!(matches!(refusal, Err(PkiError::Missing(_))), "{refusal:?}");
    }
}

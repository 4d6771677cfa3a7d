//! Accepted and refused requests. rcgen makes the requests that a node would never make.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, SignatureAlgorithm,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{
    Algorithm, Ca, CertificateAndKey, MAX_NAMES, NODE_LIFETIME, PkiError, ServerRequest,
    certificates_from_pem, has_exactly_client_auth, organizations, server_request, to_pem,
    verify_client, verify_issued,
};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn ca() -> Ca {
    Ca::generate(Algorithm::Ed25519, "talos", "", now()).unwrap()
}

/// A request from another program.
fn foreign(
    algorithm: &'static SignatureAlgorithm,
    change: impl Fn(&mut CertificateParams),
) -> String {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::new(["node".to_owned()]).unwrap();
    change(&mut params);
    let request = params.serialize_request(&key).unwrap();
    to_pem("CERTIFICATE REQUEST", request.der())
}

fn refusal(text: &str) -> String {
    ServerRequest::from_pem(text.as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn signing_request_becomes_a_server_certificate_for_its_key() {
    let ca = ca();
    let names = [
        "10.0.0.7".to_owned(),
        "fd00::7".to_owned(),
        "worker-1".to_owned(),
    ];
    let (csr, key) = server_request("worker-1", &names).unwrap();
    let asked = ServerRequest::from_pem(csr.as_bytes()).unwrap();
    assert_eq!(asked.common_name, "worker-1");
    assert_eq!(asked.names, names);
    let crt = ca
        .sign_server(&asked, &asked.names, now(), NODE_LIFETIME)
        .unwrap();
    let anchors = certificates_from_pem(ca.pem().crt.as_bytes()).unwrap();
    let issued = CertificateAndKey { crt, key };
    verify_issued(&issued, &anchors, now()).unwrap();
    let leaf = &certificates_from_pem(issued.crt.as_bytes()).unwrap()[0];
    assert_eq!(crate::names(leaf).unwrap(), names);

    let other = CertificateAndKey {
        key: server_request("worker-1", &names).unwrap().1,
        crt: issued.crt.clone(),
    };
    assert!(matches!(
        verify_issued(&other, &anchors, now()),
        Err(PkiError::KeyMismatch)
    ));
    let stranger =
        certificates_from_pem(super::server_request_tests::ca().pem().crt.as_bytes()).unwrap();
    let late = now() + NODE_LIFETIME + Duration::from_secs(1);
    for (anchors, at) in [(&stranger, now()), (&anchors, late)] {
        assert!(matches!(
            verify_issued(&issued, anchors, at),
            Err(PkiError::Rejected(_))
        ));
    }
    // Two certificates of one key get different serial numbers.
    let again = ca
        .sign_server(&asked, &asked.names, now(), NODE_LIFETIME)
        .unwrap();
    assert_ne!(issued.crt, again);
}

#[test]
fn signed_certificate_is_for_server_authentication_only() {
    let ca = ca();
    let csr = foreign(&rcgen::PKCS_ECDSA_P256_SHA256, |params| {
        params
            .distinguished_name
            .push(DnType::OrganizationName, "os:admin");
        params
            .distinguished_name
            .push(DnType::CommonName, "worker-1");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
    });
    let asked = ServerRequest::from_pem(csr.as_bytes()).unwrap();
    let crt = ca
        .sign_server(&asked, &asked.names, now(), NODE_LIFETIME)
        .unwrap();
    let chain = certificates_from_pem(crt.as_bytes()).unwrap();
    assert!(organizations(&chain[0]).unwrap().is_empty());
    assert!(!has_exactly_client_auth(&chain[0]).unwrap());
    let anchors = certificates_from_pem(ca.pem().crt.as_bytes()).unwrap();
    verify_client(&chain, &anchors, now()).unwrap_err();
    let (_, parsed) = X509Certificate::from_der(&chain[0]).unwrap();
    assert!(!parsed.is_ca());
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.any);
}

#[test]
fn forbidden_signing_requests_are_refused() {
    let ed = &rcgen::PKCS_ED25519;
    let cases = [
        (
            foreign(ed, |params| {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }),
            "asks for a CA certificate",
        ),
        (
            foreign(&rcgen::PKCS_ECDSA_P384_SHA384, |_| {}),
            "neither Ed25519 nor ECDSA on P-256",
        ),
        (
            foreign(ed, |params| params.subject_alt_names.clear()),
            "names neither",
        ),
        (
            foreign(ed, |params| {
                params.subject_alt_names = (0..=MAX_NAMES)
                    .map(|n| SanType::DnsName(format!("n{n}").try_into().unwrap()))
                    .collect();
            }),
            "too many names",
        ),
        (
            foreign(ed, |params| {
                params
                    .subject_alt_names
                    .push(SanType::DnsName("*.example.com".try_into().unwrap()));
            }),
            "wildcard",
        ),
        (
            foreign(ed, |params| {
                params
                    .subject_alt_names
                    .push(SanType::URI("urn:corten:control-plane".try_into().unwrap()));
            }),
            "neither an address nor a DNS name",
        ),
        (
            foreign(ed, |params| {
                params.custom_extensions = vec![CustomExtension::from_oid_content(
                    &[1, 3, 6, 1, 4, 1, 1],
                    vec![5, 0],
                )];
            }),
            "never granted",
        ),
    ];
    for (csr, expected) in cases {
        let why = refusal(&csr);
        assert!(why.contains(expected), "{why:?} does not say {expected:?}");
    }
}

#[test]
fn invalid_common_name_is_left_out() {
    for name in ["a\nb".to_owned(), "a".repeat(65)] {
        let csr = foreign(&rcgen::PKCS_ED25519, |params| {
            params
                .distinguished_name
                .push(DnType::CommonName, name.as_str());
        });
        assert_eq!(
            ServerRequest::from_pem(csr.as_bytes()).unwrap().common_name,
            ""
        );
    }
}

#[test]
fn signing_request_with_a_foreign_signature_is_refused() {
    let (csr, _) = server_request("worker-1", &["worker-1".to_owned()]).unwrap();
    let whole = ServerRequest::from_pem(csr.as_bytes()).unwrap();
    let mut der = pem::parse(&csr).unwrap().into_contents();
    let last = der.len() - 1;
    der[last] ^= 1;
    assert!(refusal(&to_pem("CERTIFICATE REQUEST", &der)).contains("not signed by its own key"));
    der[last] ^= 1;
    // Every truncated request is an error. A request with a changed byte is one too, or its signed content is
    // unchanged.
    for length in 0..der.len() {
        refusal(&to_pem("CERTIFICATE REQUEST", &der[..length]));
    }
    for at in 0..der.len() {
        let mut broken = der.clone();
        broken[at] ^= 0x55;
        let read = ServerRequest::from_pem(to_pem("CERTIFICATE REQUEST", &broken).as_bytes());
        if let Ok(read) = read {
            assert_eq!(read.inner, whole.inner, "byte {at}");
        }
    }
}

#[test]
fn garbage_is_refused() {
    let certificate = ca().pem().crt.clone();
    for text in [
        "",
        "x",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n",
        certificate.as_str(),
    ] {
        assert!(refusal(text).contains("certificate request"), "{text:?}");
    }
}

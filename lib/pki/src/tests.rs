//! Allowed and refused uses of the certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    Algorithm, Ca, NODE_LIFETIME, PkiError, certificates_from_pem, fingerprint, is_control_planes,
    is_for, maintenance, organizations, private_key_from_pem, serial, validity, verify_client,
};
use rustls_pki_types::CertificateDer;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn ca() -> Ca {
    Ca::generate(Algorithm::Ed25519, "talos", "", now()).unwrap()
}

fn der(pem: &str) -> Vec<CertificateDer<'static>> {
    certificates_from_pem(pem.as_bytes()).unwrap()
}

#[test]
fn a_client_certificate_carries_its_roles() {
    let ca = ca();
    let roles = ["os:reader", "os:etcd:backup"];
    let client = ca.client(&roles, now(), NODE_LIFETIME).unwrap();
    let found = verify_client(&der(&client.crt), &der(&ca.pem().crt), now()).unwrap();
    assert_eq!(found, roles);
    assert!(matches!(
        ca.client(&["a", "b", "c"], now(), NODE_LIFETIME),
        Err(PkiError::TooManyRoles(2))
    ));
}

#[test]
fn foreign_server_and_expired_certificates_are_refused_for_clients() {
    let ca = ca();
    let anchors = der(&ca.pem().crt);
    let stranger = super::tests::ca()
        .client(&["os:admin"], now(), NODE_LIFETIME)
        .unwrap();
    let server = ca
        .server("node", &["10.0.2.15".into()], now(), NODE_LIFETIME)
        .unwrap();
    let client = ca.client(&["os:admin"], now(), NODE_LIFETIME).unwrap();
    let later = now() + NODE_LIFETIME + Duration::from_secs(1);
    let earlier = now() - Duration::from_secs(2 * 60 * 60);
    for (chain, at) in [
        (&stranger.crt, now()),
        (&server.crt, now()),
        (&client.crt, later),
        (&client.crt, earlier),
    ] {
        let verdict = verify_client(&der(chain), &anchors, at);
        assert!(matches!(verdict, Err(PkiError::Rejected(_))), "{verdict:?}");
    }
    assert!(matches!(
        verify_client(&[], &anchors, now()),
        Err(PkiError::Rejected(_))
    ));
    // A peer with a clock half an hour behind accepts it.
    let behind = now() - Duration::from_secs(30 * 60);
    verify_client(&der(&client.crt), &anchors, behind).unwrap();
}

#[test]
fn ca_read_back_from_pem_signs() {
    for algorithm in [Algorithm::Ed25519, Algorithm::EcdsaP256] {
        let first = Ca::generate(algorithm, "talos", "", now()).unwrap();
        let again = Ca::from_pem(&first.pem().crt, &first.pem().key).unwrap();
        let client = again.client(&["os:admin"], now(), NODE_LIFETIME).unwrap();
        verify_client(&der(&client.crt), &der(&first.pem().crt), now()).unwrap();
    }
    let (one, two) = (ca(), ca());
    assert!(matches!(
        Ca::from_pem(&one.pem().crt, &two.pem().key),
        Err(PkiError::KeyMismatch)
    ));
    // The certificate and key of a leaf match too, but it is no CA.
    let leaf = one.client(&["os:admin"], now(), NODE_LIFETIME).unwrap();
    assert!(matches!(
        Ca::from_pem(&leaf.crt, &leaf.key),
        Err(PkiError::NotACa)
    ));
}

#[test]
fn keys_have_the_pem_types_clients_expect_and_never_show_in_debug() {
    let ca = ca();
    assert!(
        ca.pem()
            .key
            .starts_with("-----BEGIN ED25519 PRIVATE KEY-----\n")
    );
    let etcd = Ca::generate(Algorithm::EcdsaP256, "etcd", "", now()).unwrap();
    assert!(
        etcd.pem()
            .key
            .starts_with("-----BEGIN EC PRIVATE KEY-----\n")
    );
    for ca in [&ca, &etcd] {
        private_key_from_pem(ca.pem().key.as_bytes()).unwrap();
        assert!(!format!("{ca:?} {:?}", ca.pem()).contains("PRIVATE"));
    }
}

#[test]
fn bad_names_and_bad_text_are_errors() {
    let ca = ca();
    for name in ["", "a b", "node/1", "ä.example"] {
        let made = ca.server("node", &[name.to_owned()], now(), NODE_LIFETIME);
        assert!(matches!(made, Err(PkiError::BadName(_))), "{name:?}");
    }
    for text in [
        "",
        "x",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        Ca::from_pem(text, text).unwrap_err();
        private_key_from_pem(text.as_bytes()).unwrap_err();
    }
    organizations(&[0x30, 0x03, 0x02, 0x01, 0x00]).unwrap_err();
}

#[test]
fn a_maintenance_certificate_has_a_fingerprint_and_lasts_a_day() {
    let made = maintenance(&["10.0.2.15".into(), "fe80::1".into()], now()).unwrap();
    let certificate = &der(&made.crt)[0];
    assert_eq!(fingerprint(certificate).unwrap().len(), 44);
    let (from, until) = validity(certificate).unwrap();
    assert!(from < now());
    assert_eq!(until, now() + NODE_LIFETIME);
    // A clock at the epoch still gives a certificate.
    maintenance(&[], UNIX_EPOCH).unwrap();
}

#[test]
fn server_certificate_has_its_names_and_a_unique_serial() {
    let names = ["10.0.2.15".into(), "fd00::5".into(), "node1".into()];
    let ca = ca();
    let one = der(&ca
        .server("node1", &names, now(), NODE_LIFETIME)
        .unwrap()
        .crt);
    let two = der(&ca
        .server("node1", &names, now(), NODE_LIFETIME)
        .unwrap()
        .crt);
    for name in ["10.0.2.15", "fd00::5", "fd00:0::5", "node1", "NODE1"] {
        assert!(is_for(&one[0], name).unwrap(), "{name}");
    }
    for name in ["10.0.2.16", "node2", "", "[fd00::5]", "node1:50000"] {
        assert!(!is_for(&one[0], name).unwrap(), "{name}");
    }
    let [first, second] = [&one, &two].map(|chain| serial(&chain[0]).unwrap());
    assert_ne!(first, second);
    assert!(first.len() % 2 == 0 && first.chars().all(|c| c.is_ascii_hexdigit()));
    serial(b"nothing").unwrap_err();
}

#[test]
fn only_control_plane_certificates_carry_the_mark() {
    let ca = ca();
    let names = ["10.0.2.15".into(), "cp-1".into()];
    let marked = |pem: &str| is_control_planes(&der(pem)[0]).unwrap();
    let server = ca
        .control_plane_server("cp-1", &names, now(), NODE_LIFETIME)
        .unwrap();
    assert!(marked(&server.crt));
    assert_eq!(crate::names(&der(&server.crt)[0]).unwrap(), names);
    assert!(is_for(&der(&server.crt)[0], "10.0.2.15").unwrap());
    let client = ca
        .control_plane_client("os:impersonator", now(), NODE_LIFETIME)
        .unwrap();
    assert!(marked(&client.crt));
    let roles = verify_client(&der(&client.crt), &der(&ca.pem().crt), now()).unwrap();
    assert_eq!(roles, ["os:impersonator"]);
    let server = ca.server("cp-1", &names, now(), NODE_LIFETIME).unwrap();
    let client = ca.client(&["os:admin"], now(), NODE_LIFETIME).unwrap();
    for pem in [&server.crt, &client.crt, &ca.pem().crt] {
        assert!(!marked(pem));
    }
    // A request with the mark is refused; the mark would be dropped in any case.
    let named = ["urn:corten:control-plane".to_owned()];
    crate::server_request("cp-1", &named).unwrap_err();
    is_control_planes(b"nothing").unwrap_err();
}

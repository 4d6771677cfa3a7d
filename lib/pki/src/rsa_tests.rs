//! CAs that other programs made: RSA and P-384, as openssl writes them (`tests/corpus/pki`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_corpus::{hostile_text, sample};
use proptest::prelude::*;

use crate::{
    Algorithm, Ca, CertificateAndKey, Leaf, NODE_LIFETIME, PkiError, ServerRequest, Usage,
    certificates_from_pem, check_key, new_key, request, server_request, to_pem, verify_client,
    verify_issued,
};

/// The RSA key in both encodings, and the P-384 key, each with its certificate.
const CAS: [(&str, &str); 3] = [
    ("rsa.crt", "rsa.key"),
    ("rsa.crt", "rsa-pkcs8.key"),
    ("p384.crt", "p384.key"),
];

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn text(name: &str) -> String {
    String::from_utf8(sample("pki", name)).unwrap()
}

fn read(crt: &str, key: &str) -> Ca {
    Ca::from_pem(&text(crt), &text(key)).unwrap()
}

/// The key of `name` with other bytes in a block of another type.
fn altered(name: &str, tag: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> String {
    let block = pem::parse(text(name)).unwrap();
    to_pem(tag, &change(block.into_contents()))
}

fn refusal(crt: &str, key: &str) -> PkiError {
    Ca::from_pem(&text(crt), key).unwrap_err()
}

#[test]
fn ca_of_another_program_signs_for_the_api_kubernetes_and_etcd() {
    for (crt, key) in CAS {
        let ca = read(crt, key);
        let anchors = certificates_from_pem(text(crt).as_bytes()).unwrap();
        let chain = |crt: &str| certificates_from_pem(crt.as_bytes()).unwrap();
        let names = ["10.0.0.1".to_owned(), "localhost".to_owned()];

        let client = ca.client(&["os:admin"], now(), NODE_LIFETIME).unwrap();
        let roles = verify_client(&chain(&client.crt), &anchors, now()).unwrap();
        assert_eq!(roles, ["os:admin"], "{key}");
        let server = ca.server("node", &names, now(), NODE_LIFETIME).unwrap();
        verify_issued(&server, &anchors, now()).unwrap();
        let leaf = Leaf {
            common_name: "etcd",
            organizations: &["system:masters"],
            names: &names,
            usage: Usage::Both,
        };
        let leaf = ca.leaf(&leaf, now(), NODE_LIFETIME).unwrap();
        verify_issued(&leaf, &anchors, now()).unwrap();

        // Requests: of a worker to trustd, and of an operator.
        let (asked, key) = server_request("worker", &names).unwrap();
        let asked = ServerRequest::from_pem(asked.as_bytes()).unwrap();
        let crt = ca
            .sign_server(&asked, &names, now(), NODE_LIFETIME)
            .unwrap();
        verify_issued(&CertificateAndKey { crt, key }, &anchors, now()).unwrap();
        let asked = request(&new_key(Algorithm::Ed25519).unwrap(), &["os:reader"], &[]).unwrap();
        let crt = ca.sign(&asked, now(), NODE_LIFETIME).unwrap();
        verify_client(&chain(&crt), &anchors, now()).unwrap();
    }
}

#[test]
fn text_of_a_foreign_key_stays_as_it_was_given() {
    for (crt, key) in CAS {
        let ca = read(crt, key);
        assert_eq!((&ca.pem().crt, &ca.pem().key), (&text(crt), &text(key)));
        assert!(!format!("{ca:?}").contains("PRIVATE"));
    }
}

#[test]
fn key_of_another_certificate_is_refused_for_every_algorithm() {
    for (crt, key) in [("p384.crt", "rsa.key"), ("rsa.crt", "p384.key")] {
        let error = refusal(crt, &text(key));
        assert!(matches!(error, PkiError::KeyMismatch), "{error}");
    }
    let own = Ca::generate(Algorithm::EcdsaP256, "kubernetes", "", now()).unwrap();
    let error = refusal("rsa.crt", &own.pem().key);
    assert!(matches!(error, PkiError::KeyMismatch), "{error}");
}

#[test]
fn hostile_short_rsa_key_is_refused_with_its_size_and_the_remedy() {
    let error = refusal("rsa-512.crt", &text("rsa-512.key"));
    assert!(matches!(error, PkiError::RsaSize(512)), "{error}");
    assert_eq!(
        error.to_string(),
        "the RSA key has 512 bits: use one of 2048 to 4096 bits"
    );
    check_key(text("rsa-512.key").as_bytes()).unwrap_err();
    check_key(text("rsa.key").as_bytes()).unwrap();
}

#[test]
fn hostile_truncated_keys_and_keys_under_another_name_are_refused() {
    let cut = |left: usize| move |der: Vec<u8>| der.into_iter().take(left).collect::<Vec<_>>();
    let mut wrong = vec![
        altered("rsa.key", "PRIVATE KEY", |der| der),
        altered("rsa.key", "EC PRIVATE KEY", |der| der),
        altered("rsa.key", "ED25519 PRIVATE KEY", |der| der),
        altered("rsa-pkcs8.key", "RSA PRIVATE KEY", |der| der),
        altered("p384.key", "RSA PRIVATE KEY", |der| der),
    ];
    for left in (70..1190).step_by(70) {
        wrong.push(altered("rsa.key", "RSA PRIVATE KEY", cut(left)));
        wrong.push(altered("rsa-pkcs8.key", "PRIVATE KEY", cut(left)));
        wrong.push(altered("p384.key", "EC PRIVATE KEY", cut(left.min(160))));
    }
    for key in wrong {
        let error = refusal("rsa.crt", &key);
        assert!(matches!(error, PkiError::NotAKey), "{error}");
        assert!(error.to_string().contains("use such a key"), "{error}");
    }
    for tag in ["PUBLIC KEY", "CERTIFICATE", "RSA PUBLIC KEY"] {
        let error = refusal("rsa.crt", &altered("rsa.key", tag, |der| der));
        assert!(
            matches!(error, PkiError::Missing("private key")),
            "{tag}: {error}"
        );
    }
}

#[test]
fn encrypted_key_is_refused_with_the_command_that_decrypts_it() {
    let head = "-----BEGIN RSA PRIVATE KEY-----\n";
    let headers =
        "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n";
    for key in [
        altered("rsa-pkcs8.key", "ENCRYPTED PRIVATE KEY", |der| der),
        text("rsa.key").replace(head, &format!("{head}{headers}")),
    ] {
        let error = refusal("rsa.crt", &key);
        assert!(matches!(error, PkiError::Encrypted), "{error}");
        assert!(error.to_string().contains("openssl pkey"), "{error}");
    }
}

proptest! {
    #[test]
    fn hostile_ca_keys_sign_nothing_that_the_ca_does_not_verify(key in hostile_text("pki")) {
        let crt = text("rsa.crt");
        if let Ok(ca) = Ca::from_pem(&crt, &key)
            && let Ok(client) = ca.client(&["os:admin"], now(), NODE_LIFETIME)
        {
            let [chain, anchors] = [&client.crt, &crt].map(|crt| certificates_from_pem(crt.as_bytes()).unwrap());
            prop_assert!(verify_client(&chain, &anchors, now()).is_ok());
        }
    }

    #[test]
    fn hostile_ca_certificates_never_panic(crt in hostile_text("pki")) {
        if let Ok(ca) = Ca::from_pem(&crt, &text("rsa.key")) {
            prop_assert_eq!(&ca.pem().crt, &crt);
        }
    }
}

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};

use crate::{Access, Cluster, PATIENCE, from_kubeconfig};

fn pem() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::default().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn kubeconfig(user: &str, ca: &str) -> String {
    let ca = STANDARD.encode(ca);
    format!(
        "apiVersion: v1
kind: Config
current-context: b
contexts:
- name: a
  context: {{ cluster: none, user: none }}
- name: b
  context: {{ cluster: c, user: u, namespace: default }}
clusters:
- name: c
  cluster: {{ server: 'https://127.0.0.1:7445', certificate-authority-data: {ca} }}
users:
- name: u
  user: {user}
"
    )
}

#[tokio::test]
async fn kubeconfig_certificates_are_read_inline_or_from_a_file() {
    let (crt, key) = pem();
    let inline = format!(
        "{{ client-certificate-data: {}, client-key-data: {} }}",
        STANDARD.encode(&crt),
        STANDARD.encode(&key)
    );
    let folder = tempfile::tempdir().unwrap();
    let both = folder.path().join("kubelet-client-current.pem");
    fs::write(&both, format!("{crt}{key}")).unwrap();
    let both = both.display();
    let files = format!("{{ client-certificate: {both}, client-key: {both} }}");
    for user in [inline, files] {
        let access = from_kubeconfig(&kubeconfig(&user, &crt)).unwrap();
        assert_eq!(access.server, "https://127.0.0.1:7445");
        assert_eq!(access.server_name, None);
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&access.ca), lines(&crt));
        assert_eq!(lines(&access.crt), lines(&crt));
        assert_eq!(lines(&access.key), lines(&key));
        let debug = format!("{access:?}");
        assert!(!debug.contains("BEGIN"), "{debug}");
        Cluster::connect(&access).unwrap();
    }
}

#[tokio::test]
async fn kubeconfig_may_name_the_certificate_of_its_server() {
    let (crt, key) = pem();
    let [cert, private] = [&crt, &key].map(|text| STANDARD.encode(text));
    let user = format!("{{ client-certificate-data: {cert}, client-key-data: {private} }}");
    let text = kubeconfig(&user, &crt);
    let text = text.replace("{ server:", "{ tls-server-name: api.example.org, server:");
    let access = from_kubeconfig(&text).unwrap();
    assert_eq!(access.server_name.as_deref(), Some("api.example.org"));
    let config = access.config(PATIENCE).unwrap();
    assert_eq!(config.tls_server_name.as_deref(), Some("api.example.org"));
    Cluster::connect(&access).unwrap();
}

#[test]
fn invalid_kubeconfig_is_refused_with_a_reason() {
    let (crt, _) = pem();
    for (text, reason) in [
        ("", "no context"),
        ("]", ""),
        ("current-context: x", "no context \"x\""),
        (&kubeconfig("{}", &crt), "it has no client-certificate"),
        (
            &kubeconfig("{ client-certificate: rel.pem }", &crt),
            "not an absolute path",
        ),
        (
            &kubeconfig("{ client-certificate: /does/not/exist }", &crt),
            "/does/not/exist",
        ),
        (
            &kubeconfig("{ client-certificate-data: '***' }", &crt),
            "client-certificate-data",
        ),
        (
            &kubeconfig(
                "{ client-certificate-data: AAAA, client-key-data: AAAA }",
                &crt,
            ),
            "no PEM block of this type",
        ),
    ] {
        let error = from_kubeconfig(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[tokio::test]
async fn invalid_access_is_refused_with_its_field() {
    let (crt, key) = pem();
    let good = Access {
        server: "https://127.0.0.1:6443".to_owned(),
        server_name: None,
        ca: crt.clone(),
        crt,
        key,
    };
    Cluster::connect(&good).unwrap();
    type Change = fn(&mut Access);
    let changes: [(Change, &str); 6] = [
        (
            |access| access.server = "http://127.0.0.1:6443".to_owned(),
            "address",
        ),
        (|access| access.server = "a b".to_owned(), "address"),
        (|access| access.ca.clear(), "CA certificate"),
        (|access| access.crt = "x".to_owned(), "client certificate"),
        (|access| access.key = access.crt.clone(), "client key"),
        (|access| access.key = pem().1, "key"),
    ];
    for (change, field) in changes {
        let mut access = good.clone();
        change(&mut access);
        let error = Cluster::connect(&access).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
        assert!(!error.contains("BEGIN"), "{error}");
    }
}

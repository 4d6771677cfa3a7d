//! The complete table: every method with every role, and every fault of a certificate, through real handshakes.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use corten_api::roles::{METHODS, Role, allows};
use corten_pki::{Ca, CertificateAndKey, NODE_LIFETIME};
use futures_util::future::join_all;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use tonic::Code;

use super::client::{Client, tls};
use super::support::{Cluster, Node, Setup, new_ca};

/// Values of Organization: each role, none, and an unknown one.
fn organizations() -> Vec<Vec<&'static str>> {
    let each = Role::ALL.map(|role| vec![role.name()]);
    [each.into(), vec![vec![], vec!["os:root"]]].concat()
}

fn paths() -> impl Iterator<Item = &'static str> {
    let unlisted = [
        "/machine.MachineService/Nothing",
        "/x",
        "/grpc.health.v1.Health/Check",
    ];
    METHODS.iter().map(|method| method.path).chain(unlisted)
}

/// Calls every method concurrently; returns the status of each.
async fn call_all(client: &Client, metadata: &[(&'static str, &str)]) -> Vec<(String, Code)> {
    join_all(paths().map(async |path| {
        let answered = client.call(path, metadata, &[]).await;
        (path.to_owned(), answered.status.code())
    }))
    .await
}

/// The paths machined got since the last call of this function.
fn heard(node: &Node, before: &mut usize) -> BTreeSet<String> {
    let seen = node.machined.seen();
    let new = seen[*before..].iter().map(|seen| seen.path.clone());
    let new = new.collect();
    *before = seen.len();
    new
}

#[tokio::test]
async fn every_method_is_allowed_or_refused_by_role() {
    let cluster = Cluster::new();
    let node = cluster.node(Setup::default()).await;
    let mut before = 0;
    for organizations in organizations() {
        let client = cluster.client(&node, &organizations).await;
        let roles: Vec<_> = organizations
            .iter()
            .filter_map(|name| Role::parse(name))
            .collect();
        let expected = |path: &str| match (allows(path, &roles, false), path) {
            // A forwarding node's certificate, without the roles of a caller.
            _ if roles == [Role::Impersonator] => Code::PermissionDenied,
            (false, _) => Code::PermissionDenied,
            (true, path) if METHODS.iter().all(|method| method.path != path) => Code::Unimplemented,
            (true, path) if path.ends_with("/Dmesg") => Code::Aborted,
            (true, _) => Code::Ok,
        };
        for (path, code) in call_all(&client, &[]).await {
            assert_eq!(code, expected(&path), "{organizations:?} {path}");
        }
        let passed: BTreeSet<_> = paths()
            .filter(|path| matches!(expected(path), Code::Ok | Code::Aborted))
            .map(str::to_owned)
            .collect();
        assert_eq!(heard(&node, &mut before), passed, "{organizations:?}");
    }
    // No caller may call an unlisted method, not even an administrator or a forwarding node with an administrator's
    // roles.
    let speaker = cluster.client(&node, &["os:impersonator"]).await;
    for role in Role::ALL {
        for (path, code) in call_all(&speaker, &[("talos-role", role.name())]).await {
            let refused = matches!(code, Code::PermissionDenied | Code::Unimplemented);
            let listed = METHODS.iter().any(|method| method.path == path);
            assert_eq!(
                refused,
                !listed || !allows(&path, &[role], false),
                "{role:?} {path}"
            );
        }
    }
}

#[tokio::test]
async fn every_method_is_allowed_or_refused_in_maintenance_mode() {
    let cluster = Cluster::new();
    let setup = Setup {
        maintenance: true,
        ..Setup::default()
    };
    let node = cluster.node(setup).await;
    let admin = cluster.certificate(&["os:admin"]);
    // Certificates and metadata are ignored: no roles, no other nodes.
    for own in [None, Some(&admin)] {
        let anybody = Client::connect(node.address, tls(None, own)).await.unwrap();
        let claims = [
            ("talos-role", "os:admin"),
            ("node", "192.0.2.1"),
            ("nodes", "x,y"),
        ];
        for (path, code) in call_all(&anybody, &claims).await {
            let allowed = METHODS.iter().any(|method| method.path == path)
                && allows(&path, &[Role::Reader], true);
            assert_eq!(code != Code::PermissionDenied, allowed, "{path}");
        }
    }
    let configs = node.machined.seen();
    let configs = configs
        .iter()
        .filter(|seen| seen.path.ends_with("/ApplyConfiguration"));
    assert_eq!(
        configs.map(|seen| seen.roles.as_str()).collect::<Vec<_>>(),
        ["os:reader"; 2]
    );
}

/// A certificate that `corten_pki` does not make.
fn with_usages(
    ca: &Ca,
    organizations: &[&str],
    usages: &[ExtendedKeyUsagePurpose],
) -> CertificateAndKey {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let [role] = organizations {
        params
            .distinguished_name
            .push(DnType::OrganizationName, *role);
    }
    params.not_after = (SystemTime::now() + NODE_LIFETIME).into();
    params.extended_key_usages = usages.to_vec();
    // The API's keys are PKCS#8 with another PEM label; rcgen reads only the usual one.
    let signer = ca.pem().key.replace("ED25519 PRIVATE KEY", "PRIVATE KEY");
    let signer = KeyPair::from_pem(&signer).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&ca.pem().crt, signer).unwrap();
    CertificateAndKey {
        crt: params.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

#[tokio::test]
async fn faulty_certificate_is_refused_for_every_method() {
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, CodeSigning, ServerAuth};
    let cluster = Cluster::new();
    let node = cluster.node(Setup::default()).await;
    let ca = &cluster.ca;
    let day = Duration::from_secs(24 * 60 * 60);
    let now = SystemTime::now();
    for organizations in organizations() {
        let client = |ca: &Ca, from: SystemTime| ca.client(&organizations, from, day).unwrap();
        let usages = |usages: &[_]| with_usages(ca, &organizations, usages);
        let faults = [
            ("another CA", Some(client(&new_ca(), now))),
            ("expired", Some(client(ca, now - 2 * day))),
            ("not yet valid", Some(client(ca, now + 2 * day))),
            ("a server's", Some(usages(&[ServerAuth]))),
            ("no usage", Some(usages(&[]))),
            ("a usage more", Some(usages(&[ClientAuth, ServerAuth]))),
            (
                "another usage more",
                Some(usages(&[ClientAuth, CodeSigning])),
            ),
            ("any usage", Some(usages(&[Any]))),
            ("none", None),
        ];
        for (fault, own) in faults {
            let tls = tls(Some(ca), own.as_ref());
            // TLS 1.3 reports the refusal after the client's own part of the handshake.
            let Ok(client) = Client::connect(node.address, tls).await else {
                continue;
            };
            let calls = paths().map(async |path| {
                let answered = client.try_call(path, &[], &[]).await;
                assert!(
                    answered.is_err(),
                    "{fault} {organizations:?} {path}: {answered:?}"
                );
            });
            join_all(calls).await;
        }
    }
    assert_eq!(node.machined.seen(), []);
    // A certificate without the fault is accepted.
    let good = with_usages(ca, &["os:reader"], &[ClientAuth]);
    let reader = Client::connect(node.address, tls(Some(ca), Some(&good)))
        .await
        .unwrap();
    let memory = reader
        .call("/machine.MachineService/Memory", &[], &[])
        .await;
    assert_eq!(memory.status.code(), Code::Ok);
}

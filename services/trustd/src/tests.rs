//! The whole daemon on a loopback port, with trusted and hostile clients.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_api::securityapi::security_service_client::SecurityServiceClient;
use corten_api::securityapi::{CertificateRequest, CertificateResponse};
use corten_pki::{
    Algorithm, Ca, CertificateAndKey, NODE_LIFETIME, certificates_from_pem, verify_issued,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::files::Files;
use crate::limits::{Limits, Rate};
use crate::server::Server;

const TOKEN_TEXT: &str = "abcdef.0123456789abcdef";
/// Another control plane node, the cluster's endpoint and a network of this node.
const NAMES_TEXT: &str =
    "control-plane 10.0.0.2\ncontrol-plane cluster.example.com\nnetwork 10.0.0.1/24\n";
/// Shorter than the lifetime of a connection with a call.
const DEADLINE: Duration = Duration::from_secs(20);

struct World {
    directory: TempDir,
    ca: Ca,
    address: SocketAddr,
}

fn new_ca() -> Ca {
    Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap()
}

/// Writes the files like machined: replaces each, the certificate last.
fn write(directory: &Path, ca: &Ca, accepted: &str, token: &str) {
    let names = ["127.0.0.1", "10.0.0.1", "cp-1", "api.example.com"].map(str::to_owned);
    let server = ca
        .server("cp-1", &names, SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    for (name, text) in [
        ("ca.crt", format!("{}\n{accepted}", ca.pem().crt)),
        ("ca.key", ca.pem().key.clone()),
        ("token", token.to_owned()),
        ("names", NAMES_TEXT.to_owned()),
        ("server.key", server.key),
        ("server.crt", server.crt),
    ] {
        let new = directory.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, directory.join(name)).unwrap();
    }
}

async fn world(limits: Limits) -> World {
    let directory = tempfile::tempdir().unwrap();
    let ca = new_ca();
    write(directory.path(), &ca, "", TOKEN_TEXT);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(Files::load(directory.path().to_owned()).unwrap(), limits);
    tokio::spawn(async move { server.run(listener).await });
    World {
        directory,
        ca,
        address,
    }
}

type Client = SecurityServiceClient<Channel>;

impl World {
    async fn connect(&self, ca: &Ca) -> Result<Client, tonic::transport::Error> {
        self.connect_from(1, ca).await
    }

    /// Connects from an address of the loopback network, which has sixteen million.
    async fn connect_from(&self, own: u8, ca: &Ca) -> Result<Client, tonic::transport::Error> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&ca.pem().crt))
            .domain_name("127.0.0.1");
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        let endpoint = endpoint.local_address(Some([127, 0, 0, own].into()));
        let channel = endpoint.tls_config(tls).unwrap().connect().await?;
        Ok(SecurityServiceClient::new(channel))
    }

    async fn client(&self) -> Client {
        self.connect(&self.ca).await.unwrap()
    }
}

async fn ask(
    client: &mut Client,
    token: Option<&str>,
    csr: &[u8],
) -> Result<CertificateResponse, Status> {
    let mut request = Request::new(CertificateRequest { csr: csr.to_vec() });
    if let Some(token) = token {
        request
            .metadata_mut()
            .insert("token", token.parse().unwrap());
    }
    client
        .certificate(request)
        .await
        .map(tonic::Response::into_inner)
}

fn csr(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    corten_pki::server_request("worker-1", &names).unwrap()
}

#[tokio::test]
async fn a_node_with_the_token_gets_a_certificate() {
    let world = world(Limits::default()).await;
    let (csr, key) = csr(&["10.0.0.7", "worker-1", "localhost"]);
    let answer = ask(&mut world.client().await, Some(TOKEN_TEXT), csr.as_bytes())
        .await
        .unwrap();
    let anchors = certificates_from_pem(&answer.ca).unwrap();
    assert_eq!(
        anchors,
        certificates_from_pem(world.ca.pem().crt.as_bytes()).unwrap()
    );
    let crt = String::from_utf8(answer.crt).unwrap();
    let leaf = &certificates_from_pem(crt.as_bytes()).unwrap()[0];
    assert_eq!(
        corten_pki::names(leaf).unwrap(),
        ["10.0.0.7", "worker-1", "localhost"]
    );
    verify_issued(&CertificateAndKey { crt, key }, &anchors, SystemTime::now()).unwrap();
    let (from, until) = corten_pki::validity(leaf).unwrap();
    assert_eq!(
        until.duration_since(from).unwrap(),
        NODE_LIFETIME + corten_pki::CLOCK_SKEW
    );
}

#[tokio::test]
async fn request_without_the_token_is_refused() {
    let world = world(Limits::default()).await;
    let (csr, _) = csr(&["worker-1"]);
    let mut client = world.client().await;
    for token in [
        None,
        Some(""),
        Some("abcdef.0123456789abcdee"),
        Some("abcdef.0123456789abcdef0"),
    ] {
        let refused = ask(&mut client, token, csr.as_bytes()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{token:?}");
        assert!(!refused.message().contains("abcdef"), "{refused:?}");
    }
}

#[tokio::test]
async fn malformed_requests_are_refused_and_affect_no_other_request() {
    let world = world(Limits::default()).await;
    let (good, _) = csr(&["worker-1"]);
    let mut client = world.client().await;
    for bad in ["", "garbage", &good[..good.len() / 2], &world.ca.pem().crt] {
        let refused = ask(&mut client, Some(TOKEN_TEXT), bad.as_bytes())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{bad:?}");
    }
    let refused = ask(&mut client, Some(TOKEN_TEXT), &[b'x'; 1 << 20])
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
    let mut client = world.client().await;
    ask(&mut client, Some(TOKEN_TEXT), good.as_bytes())
        .await
        .unwrap();
}

#[tokio::test]
async fn names_of_the_signing_node_are_never_certified() {
    let world = world(Limits::default()).await;
    let mut client = world.client().await;
    let (csr_text, _) = csr(&[
        "10.0.0.7",
        "10.0.0.1",
        "::ffff:10.0.0.1",
        "CP-1.",
        "api.example.com",
        "127.0.0.1",
    ]);
    let answer = ask(&mut client, Some(TOKEN_TEXT), csr_text.as_bytes())
        .await
        .unwrap();
    let leaf = &certificates_from_pem(&answer.crt).unwrap()[0];
    assert_eq!(corten_pki::names(leaf).unwrap(), ["10.0.0.7", "127.0.0.1"]);
    let (csr_text, _) = csr(&["cp-1"]);
    let refused = ask(&mut client, Some(TOKEN_TEXT), csr_text.as_bytes())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn foreign_addresses_and_control_plane_names_are_never_certified() {
    let world = world(Limits::default()).await;
    let mut client = world.connect_from(9, &world.ca).await.unwrap();
    let (csr_text, _) = csr(&[
        "worker-1",
        "10.0.0.7",
        "127.0.0.9",
        "10.0.0.2",
        "::ffff:10.0.0.2",
        "Cluster.example.com",
        "192.0.2.7",
        "fd00::7",
    ]);
    let answer = ask(&mut client, Some(TOKEN_TEXT), csr_text.as_bytes())
        .await
        .unwrap();
    let leaf = &certificates_from_pem(&answer.crt).unwrap()[0];
    assert_eq!(
        corten_pki::names(leaf).unwrap(),
        ["worker-1", "10.0.0.7", "127.0.0.9"]
    );
    for names in [&["10.0.0.2"][..], &["192.0.2.7"]] {
        let (csr_text, _) = csr(names);
        let refused = ask(&mut client, Some(TOKEN_TEXT), csr_text.as_bytes()).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
}

#[test]
fn missing_list_of_names_prevents_signing() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &new_ca(), "", TOKEN_TEXT);
    Files::load(directory.path().to_owned()).unwrap();
    let path = directory.path().join("names");
    fs::write(&path, "network everywhere\n").unwrap();
    let error = Files::load(directory.path().to_owned()).unwrap_err();
    assert!(
        error.to_string().contains("has no valid network"),
        "{error}"
    );
    fs::remove_file(path).unwrap();
    let error = Files::load(directory.path().to_owned()).unwrap_err();
    assert!(error.to_string().contains("names"), "{error}");
}

#[tokio::test]
async fn request_flood_is_rate_limited() {
    let rate = |burst| Rate {
        burst,
        interval: Duration::from_secs(3600),
    };
    let world = world(Limits::new(rate(6), rate(1000))).await;
    let (csr, _) = csr(&["worker-1"]);
    let mut client = world.client().await;
    let mut refused = 0;
    for _ in 0..50 {
        match ask(&mut client, Some(TOKEN_TEXT), csr.as_bytes()).await {
            Ok(_) => assert_eq!(refused, 0),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                refused += 1;
            }
        }
    }
    // One request counts for the connection, five for calls.
    assert_eq!(refused, 45);
    // A new connection is closed before its handshake.
    world.connect(&world.ca).await.unwrap_err();
}

#[tokio::test]
async fn idle_connections_from_many_addresses_block_no_node() {
    let world = world(Limits::default()).await;
    // All places are taken. Without a call these connections end soon.
    let mut idle = Vec::new();
    for own in 2..18 {
        for _ in 0..8 {
            let mut client = world.connect_from(own, &world.ca).await.unwrap();
            ask(&mut client, None, b"").await.unwrap_err();
            idle.push(client);
        }
    }
    let (csr, _) = csr(&["worker-1"]);
    let served = async { ask(&mut world.client().await, Some(TOKEN_TEXT), csr.as_bytes()).await };
    timeout(DEADLINE, served).await.unwrap().unwrap();
    drop(idle);
}

#[tokio::test]
async fn rotated_ca_and_token_apply_from_the_next_connection() {
    let world = world(Limits::default()).await;
    let (csr, _) = csr(&["worker-1"]);
    // Damaged files change nothing...
    fs::write(world.directory.path().join("server.crt"), "nonsense").unwrap();
    ask(&mut world.client().await, Some(TOKEN_TEXT), csr.as_bytes())
        .await
        .unwrap();
    // ...valid ones do.
    let next = new_ca();
    let token = "fedcba.fedcba9876543210";
    write(world.directory.path(), &next, &world.ca.pem().crt, token);
    world.connect(&world.ca).await.unwrap_err();
    let mut client = world.connect(&next).await.unwrap();
    let refused = ask(&mut client, Some(TOKEN_TEXT), csr.as_bytes())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let answer = ask(&mut client, Some(token), csr.as_bytes()).await.unwrap();
    // A joining node gets both CAs; the new one signs.
    let known = certificates_from_pem(&answer.ca).unwrap();
    let old = certificates_from_pem(world.ca.pem().crt.as_bytes()).unwrap();
    assert_eq!((known.len(), &known[1..]), (2, &old[..]));
}

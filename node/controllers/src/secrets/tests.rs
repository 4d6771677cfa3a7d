//! The life cycle of certificates, with a manual clock and a fake control plane.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_config::Document;
use corten_credentials::join::{Asked, Joined};
use corten_meta::tags::OWNER;
use corten_pki::{Algorithm, Ca, CertificateAndKey, NODE_LIFETIME, certificates_from_pem};
use corten_resources::controller::Runtime;
use corten_resources::{Draft, Pointer, Spec, Start, Store};
use corten_supervisor::supervisor::Conditions;
use corten_types::clock::TimeStatus;
use corten_types::network::{HostnameStatus, NodeAddress};
use corten_types::secrets::{
    ApiCertificates, CertificateStatus, Endpoint, PemPair, TrustdCertificates,
};
use corten_types::stage::Stage;
use corten_values::Secret;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Outside;
use super::api::Api;
use super::files::{ApiFiles, TrustdFiles};
use super::root::{Names, Roots};
use super::trustd::Trustd;

const HOUR: Duration = Duration::from_secs(3600);
/// Generous: a busy machine must not fail a test, and an idle one takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn new_ca() -> Ca {
    Ca::generate(Algorithm::Ed25519, "talos", "", start()).unwrap()
}

type Answers = Arc<Mutex<Box<dyn FnMut(&Asked) -> Result<(), String> + Send>>>;

/// Time advances only when the test moves it.
#[derive(Clone)]
struct FakeWorld {
    clock: watch::Sender<SystemTime>,
    /// Whether trustd issues a certificate.
    answers: Answers,
    signer: Arc<Mutex<Ca>>,
}

impl Outside for FakeWorld {
    fn now(&self) -> SystemTime {
        *self.clock.borrow()
    }

    async fn sleep(&self, time: Duration) {
        let until = self.now() + time;
        let mut clock = self.clock.subscribe();
        let _ = clock.wait_for(|now| *now >= until).await;
    }

    async fn ask(&self, asked: &Asked) -> Result<Joined, String> {
        self.answers.lock().unwrap()(asked)?;
        let (csr, key) = corten_pki::server_request(&asked.common_name, &asked.names).unwrap();
        let request = corten_pki::ServerRequest::from_pem(csr.as_bytes()).unwrap();
        let crt = self
            .signer
            .lock()
            .unwrap()
            .sign_server(&request, &asked.names, self.now(), NODE_LIFETIME)
            .unwrap();
        Ok(Joined {
            issued: CertificateAndKey { crt, key },
            endpoint: asked.endpoints[0].clone(),
        })
    }
}

struct Node {
    store: Store,
    config: watch::Sender<Option<Document>>,
    stage: watch::Sender<Stage>,
    meta: watch::Sender<corten_meta::Values>,
    world: FakeWorld,
    apid: tempfile::TempDir,
    trustd: tempfile::TempDir,
}

fn node(signer: Ca, answers: impl FnMut(&Asked) -> Result<(), String> + Send + 'static) -> Node {
    let store = Store::new();
    let world = FakeWorld {
        clock: watch::Sender::new(start()),
        answers: Arc::new(Mutex::new(Box::new(answers))),
        signer: Arc::new(Mutex::new(signer)),
    };
    let node = Node {
        store: store.clone(),
        config: watch::Sender::new(None),
        stage: watch::Sender::new(Stage::Booting),
        meta: watch::Sender::default(),
        world: world.clone(),
        apid: tempfile::tempdir().unwrap(),
        trustd: tempfile::tempdir().unwrap(),
    };
    let conditions = Conditions::unheard();
    let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata(node.apid.path()).unwrap());
    let mut runtime = Runtime::new(store);
    runtime
        .add(Roots {
            config: node.config.subscribe(),
        })
        .unwrap();
    runtime.add(Names).unwrap();
    let api = Api {
        stage: node.stage.subscribe(),
        meta: node.meta.subscribe(),
        conditions: conditions.clone(),
        outside: world.clone(),
    };
    runtime.add(api).unwrap();
    let trustd = Trustd {
        conditions: conditions.clone(),
        outside: world,
    };
    runtime.add(trustd).unwrap();
    let files = ApiFiles {
        directory: node.apid.path().to_owned(),
        uid,
        conditions: conditions.clone(),
    };
    runtime.add(files).unwrap();
    let files = TrustdFiles {
        directory: node.trustd.path().to_owned(),
        uid,
        conditions,
    };
    runtime.add(files).unwrap();
    tokio::spawn(runtime.run(|notice| panic!("{notice}")));
    node
}

fn encoded(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn config(kind: &str, ca: &Ca, accepted: &[&Ca]) -> Document {
    let key = if kind == "worker" {
        String::new()
    } else {
        format!(", key: {}", encoded(&ca.pem().key))
    };
    let accepted: Vec<String> = accepted
        .iter()
        .map(|ca| format!("{{crt: {}}}", encoded(&ca.pem().crt)))
        .collect();
    let text = format!(
        "version: v1alpha1\nmachine:\n  type: {kind}\n  token: abcdef.0123456789abcdef\n  ca: {{crt: {}{key}}}\n  \
         acceptedCAs: [{}]\ncluster:\n  controlPlane: {{endpoint: 'https://cp.example.com:6443'}}\n",
        encoded(&ca.pem().crt),
        accepted.join(", "),
    );
    Document::parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
}

impl Node {
    fn put<S: Spec>(&self, id: &str, spec: S) {
        self.store.put(Draft::new(id, spec), "").unwrap();
    }

    fn network(&self, addresses: &[&str]) {
        let hostname = HostnameStatus {
            hostname: "node1".to_owned(),
            domainname: String::new(),
        };
        self.put(HostnameStatus::ID, hostname);
        let current = NodeAddress {
            addresses: addresses
                .iter()
                .map(|address| (*address).to_owned())
                .collect(),
            sort_algorithm: "v1",
        };
        self.put(NodeAddress::ROUTED, current.clone());
        self.put(NodeAddress::CURRENT, current);
    }

    fn time(&self, synced: bool) {
        let status = TimeStatus {
            synced,
            epoch: 0,
            sync_disabled: false,
        };
        self.put(TimeStatus::ID, status);
    }

    /// Waits until a resource satisfies the predicate.
    async fn until<S: Spec>(&self, id: &str, what: &str, is: impl Fn(&S) -> bool) -> S {
        let mut watcher = self.store.watch(&Pointer::of::<S>(id), Start::Now).unwrap();
        let reached = async {
            loop {
                if let Some(found) = self.store.get_as::<S>(id)
                    && is(&found)
                {
                    return (*found).clone();
                }
                watcher.next().await.unwrap();
            }
        };
        timeout(PATIENCE, reached)
            .await
            .unwrap_or_else(|_| panic!("timeout waiting for {what}"))
    }

    async fn certificates(
        &self,
        what: &str,
        is: impl Fn(&ApiCertificates) -> bool,
    ) -> ApiCertificates {
        self.until(ApiCertificates::ID, what, is).await
    }

    /// Waits until the file has this text.
    async fn file(directory: &Path, name: &str, text: &str) {
        let path = directory.join(name);
        let written = async {
            while fs::read_to_string(&path).ok().as_deref() != Some(text) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let written = timeout(PATIENCE, written).await;
        assert!(written.is_ok(), "{name} does not get its expected text");
    }
}

fn names(pem: &str) -> Vec<String> {
    corten_pki::names(&certificates_from_pem(pem.as_bytes()).unwrap()[0]).unwrap()
}

fn never(_: &Asked) -> Result<(), String> {
    panic!("no control plane node may be asked");
}

#[tokio::test]
async fn control_plane_node_signs_its_certificate_and_renews_it_at_half_life() {
    let ca = new_ca();
    let node = node(new_ca(), never);
    node.network(&["10.0.0.1/24"]);
    node.config
        .send_replace(Some(config("controlplane", &ca, &[])));
    let first = node
        .certificates("a certificate with the address", |found| {
            names(&found.server.crt).contains(&"10.0.0.1".to_owned())
        })
        .await;
    assert_eq!(first.accepted_cas[0].crt, ca.pem().crt);
    assert!(!first.skip_verifying_client_cert);
    // The client certificate for other nodes' apids.
    let client = first.client.as_ref().unwrap();
    let chain = certificates_from_pem(client.crt.as_bytes()).unwrap();
    let anchors = certificates_from_pem(ca.pem().crt.as_bytes()).unwrap();
    let roles = corten_pki::verify_client(&chain, &anchors, start()).unwrap();
    assert_eq!(roles, ["os:impersonator"]);
    // Both name a control plane node.
    let served = certificates_from_pem(first.server.crt.as_bytes()).unwrap();
    for leaf in [&chain[0], &served[0]] {
        assert!(corten_pki::is_control_planes(leaf).unwrap());
    }
    for (name, text) in [
        ("server.crt", &first.server.crt),
        ("client.crt", &client.crt),
    ] {
        Node::file(node.apid.path(), name, text).await;
    }
    // A new address is put into a new certificate at once.
    node.network(&["10.0.0.1/24", "fd00::1/64"]);
    let second = node
        .certificates("a certificate with both addresses", |found| {
            names(&found.server.crt).contains(&"fd00::1".to_owned())
        })
        .await;
    // A minute before half of the lifetime nothing changes...
    node.world
        .clock
        .send_replace(start() + 12 * HOUR - Duration::from_secs(60));
    tokio::task::yield_now().await;
    assert_eq!(
        node.store.get_as::<ApiCertificates>("api").unwrap().server,
        second.server
    );
    // ...then it is renewed.
    node.world.clock.send_replace(start() + 12 * HOUR);
    let third = node
        .certificates("the renewed certificate", |found| {
            found.server != second.server
        })
        .await;
    assert_eq!(names(&third.server.crt), names(&second.server.crt));
    Node::file(node.apid.path(), "server.crt", &third.server.crt).await;
}

#[tokio::test]
async fn worker_retries_its_certificate_request_and_keeps_the_old_certificate() {
    let ca = new_ca();
    let mut calls = 0;
    let signer = Ca::from_pem(&ca.pem().crt, &ca.pem().key).unwrap();
    let node = node(signer, move |asked| {
        calls += 1;
        assert_eq!(asked.endpoints, ["cp.example.com"]);
        assert_eq!((asked.port, asked.common_name.as_str()), (50001, "node1"));
        assert_eq!(asked.token, Secret::new("abcdef.0123456789abcdef"));
        match calls {
            1 => Err("it refused: the token is wrong".to_owned()),
            3 => Err("no answer within 10 s".to_owned()),
            _ => Ok(()),
        }
    });
    node.network(&["10.0.0.7/24"]);
    node.config.send_replace(Some(config("worker", &ca, &[])));
    // The reason for the missing certificate is visible...
    node.until(
        "api",
        "the reason of the refusal",
        |status: &CertificateStatus| {
            status.error.contains("the token is wrong") && status.not_after.is_empty()
        },
    )
    .await;
    assert!(node.store.get_as::<ApiCertificates>("api").is_none());
    // ...and the request is repeated.
    node.world
        .clock
        .send_replace(start() + Duration::from_secs(1));
    let first = node.certificates("a certificate", |_| true).await;
    assert!(names(&first.server.crt).contains(&"10.0.0.7".to_owned()));
    let served = certificates_from_pem(first.server.crt.as_bytes()).unwrap();
    assert!(!corten_pki::is_control_planes(&served[0]).unwrap());
    // A worker has no client certificate for other nodes.
    assert!(first.client.is_none());
    Node::file(node.apid.path(), "server.crt", &first.server.crt).await;
    assert!(!node.apid.path().join("client.crt").exists());
    let status = node
        .until(
            "api",
            "a status without an error",
            |status: &CertificateStatus| status.error.is_empty(),
        )
        .await;
    assert_eq!(status.issuer, "cp.example.com");
    // At half of the lifetime trustd does not answer: the old certificate stays, and the reason is shown with it.
    node.world.clock.send_replace(start() + 13 * HOUR);
    node.until(
        "api",
        "the reason of the timeout",
        |status: &CertificateStatus| {
            status.error.contains("no answer") && !status.not_after.is_empty()
        },
    )
    .await;
    assert_eq!(
        node.store.get_as::<ApiCertificates>("api").unwrap().server,
        first.server
    );
    node.world.clock.send_replace(start() + 14 * HOUR);
    node.certificates("the renewed certificate", |found| {
        found.server != first.server
    })
    .await;
}

fn is_signed_by(pair: &PemPair, ca: &Ca) -> bool {
    let anchors = certificates_from_pem(ca.pem().crt.as_bytes()).unwrap();
    let issued = CertificateAndKey {
        crt: pair.crt.clone(),
        key: pair.key.expose().to_owned(),
    };
    corten_pki::verify_issued(&issued, &anchors, start()).is_ok()
}

#[tokio::test]
async fn worker_requests_again_while_trustd_signs_with_the_rotated_ca() {
    let (old, new) = (new_ca(), new_ca());
    let signer = |ca: &Ca| Ca::from_pem(&ca.pem().crt, &ca.pem().key).unwrap();
    let node = node(signer(&old), |_| Ok(()));
    node.network(&["10.0.0.7/24"]);
    node.config
        .send_replace(Some(config("worker", &new, &[&old])));
    // The certificate of the old CA is in use: every node accepts both.
    let first = node.certificates("a certificate", |_| true).await;
    assert!(is_signed_by(&first.server, &old));
    node.until("api", "the reason", |status: &CertificateStatus| {
        status.error.contains("another CA") && !status.not_after.is_empty()
    })
    .await;
    *node.world.signer.lock().unwrap() = signer(&new);
    node.world
        .clock
        .send_replace(start() + Duration::from_secs(1));
    node.certificates("a certificate of the new CA", |found| {
        is_signed_by(&found.server, &new)
    })
    .await;
    node.until("api", "no error", |status: &CertificateStatus| {
        status.error.is_empty()
    })
    .await;
}

#[tokio::test]
async fn rotated_ca_signs_and_the_old_ca_is_still_accepted() {
    let (old, new) = (new_ca(), new_ca());
    let node = node(new_ca(), never);
    node.network(&["10.0.0.1/24"]);
    node.time(true);
    node.config
        .send_replace(Some(config("controlplane", &old, &[&new])));
    node.until(
        TrustdCertificates::ID,
        "trustd's certificate",
        |_: &TrustdCertificates| true,
    )
    .await;
    let first = node.certificates("the first certificate", |_| true).await;
    assert_eq!(first.accepted_cas.len(), 2);
    node.config
        .send_replace(Some(config("controlplane", &new, &[&old])));
    let by_new = |pair: &PemPair| is_signed_by(pair, &new);
    let second = node
        .certificates("a certificate of the new CA", |found| by_new(&found.server))
        .await;
    let believed: Vec<&str> = second
        .accepted_cas
        .iter()
        .map(|ca| ca.crt.as_str())
        .collect();
    assert_eq!(believed, [new.pem().crt.as_str(), old.pem().crt.as_str()]);
    let served = node
        .until(
            "trustd",
            "trustd's certificate of the new CA",
            |found: &TrustdCertificates| by_new(&found.server),
        )
        .await;
    Node::file(node.trustd.path(), "server.crt", &served.server.crt).await;
    Node::file(node.trustd.path(), "ca.key", &new.pem().key).await;
}

#[tokio::test]
async fn trustd_waits_for_the_time_and_an_address() {
    let ca = new_ca();
    let node = node(new_ca(), never);
    node.time(false);
    node.network(&[]);
    node.config
        .send_replace(Some(config("controlplane", &ca, &[])));
    node.certificates("the API's certificate before the address", |_| true)
        .await;
    node.network(&["10.0.0.1/24"]);
    node.certificates("the API's certificate with the address", |found| {
        names(&found.server.crt).contains(&"10.0.0.1".to_owned())
    })
    .await;
    assert!(node.store.get_as::<TrustdCertificates>("trustd").is_none());
    node.time(true);
    let made = node
        .until(
            "trustd",
            "trustd's certificate",
            |_: &TrustdCertificates| true,
        )
        .await;
    let found = names(&made.server.crt);
    for name in ["10.0.0.1", "node1", "cp.example.com", "127.0.0.1"] {
        assert!(
            found.contains(&name.to_owned()),
            "{name} is not in {found:?}"
        );
    }
    Node::file(node.trustd.path(), "token", "abcdef.0123456789abcdef").await;
}

#[tokio::test]
async fn trustd_gets_the_names_of_control_plane_nodes_and_the_own_networks() {
    let ca = new_ca();
    let node = node(new_ca(), never);
    node.time(true);
    node.network(&["10.0.0.1/24", "fd00::1/64"]);
    node.config
        .send_replace(Some(config("controlplane", &ca, &[])));
    let networks = "network 10.0.0.1/24\nnetwork fd00::1/64\n";
    let own = "control-plane cp.example.com\ncontrol-plane fd00::1\ncontrol-plane localhost\n\
        control-plane node1\n";
    let loopback = "control-plane 127.0.0.1\ncontrol-plane ::1\n";
    let alone = format!("control-plane 10.0.0.1\n{loopback}{own}{networks}");
    Node::file(node.trustd.path(), "names", &alone).await;
    // The API servers that the cluster lists, as they come and go.
    let others = Endpoint {
        addresses: vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()],
        ..Endpoint::default()
    };
    node.put(Endpoint::CLUSTER, others);
    let all = format!("control-plane 10.0.0.1\ncontrol-plane 10.0.0.2\n{loopback}{own}{networks}");
    Node::file(node.trustd.path(), "names", &all).await;
    // The members of etcd, by host name too.
    let members = Endpoint {
        addresses: vec!["10.0.0.2".to_owned()],
        hosts: vec!["node2".to_owned()],
        api_port: None,
    };
    node.put(Endpoint::MEMBERS, members);
    let own = format!("{own}control-plane node2\n");
    let all = format!("control-plane 10.0.0.1\ncontrol-plane 10.0.0.2\n{loopback}{own}{networks}");
    Node::file(node.trustd.path(), "names", &all).await;
}

#[tokio::test]
async fn locked_node_serves_only_the_owner_recorded_in_meta() {
    let node = node(new_ca(), never);
    node.stage.send_replace(Stage::Locked);
    tokio::task::yield_now().await;
    assert!(node.store.get_as::<ApiCertificates>("api").is_none());
    let owner = new_ca().pem().crt.clone();
    let value = owner.clone().into_bytes();
    node.meta
        .send_modify(|values| drop(values.insert(OWNER, value)));
    // META is read before the stage is entered.
    node.stage.send_replace(Stage::Locked);
    let found = node
        .certificates("the certificate for the owner", |_| true)
        .await;
    assert!(!found.skip_verifying_client_cert && found.client.is_none());
    assert_eq!(found.accepted_cas.len(), 1);
    assert_eq!(found.accepted_cas[0].crt, owner);
}

#[tokio::test]
async fn maintenance_certificate_is_kept_until_a_config_arrives() {
    let ca = new_ca();
    let node = node(new_ca(), never);
    node.stage.send_replace(Stage::Maintenance);
    let first = node
        .certificates("the self-signed certificate", |_| true)
        .await;
    assert!(first.skip_verifying_client_cert && first.accepted_cas.is_empty());
    // An operator may be comparing its fingerprint, so neither names nor time replace it.
    node.network(&["10.0.0.1/24"]);
    node.world.clock.send_replace(start() + 100 * HOUR);
    tokio::task::yield_now().await;
    assert_eq!(
        node.store.get_as::<ApiCertificates>("api").unwrap().server,
        first.server
    );
    node.config
        .send_replace(Some(config("controlplane", &ca, &[])));
    let second = node
        .certificates("the certificate of the config", |found| {
            found.server != first.server
        })
        .await;
    assert!(!second.skip_verifying_client_cert);
}

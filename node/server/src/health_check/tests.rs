//! Order and messages of the checks with simulated nodes, and the connection through a simulated apid that requires a
//! reader's certificate.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::SystemTime;

use corten_api::machine::VersionResponse;
use corten_api::machine::machine_service_server::{MachineService, MachineServiceServer};
use corten_config::Document;
use corten_credentials::certificates;
use corten_pki::{NODE_LIFETIME, private_key_from_pem, to_pem};
use corten_resources::Draft;
use corten_types::config::MachineType;
use corten_types::diagnostic::Diagnostic;
use corten_types::etcd::EtcdMember;
use corten_types::kubernetes::Nodename;
use corten_types::kubernetes_node::StaticPodStatus;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use super::*;
use crate::node::Apply;
use crate::tests::{Remembering, config_text, world};
use question::Contact;

/// Problems of the nodes per round; none after the last round.
struct Scripted(Mutex<VecDeque<(Check, Vec<String>)>>);

impl Nodes for Scripted {
    async fn lacking(&self, check: Check) -> Vec<String> {
        let mut rounds = self.0.lock().unwrap();
        match rounds.front() {
            Some((of, _)) if *of == check => rounds.pop_front().unwrap().1,
            _ => Vec::new(),
        }
    }
}

async fn told(
    rounds: Vec<(Check, Vec<String>)>,
    patience: Duration,
) -> Vec<Result<String, Status>> {
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let nodes = Scripted(Mutex::new(rounds.into()));
    let checking = async move { checks(&nodes, &sender, patience, Duration::ZERO).await };
    let reading = async {
        let mut told = Vec::new();
        while let Some(message) = receiver.recv().await {
            told.push(message.map(|progress| progress.message));
        }
        told
    };
    tokio::join!(checking, reading).1
}

fn lacks(check: Check, nodes: &[&str]) -> (Check, Vec<String>) {
    (check, nodes.iter().map(|&text| text.to_owned()).collect())
}

#[tokio::test]
async fn each_check_is_awaited_and_each_change_reported_once() {
    let rounds = vec![
        lacks(Check::Apid, &["n1: no connection", "n2: no connection"]),
        lacks(Check::Apid, &["n2: no connection"]),
        lacks(Check::Apid, &["n2: no connection"]),
        lacks(Check::Boot, &["n1: it is in the stage booting"]),
    ];
    let told = told(rounds, USUAL_PATIENCE).await;
    let told: Vec<String> = told.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        told,
        [
            "waiting for apid to be ready: ...",
            "waiting for apid to be ready: n1: no connection; n2: no connection",
            "waiting for apid to be ready: n2: no connection",
            "waiting for apid to be ready: OK",
            "waiting for all nodes memory sizes: ...",
            "waiting for all nodes memory sizes: OK",
            "waiting for all nodes disk sizes: ...",
            "waiting for all nodes disk sizes: OK",
            "waiting for no diagnostics: ...",
            "waiting for no diagnostics: OK",
            "waiting for etcd to be healthy: ...",
            "waiting for etcd to be healthy: OK",
            "waiting for etcd members to be consistent across nodes: ...",
            "waiting for etcd members to be consistent across nodes: OK",
            "waiting for etcd members to be control plane nodes: ...",
            "waiting for etcd members to be control plane nodes: OK",
            "waiting for all services to be healthy: ...",
            "waiting for all services to be healthy: OK",
            "waiting for all nodes to finish boot sequence: ...",
            "waiting for all nodes to finish boot sequence: n1: it is in the stage booting",
            "waiting for all nodes to finish boot sequence: OK",
            "waiting for all k8s nodes to report: ...",
            "waiting for all k8s nodes to report: OK",
            "waiting for all control plane static pods to be running: ...",
            "waiting for all control plane static pods to be running: OK",
            "waiting for all control plane components to be ready: ...",
            "waiting for all control plane components to be ready: OK",
            "waiting for all k8s nodes to report ready: ...",
            "waiting for all k8s nodes to report ready: OK",
            "waiting for kube-proxy to report ready: ...",
            "waiting for kube-proxy to report ready: OK",
            "waiting for coredns to report ready: ...",
            "waiting for coredns to report ready: OK",
            "waiting for all k8s nodes to report schedulable: ...",
            "waiting for all k8s nodes to report schedulable: OK",
        ]
    );
}

#[tokio::test]
async fn health_check_timeout_names_the_awaited_condition() {
    let rounds = vec![lacks(Check::Apid, &["n1: no connection"]); 1000];
    let mut told = told(rounds, Duration::ZERO).await;
    let end = told.pop().unwrap().unwrap_err();
    assert_eq!(end.code(), Code::DeadlineExceeded);
    assert!(
        end.message()
            .contains("apid to be ready: n1: no connection"),
        "{end}"
    );
    assert!(told.iter().all(Result::is_ok));
}

#[test]
fn hostile_answers_are_truncated() {
    let many: Vec<String> = (0..1000)
        .map(|n| format!("n{n}: {}", "ä".repeat(1000)))
        .collect();
    let text = summary(&many);
    assert!(text.len() < (TOLD + 1) * (TOLD_EACH + 20), "{}", text.len());
    assert!(text.ends_with("; and 992 more"), "{text}");
    let eight: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
    assert_eq!(summary(&eight), "n0; n1; n2; n3; n4; n5; n6; n7");
}

#[test]
fn health_check_timeout_is_bounded() {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    assert_eq!(patience(None).unwrap(), USUAL_PATIENCE);
    assert_eq!(patience(seconds(60)).unwrap(), Duration::from_secs(60));
    for wrong in [0, -1, i64::MIN, i64::MAX, 24 * 3600 + 1] {
        let refused = patience(seconds(wrong)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with("wait_timeout"), "{refused}");
    }
}

/// An apid that knows only the node `n1`, and records the requested nodes and the client certificates.
#[derive(Clone, Default)]
struct Apid(Arc<Mutex<Vec<Asked>>>);

/// A node, and a certificate.
type Asked = (String, Vec<u8>);

impl Apid {
    /// The requests since the last call of this function.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[async_trait]
impl MachineService for Apid {
    async fn version(&self, request: Request<()>) -> Result<Response<VersionResponse>, Status> {
        let shown = request.peer_certs().unwrap();
        let roles = corten_pki::organizations(&shown[0]).unwrap();
        assert_eq!(roles, ["os:reader"]);
        let node = request.metadata().get("node").unwrap();
        let node = node.to_str().unwrap().to_owned();
        let asked = (node.clone(), shown[0].to_vec());
        self.0.lock().unwrap().push(asked);
        if node == "n1" {
            return Ok(Response::new(VersionResponse::default()));
        }
        Err(Status::unavailable(format!(
            "{node}: no connection within 5 s"
        )))
    }
}

/// Serves as apid of a node with this config.
async fn apid(document: &Document) -> (Apid, SocketAddr) {
    let ca = certificates::signer(document).unwrap();
    let names = ["127.0.0.1".to_owned()];
    let own = ca
        .server("cp-1", &names, SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let key = private_key_from_pem(own.key.as_bytes()).unwrap();
    let key = to_pem("PRIVATE KEY", key.secret_der());
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(own.crt, key))
        .client_ca_root(Certificate::from_pem(&ca.pem().crt));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let apid = Apid::default();
    let serving = Server::builder()
        .tls_config(tls)
        .unwrap()
        .add_service(MachineServiceServer::new(apid.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    (apid, address)
}

#[tokio::test]
async fn other_nodes_are_queried_through_apid_with_the_reader_role() {
    let document = Document::parse(config_text().as_bytes()).unwrap();
    let (apid, address) = apid(&document).await;
    let paths = Paths {
        apid: address,
        machined: "/nowhere/machined.sock".into(),
        ..Paths::default()
    };
    let node = Arc::new(Remembering::default());
    let others = ["n1", "n2"].map(|name| Target::Other(name.to_owned()));
    let mut targets = others.to_vec();
    targets.push(Target::Itself);
    let asking = Asking::new(node.clone(), paths, targets, None);
    // Without a config there is no certificate to show.
    let lacking = asking.lacking(Check::Apid).await;
    let itself = "this node: machined does not answer";
    let no_config = "the node has no config";
    let [first, second] = ["n1", "n2"].map(|name| format!("{name}: {no_config}"));
    let expected = [first.as_str(), &second, itself];
    assert_eq!(lacking, expected);
    node.apply_config(document, Apply::Now).unwrap();
    let lacking = asking.lacking(Check::Apid).await;
    assert_eq!(lacking, ["n2: n2: no connection within 5 s", itself]);
    let mut asked = apid.asked();
    asked.sort();
    let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["n1", "n2"]);
}

#[tokio::test]
async fn connection_to_apid_is_kept_until_the_ca_changes() {
    let [document, other] = [(); 2].map(|()| Document::parse(config_text().as_bytes()).unwrap());
    let (apid, address) = apid(&document).await;
    let paths = Paths {
        apid: address,
        ..Paths::default()
    };
    let node = Arc::new(Remembering::default());
    let targets = ["n1", "n2"].map(|name| Target::Other(name.to_owned()));
    let asking = Asking::new(node.clone(), paths, targets.to_vec(), None);
    node.apply_config(document.clone(), Apply::Now).unwrap();
    let shown = async || {
        asking.lacking(Check::Apid).await;
        let asked = apid.asked();
        let shown: HashSet<Vec<u8>> = asked.into_iter().map(|(_, shown)| shown).collect();
        shown
    };
    // An unreachable node does not affect the connection to apid.
    let first = shown().await;
    assert_eq!(first.len(), 1);
    assert_eq!(shown().await, first);
    // apid does not accept this CA, so no node is asked.
    node.apply_config(other, Apply::Now).unwrap();
    assert!(shown().await.is_empty());
    node.apply_config(document, Apply::Now).unwrap();
    let last = shown().await;
    assert!(last.len() == 1 && last != first);
}

#[tokio::test]
async fn node_tells_its_part_in_etcd_and_in_kubernetes() {
    let world = world();
    let store = world.node.store();
    let contact = || Contact {
        channel: world.channel.clone(),
        name: None,
    };
    store.register::<Nodename>().unwrap();
    store.register::<MachineType>().unwrap();
    store.register::<EtcdMember>().unwrap();
    store.register::<StaticPodStatus>().unwrap();
    // Without Kubernetes, and of a type that is not known yet.
    assert_eq!(contact().registration().await.unwrap(), None);
    assert_eq!(contact().own_member().await.unwrap(), None);
    let name = |skip_node_registration| Nodename {
        nodename: "cp-1".to_owned(),
        hostname_version: String::new(),
        skip_node_registration,
    };
    store.put(Draft::new(Nodename::ID, name(true)), "").unwrap();
    assert_eq!(contact().registration().await.unwrap(), None);
    assert_eq!(contact().static_pods().await.unwrap(), None);
    store
        .put(Draft::new(Nodename::ID, name(false)), "")
        .unwrap();
    let kind = MachineType::from(corten_config::MachineType::ControlPlane);
    store.put(Draft::new(MachineType::ID, kind), "").unwrap();
    let registration = contact().registration().await.unwrap().unwrap();
    assert_eq!(registration.name, "cp-1");
    assert!(registration.is_control_plane);
    let lacks = contact().own_member().await.unwrap_err();
    assert!(lacks.why.contains("cortenctl bootstrap"), "{}", lacks.why);
    let member_id = "000000000000000a".to_owned();
    let member = EtcdMember { member_id };
    store.put(Draft::new(EtcdMember::ID, member), "").unwrap();
    let member = contact().own_member().await.unwrap();
    assert_eq!(member.as_deref(), Some("000000000000000a"));
    let no_etcd = contact().members().await.unwrap_err();
    assert!(no_etcd.why.contains("no etcd member"), "{}", no_etcd.why);
    let pod = "kube-system/kube-apiserver-cp-1";
    let status = StaticPodStatus(Default::default());
    store.put(Draft::new(pod, status), "").unwrap();
    let pods = contact().static_pods().await.unwrap();
    assert_eq!(pods.unwrap(), [pod]);
}

#[tokio::test]
async fn node_with_diagnostics_fails_the_check_and_one_that_knows_none_passes() {
    let world = world();
    let store = world.node.store();
    let contact = || Contact {
        channel: world.channel.clone(),
        name: None,
    };
    // A node of an older version does not have the type.
    contact().diagnostics().await.unwrap();
    store.register::<Diagnostic>().unwrap();
    contact().diagnostics().await.unwrap();
    for id in [Diagnostic::KUBELET_CSR, Diagnostic::ADDRESS_OVERLAP] {
        let diagnostic = Diagnostic {
            message: format!("fault of {id}"),
            details: vec!["more".to_owned()],
        };
        store.put(Draft::new(id, diagnostic), "").unwrap();
    }
    let lacks = contact().diagnostics().await.unwrap_err();
    let told = "address-overlap: fault of address-overlap, kubelet-csr: fault of kubelet-csr";
    assert_eq!(lacks.why, told);
}

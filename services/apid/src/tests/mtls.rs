//! Access by client certificate, with tonic's client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use corten_api::machine as api;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_pki::NODE_LIFETIME;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request};
use tower::service_fn;

use super::client::tls;
use super::support::{Cluster, Node, Setup, new_ca, write_identity};

struct World {
    cluster: Cluster,
    node: Node,
}

async fn world(maintenance: bool) -> World {
    let cluster = Cluster::new();
    let setup = Setup {
        maintenance,
        ..Setup::default()
    };
    let node = cluster.node(setup).await;
    World { cluster, node }
}

async fn client(address: SocketAddr, tls: Arc<ClientConfig>) -> MachineServiceClient<Channel> {
    let channel = Endpoint::from_static("http://127.0.0.1:50000").connect_with_connector_lazy(
        service_fn(move |_: Uri| {
            let tls = tls.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
                let stream = TlsConnector::from(tls).connect(name, stream).await?;
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        }),
    );
    MachineServiceClient::new(channel)
}

impl World {
    async fn with_roles(&self, roles: &[&str]) -> MachineServiceClient<Channel> {
        let own = self.cluster.certificate(roles);
        client(self.node.address, tls(Some(&self.cluster.ca), Some(&own))).await
    }
}

fn with(pairs: &[(&'static str, &str)]) -> Request<()> {
    let mut request = Request::new(());
    for (key, value) in pairs {
        request.metadata_mut().append(*key, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn mtls_call_has_the_roles_of_the_certificate() {
    let world = world(false).await;
    let mut reader = world.with_roles(&["os:reader", "unknown"]).await;
    // machined gets the roles of the certificate, whatever the caller claims.
    let claimed = with(&[("talos-role", "os:admin")]);
    let reply = reader.hostname(claimed).await.unwrap().into_inner();
    assert_eq!(reply.messages[0].hostname, "os:reader");
    assert!(reply.messages[0].metadata.is_none());
    let memory = reader.memory(()).await.unwrap().into_inner();
    assert_eq!(memory.messages[0].meminfo.as_ref().unwrap().memtotal, 4096);
    // The stream arrives frame by frame, and so does its status.
    let mut lines = reader
        .dmesg(api::DmesgRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(lines.message().await.unwrap().unwrap().bytes, b"one\n");
    assert_eq!(lines.message().await.unwrap().unwrap().bytes, b"two\n");
    assert_eq!(lines.message().await.unwrap_err().code(), Code::Aborted);
}

#[tokio::test]
async fn roles_are_checked_before_machined_gets_the_call() {
    let world = world(false).await;
    let config = || api::ApplyConfigurationRequest {
        data: vec![7; 100_000],
        ..Default::default()
    };
    let refused = world
        .with_roles(&["os:reader"])
        .await
        .apply_configuration(config())
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let refused = world.with_roles(&[]).await.memory(()).await;
    assert_eq!(refused.unwrap_err().message(), "not authorized");
    let done = world
        .with_roles(&["os:admin"])
        .await
        .apply_configuration(config())
        .await
        .unwrap();
    let details = &done.into_inner().messages[0].mode_details;
    assert!(details.parse::<usize>().unwrap() > 100_000);
}

#[tokio::test]
async fn impersonator_has_the_forwarded_roles_only() {
    let world = world(false).await;
    let mut apid = world.with_roles(&["os:impersonator"]).await;
    let reply = apid
        .hostname(with(&[("talos-role", "os:operator")]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.messages[0].hostname, "os:operator");
    assert_eq!(
        apid.memory(()).await.unwrap_err().code(),
        Code::PermissionDenied
    );
}

#[tokio::test]
async fn forwarded_call_is_not_forwarded_again() {
    let world = world(false).await;
    let mut apid = world.with_roles(&["os:impersonator"]).await;
    let again = with(&[("talos-role", "os:operator"), ("node", "192.0.2.9")]);
    let refused = apid.hostname(again).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("not forwarded again"),
        "{refused}"
    );
}

#[tokio::test]
async fn clients_without_an_accepted_certificate_are_refused() {
    let world = world(false).await;
    let stranger = new_ca()
        .client(&["os:admin"], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let server = world
        .cluster
        .ca
        .server("x", &["127.0.0.1".into()], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    for own in [None, Some(&stranger), Some(&server)] {
        let mut client = client(world.node.address, tls(Some(&world.cluster.ca), own)).await;
        let refused = client.memory(()).await.unwrap_err();
        assert!(
            matches!(refused.code(), Code::Unavailable | Code::Unknown),
            "{refused:?}"
        );
    }
    // A client rejects an unknown server.
    let own = world.cluster.certificate(&["os:admin"]);
    let mut client = client(world.node.address, tls(Some(&new_ca()), Some(&own))).await;
    client.memory(()).await.unwrap_err();
}

#[tokio::test]
async fn maintenance_mode_allows_anonymous_reads_and_apply_config() {
    let world = world(true).await;
    let mut anybody = client(world.node.address, tls(None, None)).await;
    // Routing is off: the metadata is ignored.
    let reply = anybody
        .hostname(with(&[("node", "192.0.2.9")]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.messages[0].hostname, "os:reader");
    anybody
        .apply_configuration(api::ApplyConfigurationRequest::default())
        .await
        .unwrap();
    let refused = anybody
        .reboot(api::RebootRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn new_certificates_are_used_without_a_restart() {
    let world = world(false).await;
    world
        .with_roles(&["os:reader"])
        .await
        .memory(())
        .await
        .unwrap();
    // Damaged files change nothing...
    std::fs::write(world.node.directory.path().join("server.crt"), "nonsense").unwrap();
    world
        .with_roles(&["os:reader"])
        .await
        .memory(())
        .await
        .unwrap();
    // ...valid ones do: clients of the old CA are refused.
    let next = new_ca();
    write_identity(world.node.directory.path(), &next, "node", true);
    world
        .with_roles(&["os:reader"])
        .await
        .memory(())
        .await
        .unwrap_err();
    let own = next
        .client(&["os:reader"], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let mut client = client(world.node.address, tls(Some(&next), Some(&own))).await;
    client.memory(()).await.unwrap();
}

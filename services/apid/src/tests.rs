//! The daemon as a whole, on a loopback port, before a fake machined.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use corten_api::common::Data;
use corten_api::machine as api;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_api::machine::machine_service_server::{MachineService, MachineServiceServer};
use corten_pki::{Algorithm, Ca, CertificateAndKey, NODE_LIFETIME};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::BoxStream;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status, async_trait};
use tower::service_fn;

use crate::server::Server;

/// Answers with what it was told, so that a test sees what apid passed on.
struct FakeMachined;

fn roles(metadata: &MetadataMap) -> String {
    let values = metadata.get_all("talos-role").iter();
    values
        .map(|value| value.to_str().unwrap())
        .collect::<Vec<_>>()
        .join(" ")
}

#[async_trait]
impl MachineService for FakeMachined {
    async fn hostname(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::HostnameResponse>, Status> {
        let hostname = api::Hostname {
            metadata: None,
            hostname: roles(request.metadata()),
        };
        Ok(Response::new(api::HostnameResponse {
            messages: vec![hostname],
        }))
    }

    async fn memory(&self, _: Request<()>) -> Result<Response<api::MemoryResponse>, Status> {
        let meminfo = api::MemInfo {
            memtotal: 4096,
            ..Default::default()
        };
        let memory = api::Memory {
            metadata: None,
            meminfo: Some(meminfo),
        };
        Ok(Response::new(api::MemoryResponse {
            messages: vec![memory],
        }))
    }

    async fn dmesg(
        &self,
        _: Request<api::DmesgRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        let line = |text: &str| {
            Ok(Data {
                metadata: None,
                bytes: text.as_bytes().to_vec(),
            })
        };
        let lines = vec![line("one\n"), line("two\n"), Err(Status::aborted("enough"))];
        Ok(Response::new(Box::pin(tokio_stream::iter(lines))))
    }

    async fn apply_configuration(
        &self,
        request: Request<api::ApplyConfigurationRequest>,
    ) -> Result<Response<api::ApplyConfigurationResponse>, Status> {
        let details = request.into_inner().data.len().to_string();
        let reply = api::ApplyConfiguration {
            mode_details: details,
            ..Default::default()
        };
        Ok(Response::new(api::ApplyConfigurationResponse {
            messages: vec![reply],
        }))
    }
}

struct World {
    directory: TempDir,
    ca: Ca,
    address: SocketAddr,
}

fn new_ca() -> Ca {
    Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap()
}

fn write_identity(directory: &Path, ca: &Ca) {
    let names = ["127.0.0.1".to_owned()];
    let server = ca
        .server("node", &names, SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    std::fs::write(directory.join("ca.crt"), &ca.pem().crt).unwrap();
    std::fs::write(directory.join("server.key"), &server.key).unwrap();
    std::fs::write(directory.join("server.crt"), &server.crt).unwrap();
}

async fn world(maintenance: bool) -> World {
    let directory = tempfile::tempdir().unwrap();
    let ca = new_ca();
    write_identity(directory.path(), &ca);
    let socket = directory.path().join("machined.sock");
    let machined = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(MachineServiceServer::new(FakeMachined))
            .serve_with_incoming(machined),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(PathBuf::from(directory.path()), socket, maintenance).unwrap();
    tokio::spawn(async move { server.run(listener).await });
    World {
        directory,
        ca,
        address,
    }
}

/// Believes any server: what apid shows is looked at elsewhere.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A client that checks the server against `ca` unless it is `None`.
fn tls(ca: Option<&Ca>, own: Option<&CertificateAndKey>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let builder = match ca {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for root in corten_pki::certificates_from_pem(ca.pem().crt.as_bytes()).unwrap() {
                roots.add(root).unwrap();
            }
            builder.with_root_certificates(roots)
        }
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody)),
    };
    let mut config = match own {
        Some(own) => builder
            .with_client_auth_cert(
                corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap(),
                corten_pki::private_key_from_pem(own.key.as_bytes()).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
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
        let own = self
            .ca
            .client(roles, SystemTime::now(), NODE_LIFETIME)
            .unwrap();
        client(self.address, tls(Some(&self.ca), Some(&own))).await
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
async fn a_call_through_mtls_is_answered_with_the_certificates_roles() {
    let world = world(false).await;
    let mut reader = world.with_roles(&["os:reader", "unknown"]).await;
    // Whatever the caller claims, machined hears what the certificate says.
    let claimed = with(&[("talos-role", "os:admin")]);
    let reply = reader.hostname(claimed).await.unwrap().into_inner();
    assert_eq!(reply.messages[0].hostname, "os:reader");
    assert!(reply.messages[0].metadata.is_none());
    let memory = reader.memory(()).await.unwrap().into_inner();
    assert_eq!(memory.messages[0].meminfo.as_ref().unwrap().memtotal, 4096);
    // The stream arrives frame by frame, and so does how it ends.
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
async fn roles_decide_before_machined_hears_of_it() {
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
    assert_eq!(done.into_inner().messages[0].mode_details, "100000");
}

#[tokio::test]
async fn an_impersonator_speaks_for_others() {
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
async fn strangers_do_not_come_in() {
    let world = world(false).await;
    let stranger = new_ca()
        .client(&["os:admin"], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let server = world
        .ca
        .server("x", &["127.0.0.1".into()], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    for own in [None, Some(&stranger), Some(&server)] {
        let mut client = client(world.address, tls(Some(&world.ca), own)).await;
        let refused = client.memory(()).await.unwrap_err();
        assert!(
            matches!(refused.code(), Code::Unavailable | Code::Unknown),
            "{refused:?}"
        );
    }
    // And a client does not talk to a server it does not know.
    let own = world
        .ca
        .client(&["os:admin"], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let mut client = client(world.address, tls(Some(&new_ca()), Some(&own))).await;
    client.memory(()).await.unwrap_err();
}

#[tokio::test]
async fn nodes_are_answered_here_labelled_and_merged() {
    let world = world(false).await;
    let mut admin = world.with_roles(&["os:admin"]).await;
    let asked = with(&[("nodes", "127.0.0.1"), ("nodes", "192.0.2.9")]);
    let reply = admin.memory(asked).await.unwrap().into_inner();
    let [here, other] = reply.messages.as_slice() else {
        panic!("{reply:?}")
    };
    assert_eq!(here.metadata.as_ref().unwrap().hostname, "127.0.0.1");
    assert_eq!(here.meminfo.as_ref().unwrap().memtotal, 4096);
    let failed = other.metadata.as_ref().unwrap();
    assert_eq!(
        (failed.hostname.as_str(), other.meminfo.is_none()),
        ("192.0.2.9", true)
    );
    assert_eq!(
        failed.status.as_ref().unwrap().code,
        Code::Unimplemented as i32
    );

    let one = admin
        .memory(with(&[("node", "127.0.0.1")]))
        .await
        .unwrap()
        .into_inner();
    assert!(one.messages[0].metadata.is_none());
    let other = admin
        .memory(with(&[("node", "192.0.2.9")]))
        .await
        .unwrap_err();
    assert_eq!(other.code(), Code::Unimplemented);

    let mut request = Request::new(api::DmesgRequest::default());
    request
        .metadata_mut()
        .append("nodes", "127.0.0.1".parse().unwrap());
    let mut lines = admin.dmesg(request).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while let Some(line) = lines.message().await.unwrap() {
        let metadata = line.metadata.unwrap();
        assert_eq!(metadata.hostname, "127.0.0.1");
        seen.push((
            String::from_utf8(line.bytes).unwrap(),
            metadata.status.map(|s| s.code),
        ));
    }
    let aborted = Some(Code::Aborted as i32);
    assert_eq!(
        seen,
        [
            ("one\n".into(), None),
            ("two\n".into(), None),
            (String::new(), aborted)
        ]
    );
}

#[tokio::test]
async fn maintenance_lets_anybody_read_and_bring_a_config() {
    let world = world(true).await;
    let mut anybody = client(world.address, tls(None, None)).await;
    // Routing is off: the metadata means nothing.
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
    std::fs::write(world.directory.path().join("server.crt"), "nonsense").unwrap();
    world
        .with_roles(&["os:reader"])
        .await
        .memory(())
        .await
        .unwrap();
    // ...good ones do: the old authority's clients stay outside.
    let next = new_ca();
    write_identity(world.directory.path(), &next);
    world
        .with_roles(&["os:reader"])
        .await
        .memory(())
        .await
        .unwrap_err();
    let own = next
        .client(&["os:reader"], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let mut client = client(world.address, tls(Some(&next), Some(&own))).await;
    client.memory(()).await.unwrap();
}

//! The program against a node on the loopback interface: real TLS with certificates made by the
//! program itself.
use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use corten_api::common::{Data, Metadata};
use corten_api::machine as api;
use corten_api::machine::machine_service_server::{MachineService, MachineServiceServer};
use corten_config::Document;
use corten_pki::{certificates_from_pem, fingerprint, maintenance};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::BoxStream;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::support::{cortenctl, generate, identity};

const REFUSAL: &str = "not through another node: the file may hold keys";
const MADE: &str = "context: mine\ncontexts: {mine: {endpoints: [], ca: '', crt: '', key: ''}}\n";

/// A node that answers for itself and for the nodes it forwards to, of which `down` is unreachable.
struct Node;

fn asked<T>(request: &Request<T>) -> Vec<Option<Metadata>> {
    let nodes: Vec<Option<Metadata>> = request
        .metadata()
        .get_all("nodes")
        .iter()
        .map(|node| {
            let hostname = node.to_str().unwrap().to_owned();
            let error = if hostname == "down" {
                "no route to host".to_owned()
            } else {
                String::new()
            };
            Some(Metadata {
                hostname,
                error,
                status: None,
            })
        })
        .collect();
    if nodes.is_empty() { vec![None] } else { nodes }
}

#[tonic::async_trait]
impl MachineService for Node {
    async fn version(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::VersionResponse>, Status> {
        let messages = asked(&request).into_iter().map(|metadata| api::Version {
            metadata,
            version: Some(api::VersionInfo {
                tag: "v1.14.0+corten.test".into(),
                ..Default::default()
            }),
            ..Default::default()
        });
        Ok(Response::new(api::VersionResponse {
            messages: messages.collect(),
        }))
    }

    async fn memory(&self, request: Request<()>) -> Result<Response<api::MemoryResponse>, Status> {
        let messages = asked(&request).into_iter().map(|metadata| {
            let up = metadata.as_ref().is_none_or(|m| m.error.is_empty());
            let meminfo = api::MemInfo {
                memtotal: 512 * 1024,
                memfree: 128 * 1024,
                ..Default::default()
            };
            api::Memory {
                metadata,
                meminfo: up.then_some(meminfo),
            }
        });
        Ok(Response::new(api::MemoryResponse {
            messages: messages.collect(),
        }))
    }

    async fn apply_configuration(
        &self,
        request: Request<api::ApplyConfigurationRequest>,
    ) -> Result<Response<api::ApplyConfigurationResponse>, Status> {
        Document::parse(&request.get_ref().data)
            .map_err(|problems| Status::invalid_argument(problems.to_string()))?;
        let message = api::ApplyConfiguration {
            mode_details: "Applied configuration without a reboot".into(),
            ..Default::default()
        };
        Ok(Response::new(api::ApplyConfigurationResponse {
            messages: vec![message],
        }))
    }

    /// A call that the node answers only to direct callers.
    async fn read(
        &self,
        request: Request<api::ReadRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        if request.metadata().contains_key("node") {
            return Err(Status::permission_denied(REFUSAL));
        }
        let frame = Ok(Data {
            metadata: None,
            bytes: b"a key\n".into(),
        });
        Ok(Response::new(Box::pin(tokio_stream::iter([frame]))))
    }

    async fn generate_client_configuration(
        &self,
        request: Request<api::GenerateClientConfigurationRequest>,
    ) -> Result<Response<api::GenerateClientConfigurationResponse>, Status> {
        let message = |metadata: Option<Metadata>| {
            let is_forwarded = metadata.is_some();
            let metadata = metadata.map(|metadata| Metadata {
                error: REFUSAL.to_owned(),
                ..metadata
            });
            let made = if is_forwarded { "" } else { MADE };
            api::GenerateClientConfiguration {
                metadata,
                talosconfig: made.into(),
                ..Default::default()
            }
        };
        Ok(Response::new(api::GenerateClientConfigurationResponse {
            messages: asked(&request).into_iter().map(message).collect(),
        }))
    }

    async fn logs(
        &self,
        request: Request<api::LogsRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        let frames: Vec<_> = asked(&request)
            .into_iter()
            .flat_map(|metadata| {
                let half = |text: &str| {
                    Ok(Data {
                        metadata: metadata.clone(),
                        bytes: text.into(),
                    })
                };
                [half("first\nsec"), half("ond\n")]
            })
            .collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(frames))))
    }
}

async fn run(line: String) -> (Option<i32>, String, String) {
    let output = tokio::task::spawn_blocking(move || {
        cortenctl(&line.split_whitespace().collect::<Vec<_>>())
    })
    .await
    .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

async fn serve(tls: ServerTlsConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .tls_config(tls)
        .unwrap()
        .add_service(MachineServiceServer::new(Node))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    address
}

async fn configured(directory: &Path, names: &[&str]) -> SocketAddr {
    serve(crate::support::tls(directory, names)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_node_answers_clients_with_the_client_config() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let address = configured(directory.path(), &["127.0.0.1"]).await;
    let config = directory.path().join("cortenconfig");
    let flags = format!("--cortenconfig {} -e {address}", config.display());

    // The endpoint itself answers.
    let (code, out, err) = run(format!("{flags} memory")).await;
    let expected = "\
NODE        TOTAL   USED   FREE   SHARED   BUFFERS   CACHE   AVAILABLE
127.0.0.1   512     384    128    0        0         0       0
";
    assert_eq!((code, out.as_str()), (Some(0), expected), "{err}");

    // Two nodes behind it, one of which is down.
    let (code, out, err) = run(format!("{flags} memory -n node1,down")).await;
    let expected = "\
NODE    TOTAL   USED   FREE   SHARED   BUFFERS   CACHE   AVAILABLE
node1   512     384    128    0        0         0       0
";
    assert_eq!((code, out.as_str()), (Some(1), expected));
    assert_eq!(err, "error: down: no route to host\n");

    let (code, out, _) = run(format!("{flags} version -n node1")).await;
    assert_eq!(code, Some(0));
    assert!(
        out.contains("\tNODE:        node1\n\tTag:         v1.14.0+corten.test\n"),
        "{out}"
    );

    let (code, out, err) = run(format!("{flags} logs apid")).await;
    assert_eq!((code, out.as_str()), (Some(0), "first\nsecond\n"), "{err}");
    let (code, out, err) = run(format!("{flags} logs apid -n a -n b")).await;
    assert_eq!(
        (code, out.as_str()),
        (Some(0), "a: first\na: second\nb: first\nb: second\n"),
        "{err}"
    );

    let file = directory.path().join("worker.yaml");
    let (code, _, err) = run(format!("{flags} apply-config -f {}", file.display())).await;
    assert_eq!(
        (code, err.as_str()),
        (Some(0), "Applied configuration without a reboot\n")
    );

    // A call that this node does not implement.
    let (code, out, err) = run(format!("{flags} mounts")).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(
        err.starts_with("error: 127.0.0.1: this node does not offer the call"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_for_secrets_go_to_the_node_directly() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let endpoint = configured(directory.path(), &["127.0.0.1"]).await;
    let node = configured(directory.path(), &["127.0.0.1"]).await;
    let another = tempfile::tempdir().unwrap();
    generate(another.path());
    let impostor = configured(another.path(), &["127.0.0.1"]).await;
    let config = directory.path().join("cortenconfig");
    let flags = format!("--cortenconfig {} -e {endpoint}", config.display());

    let (code, out, err) = run(format!("{flags} -n {node} read /etc/key")).await;
    assert_eq!((code, out.as_str()), (Some(0), "a key\n"), "{err}");
    let (code, out, err) = run(format!("{flags} -n {node} config new -")).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("context: mine"), "{out}");
    // The node is unreachable, or not of the cluster: the error has the endpoint's own message.
    for away in ["127.0.0.1:1".to_owned(), impostor.to_string()] {
        for verb in ["read /etc/key", "config new -"] {
            let (code, out, err) = run(format!("{flags} -n {away} {verb}")).await;
            assert_eq!((code, out.as_str()), (Some(1), ""));
            assert!(err.contains(REFUSAL), "{err}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_answering_endpoint_is_used_and_errors_name_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let config = directory.path().join("cortenconfig");
    let config = config.display();
    let address = configured(directory.path(), &["localhost"]).await;
    let port = address.port();
    // No server listens on this port, and no test gets it.
    let closed = "127.0.0.1:1";

    let line = format!("--cortenconfig {config} -e {closed},localhost:{port} memory");
    let (code, out, err) = run(line).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("\nlocalhost   512"), "{out}");

    let (code, _, err) = run(format!("--cortenconfig {config} -e {closed} memory")).await;
    assert_eq!(code, Some(1));
    assert!(
        err.contains(&format!("{closed}: connection refused")),
        "{err}"
    );

    // The certificate names localhost only.
    let (code, _, err) = run(format!("--cortenconfig {config} -e {address} memory")).await;
    assert_eq!(code, Some(1));
    assert!(
        err.contains("does not name 127.0.0.1") && err.contains("--additional-sans"),
        "{err}"
    );

    // A client config of another cluster.
    let other = tempfile::tempdir().unwrap();
    generate(other.path());
    let stranger = other.path().join("cortenconfig");
    let line = format!(
        "--cortenconfig {} -e localhost:{port} memory",
        stranger.display()
    );
    let (code, _, err) = run(line).await;
    assert_eq!(code, Some(1));
    assert!(err.contains("not from the CA of this context"), "{err}");

    // No certificate at all.
    let (code, _, err) = run(format!("--insecure -n {address} memory")).await;
    assert_eq!(code, Some(1));
    assert!(err.contains("leave --insecure out"), "{err}");

    let (code, _, err) = run("memory".to_owned()).await;
    assert_eq!(code, Some(1));
    assert!(err.contains("--cortenconfig"), "{err}");
    let (code, _, _) = run("memory --nonsense".to_owned()).await;
    assert_eq!(code, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_a_config_is_trusted_by_its_fingerprint() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let server = maintenance(&["10.9.8.7".to_owned()], SystemTime::now()).unwrap();
    let chain = certificates_from_pem(server.crt.as_bytes()).unwrap();
    let print = fingerprint(chain.first().unwrap()).unwrap();
    let address = serve(ServerTlsConfig::new().identity(identity(&server))).await;
    let file = directory.path().join("controlplane.yaml");
    let apply = format!("apply-config --insecure -n {address} -f {}", file.display());

    let (code, _, err) = run(apply.clone()).await;
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = run(format!("{apply} --cert-fingerprint {print}")).await;
    assert_eq!(
        (code, err.as_str()),
        (Some(0), "Applied configuration without a reboot\n")
    );
    let (code, _, err) = run(format!("{apply} --cert-fingerprint AAAA")).await;
    assert_eq!(code, Some(1));
    assert!(
        err.contains(&format!("its fingerprint is {print}")),
        "{err}"
    );

    // With the client config, the certificate must be signed by the cluster's CA.
    let config = directory.path().join("cortenconfig");
    let (code, _, err) = run(format!(
        "--cortenconfig {} -e {address} version",
        config.display()
    ))
    .await;
    assert_eq!(code, Some(1));
    assert!(err.contains("add --insecure"), "{err}");
}

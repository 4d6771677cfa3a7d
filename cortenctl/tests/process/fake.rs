//! A fake node. It answers for itself and for the nodes it forwards to: `down` is unreachable,
//! `evil` sends invalid answers, `silent` does not report its processes, `stuck` fails to be reset;
//! every other name is a healthy node.

mod etcd;
mod files;
mod machine;
mod resources;
mod runtime;
mod services;
mod system;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use corten_api::cluster::cluster_service_server::ClusterServiceServer;
use corten_api::common::Metadata;
use corten_api::cosi::resource::state_server::StateServer;
use corten_api::inspect::inspect_service_server::InspectServiceServer;
use corten_api::machine::image_service_server::ImageServiceServer;
use corten_api::machine::machine_service_server::MachineServiceServer;
use corten_api::machine::storage_service_server::StorageServiceServer as FileSystemServiceServer;
use corten_api::storage::storage_service_server::StorageServiceServer;
use corten_api::time::time_service_server::TimeServiceServer;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::BoxStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::support::tls;

/// A unary call whose answer is a message for each node.
macro_rules! answer {
    ($request:expr, $reply:path, $kind:path, $message:expr) => {{
        use $kind as Kind;
        use $reply as Reply;
        #[allow(
            clippy::needless_update,
            reason = "some messages have nothing but metadata"
        )]
        let failed = |metadata| Kind {
            metadata,
            ..Default::default()
        };
        let messages = crate::fake::each(&$request, $message, failed);
        Ok(tonic::Response::new(Reply { messages }))
    }};
}

use answer;

/// Actor ID of every sequence.
const ACTOR: &str = "actor";

/// The state shared by the nodes.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    /// Number of reboots.
    boots: Arc<AtomicU32>,
    /// Number of queries for disk counters or processes.
    looks: Arc<AtomicU32>,
    /// The machine config of nodes whose name begins with `cp`, and of the others.
    control_plane: Arc<str>,
    config: Arc<str>,
}

impl Fake {
    /// Number of queries for disk counters or processes.
    pub(crate) fn looks(&self) -> u32 {
        self.looks.load(Ordering::Relaxed)
    }
}

/// Serves with the files of `gen config` in a directory.
pub(crate) async fn serve(directory: &Path) -> SocketAddr {
    start(directory).await.0
}

/// Serves as [`serve`] does; also returns the state shared by the nodes.
pub(crate) async fn start(directory: &Path) -> (SocketAddr, Fake) {
    let read = |name| std::fs::read_to_string(directory.join(name)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let fake = Fake {
        boots: Arc::default(),
        looks: Arc::default(),
        control_plane: read("controlplane.yaml").into(),
        config: read("worker.yaml").into(),
    };
    let server = Server::builder()
        .tls_config(tls(directory, &["127.0.0.1"]))
        .unwrap()
        .add_service(MachineServiceServer::new(fake.clone()))
        .add_service(StateServer::new(fake.clone()))
        .add_service(ImageServiceServer::new(fake.clone()))
        .add_service(InspectServiceServer::new(fake.clone()))
        .add_service(ClusterServiceServer::new(fake.clone()))
        .add_service(StorageServiceServer::new(fake.clone()))
        .add_service(FileSystemServiceServer::new(fake.clone()))
        .add_service(TimeServiceServer::new(fake.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    (address, fake)
}

fn names<T>(request: &Request<T>, key: &str) -> Vec<String> {
    let values = request.metadata().get_all(key).iter();
    values
        .map(|name| name.to_str().unwrap().to_owned())
        .collect()
}

/// A message for each requested node, made from its metadata.
fn each<T, M>(
    request: &Request<T>,
    mut message: impl FnMut(&str, Option<Metadata>) -> M,
    failed: impl Fn(Option<Metadata>) -> M,
) -> Vec<M> {
    let mut nodes = names(request, "nodes");
    if nodes.is_empty() {
        nodes = names(request, "node");
        let name = nodes.first().map_or("itself", String::as_str);
        // The answer of the called node itself has no name.
        return vec![message(name, None)];
    }
    nodes
        .into_iter()
        .map(|node| {
            let mut metadata = Metadata {
                hostname: node.clone(),
                ..Default::default()
            };
            if node == "down" {
                metadata.error = "no route to host".to_owned();
                return failed(Some(metadata));
            }
            message(&node, Some(metadata))
        })
        .collect()
}

/// Refuses a call forwarded to one node that is down.
fn up<T>(request: &Request<T>) -> Result<String, Status> {
    let nodes = names(request, "node");
    match nodes.first().map(String::as_str) {
        Some("down") => Err(Status::unavailable("no route to host")),
        Some(name) => Ok(name.to_owned()),
        None => Ok("itself".to_owned()),
    }
}

fn frames<M: Send + 'static>(messages: Vec<M>) -> Response<BoxStream<M>> {
    let messages = messages.into_iter().map(Ok);
    Response::new(Box::pin(tokio_stream::iter(messages)))
}

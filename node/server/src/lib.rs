//! The node's API on machined's socket, one file per family of methods; docs/api.md lists the methods.
//!
//! Owns: the handlers, the check of every caller, the audit log, limits, the interface to the node ([`node::Node`]).
//! Never: changes the node except through that interface, listens on the network, or reads files of the machine.

mod absent;
mod access;
mod actions;
mod apply;
mod audit;
mod callers;
mod clock;
mod containers;
mod disks;
mod etcd;
mod events;
mod forwarded;
mod health_check;
mod images;
mod inspect;
mod lifecycle;
mod logs;
mod machine;
mod meta;
pub mod node;
mod operator;
mod places;
mod pod_logs;
mod request;
mod resources;
mod service;
mod services;
#[cfg(test)]
mod tests;
mod wipe;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corten_api::cluster::cluster_service_server::ClusterServiceServer;
use corten_api::cosi::resource::state_server::StateServer;
use corten_api::inspect::inspect_service_server::InspectServiceServer;
use corten_api::machine::image_service_server::ImageServiceServer;
use corten_api::machine::lifecycle_service_server::LifecycleServiceServer;
use corten_api::machine::machine_service_server::MachineServiceServer;
use corten_api::machine::storage_service_server::StorageServiceServer as FileSystemsServer;
use corten_api::metadata::{LARGEST_CHAIN, LARGEST_OWN};
use corten_api::requests::PART;
use corten_api::storage::storage_service_server::StorageServiceServer as DisksServer;
use corten_api::time::time_service_server::TimeServiceServer;
use corten_api::{MAX_MESSAGE, PORT};
use corten_kubernetes::etcd::DATA;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_observe::file_systems::{FileSystems, Meter};
use corten_supervisor::kubernetes::ETCD;
use corten_supervisor::{CONTAINERD_SOCKET, MACHINED_SOCKET};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Error, Server};

use crate::node::Node;
use access::AccessLayer;
pub use access::Local;
use machine::Machine;
use resources::Resources;
pub use wipe::volume_of_a_node;

/// HTTP/2 keep-alive: a silent peer is pinged, and dropped if it does not answer, so that a hung peer does not hold its
/// streams.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of the metadata of one call in bytes: the caller's and apid's metadata, and the certificates of the caller and
/// of a forwarding node. The keys of up to 256 certificates come with them.
const HEADERS: usize = LARGEST_OWN + 2 * LARGEST_CHAIN + 16 * 1024;
/// Limit of concurrent calls on one connection. apid shares its connections among all callers.
const STREAMS: u32 = 512;

/// Files and sockets that the server uses. Only tests differ from the default.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Files of the kernel.
    pub machine: corten_observe::Paths,
    /// syslogd's socket.
    pub syslogd: PathBuf,
    /// containerd's socket.
    pub containerd: PathBuf,
    /// Directory of etcd's data. A snapshot for a bootstrap lies next to it.
    pub etcd: PathBuf,
    /// Directory of etcd's certificates.
    pub etcd_secrets: PathBuf,
    /// The socket of this server.
    pub machined: PathBuf,
    /// Address of apid.
    pub apid: SocketAddr,
    /// The peer of the socket that needs no certificate.
    pub local: Local,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            machine: corten_observe::Paths::default(),
            syslogd: PathBuf::from("/run/syslogd/syslogd.sock"),
            containerd: PathBuf::from(CONTAINERD_SOCKET),
            etcd: PathBuf::from(DATA),
            etcd_secrets: Path::new(HOST_SECRETS).join(ETCD),
            machined: PathBuf::from(MACHINED_SOCKET),
            apid: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            local: Local::default(),
        }
    }
}

impl Paths {
    /// Path of the snapshot for a bootstrap.
    fn snapshot(&self) -> PathBuf {
        self.etcd.with_extension("snapshot")
    }
}

/// Converts a protobuf duration; `None` if it is negative or malformed. The library's own conversion overflows at the
/// minimum.
fn duration(asked: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(asked.seconds).ok()?;
    let nanos = u32::try_from(asked.nanos).ok()?;
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

/// Whether the text can be a host name or is an IP address; without a port.
fn is_host(text: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = (1..=253).contains(&text.len()) && text.bytes().all(usual);
    is_name || text.parse::<IpAddr>().is_ok()
}

/// Serves until the listener fails.
///
/// # Errors
/// Those of the transport.
pub async fn serve(listener: UnixListener, node: Arc<dyn Node>) -> Result<(), Error> {
    serve_from(listener, node, Paths::default()).await
}

/// [`serve`] with other paths.
///
/// # Errors
/// Those of the transport.
pub async fn serve_from(
    listener: UnixListener,
    node: Arc<dyn Node>,
    paths: Paths,
) -> Result<(), Error> {
    let images = ImageServiceServer::new(images::Images::new(&paths, node.clone()))
        .max_decoding_message_size(PART)
        .max_encoding_message_size(MAX_MESSAGE);
    let health = health_check::HealthChecks::new(node.clone(), paths.clone());
    let meter = Meter::of_the_kernel();
    let local = paths.local;
    let service = MachineServiceServer::new(Machine::new(node.clone(), paths, &meter))
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    let store = node.store().clone();
    let resources = StateServer::new(Resources { store }).max_encoding_message_size(MAX_MESSAGE);
    let disks = DisksServer::new(disks::Disks::new(node.clone()));
    let lifecycle = LifecycleServiceServer::new(lifecycle::Lifecycle::new(node.clone()));
    let clock = TimeServiceServer::new(clock::Clock::new(node.clone()));
    let inspect = InspectServiceServer::new(inspect::Inspect { node: node.clone() });
    Server::builder()
        .max_concurrent_streams(STREAMS)
        .http2_max_header_list_size(u32::try_from(HEADERS).unwrap_or(u32::MAX))
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .layer(AccessLayer::new(node, local))
        .add_service(service)
        .add_service(FileSystemsServer::new(FileSystems::new(&meter)))
        .add_service(disks)
        .add_service(clock)
        .add_service(resources)
        .add_service(images)
        .add_service(lifecycle)
        .add_service(ClusterServiceServer::new(health))
        .add_service(inspect)
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
}

//! Client of containerd's gRPC API: containers, snapshots and images, in the namespaces [`SYSTEM`] and [`PODS`] only.
//!
//! Owns: the connection to containerd's socket, and the parsing of its answers.
//! Never: caches anything; each call queries containerd, so containerd may restart at any time.

mod containers;
mod content;
mod images;
mod seccomp;
mod snapshots;
mod spec;
mod stream;
mod tasks;
mod transfer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use corten_base::unix;
use tokio::time::{sleep, timeout};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::Channel;
use tonic::{Request, Status};

pub use containers::{Container, Kind};
pub use images::Image;
pub use transfer::{Progress, Purpose};

/// Namespace of the node's own containers.
pub const SYSTEM: &str = "system";
/// Namespace of pods.
pub const PODS: &str = "k8s.io";

/// Directory of containerd's registry settings, with a subdirectory for each registry.
pub const HOSTS: &str = "/run/containerd/certs.d";

/// Time for containerd to come up on a node that has just started.
const STARTS: Duration = Duration::from_secs(120);
/// Pause between two attempts to reach a containerd that starts.
const RETRY: Duration = Duration::from_millis(250);

/// Client of this node's containerd; cheap to clone.
#[derive(Debug, Clone)]
pub struct Containerd {
    socket: PathBuf,
    /// Registry settings (containerd, `docs/hosts.md`).
    hosts: PathBuf,
}

impl Containerd {
    /// A client for `socket`, which may appear later.
    #[must_use]
    pub fn new(socket: &Path) -> Containerd {
        Containerd {
            socket: socket.to_owned(),
            hosts: HOSTS.into(),
        }
    }

    /// Waits for a containerd that still starts, 120 s at most: the node's API answers before containerd does. If
    /// containerd does not come up, the next call says so.
    pub async fn started(&self) {
        let answers = async {
            while unix::connect(&self.socket).await.is_err() {
                sleep(RETRY).await;
            }
        };
        let _ = timeout(STARTS, answers).await;
    }

    /// Connects for one call of ours and all the requests that it needs.
    async fn connect(&self, namespace: &'static str) -> Result<Session, Status> {
        let channel = unix::connect(&self.socket).await.map_err(|_| {
            Status::unavailable("containerd does not answer; the service list shows the reason")
        })?;
        Ok(Session {
            channel,
            namespace: Namespace(MetadataValue::from_static(namespace)),
        })
    }
}

/// A connection with the namespace of all its requests.
#[derive(Debug, Clone)]
struct Session {
    channel: Channel,
    namespace: Namespace,
}

/// Adds the namespace to requests (containerd, `docs/namespaces.md`).
#[derive(Debug, Clone)]
struct Namespace(MetadataValue<Ascii>);

impl Interceptor for Namespace {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let header = request.metadata_mut();
        header.insert("containerd-namespace", self.0.clone());
        Ok(request)
    }
}

/// A client of one of containerd's services on a session.
macro_rules! client {
    ($session:expr, $($part:ident)::+) => {
        containerd_client::services::v1::$($part)::+::with_interceptor(
            $session.channel.clone(),
            $session.namespace.clone(),
        )
        .max_decoding_message_size(corten_api::MAX_MESSAGE)
    };
}
use client;

#[cfg(test)]
mod real_tests;

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn starting_containerd_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("containerd.sock");
        let containerd = Containerd::new(&socket);
        let started = containerd.started();
        tokio::pin!(started);
        assert!(timeout(RETRY * 10, &mut started).await.is_err());
        let _listener = UnixListener::bind(&socket).unwrap();
        timeout(RETRY * 10, started).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn absent_containerd_is_not_waited_for_without_end() {
        let containerd = Containerd::new(Path::new("/nonexistent/containerd.sock"));
        timeout(STARTS * 2, containerd.started()).await.unwrap();
    }
}

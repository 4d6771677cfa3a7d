//! The container runtime, by its gRPC API: what runs in it, and which images it has.
//!
//! Owns: the connection to containerd's socket, and the reading of its answers.
//! Never does: keep anything; containerd is asked anew each time, so it may be restarted at any moment.
//!
//! Two of containerd's namespaces are used: [`SYSTEM`] for the node's own containers, [`PODS`] for what
//! the kubelet runs. No caller can name another.

mod containers;
mod images;
mod seccomp;
mod snapshots;
mod spec;
mod stream;
mod tasks;
mod transfer;

use std::path::{Path, PathBuf};

use corten_base::unix;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::Channel;
use tonic::{Request, Status};

pub use containers::{Container, Kind};
pub use images::Image;
pub use transfer::{Progress, Purpose};

/// containerd's namespace for the node's own containers.
pub const SYSTEM: &str = "system";
/// containerd's namespace for pods.
pub const PODS: &str = "k8s.io";

/// Whom containerd asks for images: a directory a registry.
pub const HOSTS: &str = "/run/containerd/certs.d";

/// The runtime of this node; cheap to clone.
#[derive(Debug, Clone)]
pub struct Containerd {
    socket: PathBuf,
    /// Where containerd looks up whom to ask for a registry's images (containerd, `docs/hosts.md`).
    hosts: PathBuf,
}

impl Containerd {
    /// The runtime behind `socket`, which need not be there yet.
    #[must_use]
    pub fn new(socket: &Path) -> Containerd {
        Containerd {
            socket: socket.to_owned(),
            hosts: HOSTS.into(),
        }
    }

    /// A connection for one call of ours and all it needs of containerd.
    async fn connect(&self, namespace: &'static str) -> Result<Session, Status> {
        let channel = unix::connect(&self.socket).await.map_err(|_| {
            Status::unavailable("containerd does not answer; the service list says why")
        })?;
        Ok(Session {
            channel,
            namespace: Namespace(MetadataValue::from_static(namespace)),
        })
    }
}

/// A connection, and the namespace every request on it is for.
#[derive(Debug, Clone)]
struct Session {
    channel: Channel,
    namespace: Namespace,
}

/// Puts the namespace into requests (containerd, `docs/namespaces.md`).
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

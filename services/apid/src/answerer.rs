//! The answerers of calls, machined on this node and apid on other nodes, and the connections to them.

use std::sync::Arc;

use http::{Request, Response};
use rustls::ClientConfig;
use tonic::Status;

use crate::answer::Answer;
use crate::peers::Peers;
use crate::reply::Body;
use crate::upstream::Upstream;

/// The answerer of a call.
#[derive(Debug, Clone)]
pub(crate) enum Answerer {
    /// machined on this node.
    Here,
    /// apid on another node.
    Node(String, Arc<ClientConfig>),
}

/// Connections to all answerers.
#[derive(Debug)]
pub(crate) struct Answerers {
    pub(crate) upstream: Upstream,
    pub(crate) peers: Peers,
}

impl Answerers {
    /// Sends a request to its answerer and waits for the head of the answer.
    pub(crate) async fn send(
        &self,
        answerer: &Answerer,
        request: Request<Body>,
    ) -> Result<Response<Answer>, Status> {
        match answerer {
            Answerer::Here => self.upstream.send(request).await,
            Answerer::Node(node, config) => self.peers.send(node, config, request).await,
        }
    }
}

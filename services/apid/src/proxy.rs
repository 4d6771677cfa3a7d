//! A call, from its head to its answer: roles, targets, machined.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use corten_api::metadata;
use corten_api::roles::{Role, allows};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::frames::{Frames, framed};
use crate::local;
use crate::merge;
use crate::reply::{Body, BoxError, refusal};
use crate::targets::{self, Targets};
use crate::upstream::Upstream;

/// Frames between machined and a caller that reads slowly.
const QUEUE: usize = 16;

/// Who calls, and how he came in.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Roles of his certificate.
    pub(crate) roles: Vec<Role>,
    /// The address of ours he reached.
    pub(crate) reached: IpAddr,
}

/// What every call needs.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) upstream: Upstream,
    pub(crate) maintenance: bool,
}

impl Proxy {
    /// Answers a call. Refusals are answers, too.
    pub(crate) async fn call(
        self: Arc<Proxy>,
        caller: Caller,
        request: Request<Incoming>,
    ) -> Response<Body> {
        match self.answer(&caller, request).await {
            Ok(response) => response,
            Err(status) => refusal(&status),
        }
    }

    async fn answer(
        self: Arc<Proxy>,
        caller: &Caller,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Status> {
        let (head, body) = request.into_parts();
        let grpc = head.headers.get(CONTENT_TYPE).is_some_and(|kind| {
            kind.to_str()
                .is_ok_and(|kind| kind.starts_with("application/grpc"))
        });
        if head.method != Method::POST || !grpc {
            return Err(Status::invalid_argument("this is a gRPC server"));
        }
        let path = head.uri.path().to_owned();
        let roles = effective_roles(&caller.roles, &head.headers);
        if !allows(&path, &roles, self.maintenance) {
            return Err(Status::permission_denied("not authorized"));
        }
        let here = |target: &str| {
            let authority = head.uri.authority().map(http::uri::Authority::as_str);
            local::is_this_node(target, caller.reached, authority)
        };
        let forward = Forward {
            path,
            headers: forwarded(&head.headers, &roles)?,
        };
        match targets::of(&head.headers, &forward.path, self.maintenance)? {
            Targets::Here => self.pass(forward, body).await,
            Targets::One(node) if here(&node) => self.pass(forward, body).await,
            Targets::One(node) => Err(no_forwarding(&node)),
            Targets::Many(nodes) => {
                let nodes = nodes.into_iter().map(|node| (here(&node), node)).collect();
                self.many(forward, body, nodes).await
            }
        }
    }

    /// Hands the call on as it is, and the answer back as it is.
    async fn pass(&self, forward: Forward, body: Incoming) -> Result<Response<Body>, Status> {
        let body = body.map_err(BoxError::from).boxed_unsync();
        let response = self.upstream.send(forward.request(body)?).await?;
        Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
    }

    /// Asks every node and joins the labelled answers.
    async fn many(
        self: Arc<Proxy>,
        forward: Forward,
        body: Incoming,
        nodes: Vec<(bool, String)>,
    ) -> Result<Response<Body>, Status> {
        let mut frames = Frames::new(body);
        let message = frames.next().await?.unwrap_or_default();
        let (sender, receiver) = mpsc::channel(QUEUE);
        if merge::is_stream(&forward.path) {
            for (here, node) in nodes {
                let (proxy, forward) = (self.clone(), forward.clone());
                let (message, sender) = (message.clone(), sender.clone());
                tokio::spawn(async move {
                    if let Err(status) = proxy.stream(here, &node, forward, &message, &sender).await
                    {
                        let _ = sender.send(framed(&merge::failure(&node, &status))).await;
                    }
                });
            }
        } else {
            let mut reply = Vec::new();
            for (here, node) in nodes {
                match self.unary(here, &node, forward.clone(), &message).await {
                    Ok(bytes) => reply.extend(merge::labelled_reply(&bytes, &node)),
                    Err(status) => reply.extend(merge::wrapped(&merge::failure(&node, &status))),
                }
            }
            let _ = sender.send(framed(&reply)).await;
        }
        Ok(success(receiver))
    }

    async fn unary(
        &self,
        here: bool,
        node: &str,
        forward: Forward,
        message: &Bytes,
    ) -> Result<Bytes, Status> {
        let mut frames = self.open(here, node, forward, message).await?;
        let reply = frames.next().await?;
        while frames.next().await?.is_some() {}
        outcome(frames.into_trailers())?;
        Ok(reply.unwrap_or_default())
    }

    async fn stream(
        &self,
        here: bool,
        node: &str,
        forward: Forward,
        message: &Bytes,
        sender: &mpsc::Sender<Bytes>,
    ) -> Result<(), Status> {
        let mut frames = self.open(here, node, forward, message).await?;
        loop {
            // A caller who hangs up must end the stream at machined as well.
            let next = tokio::select! {
                next = frames.next() => next?,
                () = sender.closed() => return Ok(()),
            };
            let Some(message) = next else { break };
            if sender
                .send(framed(&merge::labelled_message(&message, node)))
                .await
                .is_err()
            {
                return Ok(());
            }
        }
        outcome(frames.into_trailers())
    }

    async fn open(
        &self,
        here: bool,
        node: &str,
        forward: Forward,
        message: &Bytes,
    ) -> Result<Frames, Status> {
        if !here {
            return Err(no_forwarding(node));
        }
        let body = Full::new(framed(message))
            .map_err(|never| match never {})
            .boxed_unsync();
        let response = self.upstream.send(forward.request(body)?).await?;
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Err(status);
        }
        Ok(Frames::new(response.into_body()))
    }
}

/// A call as machined gets it.
#[derive(Debug, Clone)]
struct Forward {
    path: String,
    headers: HeaderMap,
}

impl Forward {
    fn request(self, body: Body) -> Result<Request<Body>, Status> {
        let uri = Uri::builder()
            .scheme("http")
            .authority("machined")
            .path_and_query(self.path)
            .build()
            .map_err(|_| Status::invalid_argument("not a method's path"))?;
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers;
        Ok(request)
    }
}

/// A certificate's roles; those in the metadata when it may speak for others.
fn effective_roles(certificate: &[Role], headers: &HeaderMap) -> Vec<Role> {
    if !certificate.contains(&Role::Impersonator) {
        return certificate.to_vec();
    }
    headers
        .get_all(metadata::ROLE)
        .iter()
        .filter_map(|value| Role::parse(value.to_str().ok()?))
        .collect()
}

/// The caller's headers, with our word for his roles in place of his own.
fn forwarded(headers: &HeaderMap, roles: &[Role]) -> Result<HeaderMap, Status> {
    let mut headers = headers.clone();
    for own in [
        metadata::ROLE,
        metadata::NODE,
        metadata::NODES,
        metadata::PROXY_FROM,
        "host",
    ] {
        headers.remove(own);
    }
    let name = HeaderName::from_static(metadata::ROLE);
    for role in roles {
        let value = HeaderValue::from_static(role.name());
        headers
            .try_append(name.clone(), value)
            .map_err(|_| Status::resource_exhausted("too much metadata"))?;
    }
    Ok(headers)
}

fn no_forwarding(node: &str) -> Status {
    Status::unimplemented(format!(
        "{node} is not this node, and this version does not forward to others: name it as endpoint"
    ))
}

fn outcome(trailers: Option<HeaderMap>) -> Result<(), Status> {
    match trailers.as_ref().and_then(Status::from_header_map) {
        None => Err(Status::unavailable("machined broke off")),
        Some(status) if status.code() == tonic::Code::Ok => Ok(()),
        Some(status) => Err(status),
    }
}

/// An answer of frames, ending well: failures are inside, node by node.
fn success(frames: mpsc::Receiver<Bytes>) -> Response<Body> {
    use tokio_stream::StreamExt as _;
    let mut trailers = HeaderMap::new();
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    let end = tokio_stream::once(Ok(Frame::trailers(trailers)));
    let frames = ReceiverStream::new(frames).map(|frame| Ok::<_, BoxError>(Frame::data(frame)));
    let mut response = Response::new(UnsyncBoxBody::new(StreamBody::new(frames.chain(end))));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

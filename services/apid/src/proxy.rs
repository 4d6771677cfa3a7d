//! A call from head to answer: authentication, authorization, routing.

use std::sync::Arc;
use std::time::Duration;

use corten_api::metadata;
use corten_api::roles::{Role, allows, is_listed};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tonic::Status;

use crate::answerer::{Answerer, Answerers};
use crate::audit::{Audit, Line};
use crate::call::Call;
use crate::caller::Caller;
use crate::fanout::{self, FanOut};
use crate::forward::Forward;
use crate::frames::Memory;
use crate::identity::{Current, Identity};
use crate::intake::Intake;
use crate::local;
use crate::quota::{Quota, Taken};
use crate::reply::{Body, BoxError, refusal};
use crate::targets::{self, Targets};

/// State shared by all calls.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) identity: Identity,
    pub(crate) answerers: Arc<Answerers>,
    /// Concurrent calls; one to several nodes counts once per node.
    pub(crate) calls: Quota,
    /// Bytes of long messages of merged calls.
    pub(crate) memory: Quota,
    /// Bytes of long requests.
    pub(crate) requests: Quota,
    /// Timeout of a node for the head of a stream, and for a read-only call.
    pub(crate) patience: Duration,
    pub(crate) audit: Audit,
    pub(crate) maintenance: bool,
}

impl Proxy {
    /// Answers a call. A refusal is an answer, too.
    pub(crate) async fn call(&self, caller: &Caller, request: Request<Incoming>) -> Response<Body> {
        let active = caller.begin();
        let (head, body) = request.into_parts();
        let mut line = None;
        let answered = self.answer(caller, head, body, &mut line).await;
        let (response, share) = match answered {
            Ok((response, share)) => (response, Some(share)),
            Err(status) => (refusal(&status), None),
        };
        if let Some(status) = Status::from_header_map(response.headers())
            && let Some(line) = &mut line
        {
            line.ended(&status);
        }
        response.map(|body| Body::new(Call::new(body, line, (share, active))))
    }

    async fn answer(
        &self,
        caller: &Caller,
        head: Parts,
        body: Incoming,
        line: &mut Option<Line>,
    ) -> Result<(Response<Body>, Taken), Status> {
        let grpc = head.headers.get(CONTENT_TYPE).is_some_and(|kind| {
            kind.to_str()
                .is_ok_and(|kind| kind.starts_with("application/grpc"))
        });
        if head.method != Method::POST || !grpc {
            return Err(Status::invalid_argument("this server answers gRPC only"));
        }
        let path = head.uri.path();
        let roles = effective_roles(&caller.roles, &head.headers);
        *line = self.audit.begin(path, &head.headers, &roles, caller);
        let current = self.identity.current();
        if !caller.is_accepted(&current) {
            return Err(Status::unauthenticated(
                "the certificate is no longer valid: connect again with a valid certificate",
            ));
        }
        if !allows(path, &roles, self.maintenance) {
            return Err(Status::permission_denied("not authorized"));
        }
        if !is_listed(path) {
            return Err(Status::unimplemented(format!("no method {path}")));
        }
        let targets = targets::of(&head.headers, path, self.maintenance)?;
        let forward = Forward::of(&head, &roles, caller, line.as_ref().map(Line::who))?;
        let holder = caller.holder(&roles);
        let calls = match &targets {
            Targets::Here | Targets::One(_) => 1,
            Targets::Many(nodes, _) => nodes.len(),
        };
        let share = self
            .calls
            .take(&holder, calls)
            .ok_or_else(|| Status::resource_exhausted("too many calls at once: try again later"))?;
        let intake = Intake::new(body, path, self.requests.begin(&holder))?;
        if let Some(line) = line {
            line.is_handed_on();
        }
        let answerer = |node: &str| answerer(node, caller, &head, &current);
        let response = match targets {
            Targets::Here => {
                drop(head);
                self.one(Answerer::Here, forward, intake).await?
            }
            Targets::One(node) => {
                let answerer = answerer(&node)?;
                drop(head);
                self.one(answerer, forward, intake).await?
            }
            Targets::Many(nodes, reply) => {
                let rows = nodes.into_iter().map(|node| {
                    let answerer = answerer(&node)?;
                    Ok(fanout::Row { node, answerer })
                });
                let rows: Vec<_> = rows.collect::<Result<_, Status>>()?;
                drop(head);
                let nodes = line.as_ref().map(|line| line.nodes.clone());
                let memory = Memory {
                    quota: self.memory.clone(),
                    holder,
                };
                let fan_out = FanOut::new(
                    self.answerers.clone(),
                    forward,
                    memory,
                    self.patience,
                    nodes.unwrap_or_default(),
                );
                fan_out.ask(rows, reply, intake).await?
            }
        };
        Ok((response, share))
    }

    /// Forwards the call and its answer unchanged.
    async fn one(
        &self,
        answerer: Answerer,
        forward: Forward,
        intake: Intake,
    ) -> Result<Response<Body>, Status> {
        let sent = async {
            let request = forward.request(&answerer, intake.body)?;
            self.answerers.send(&answerer, request).await
        };
        let response = intake.failure.or(sent).await?;
        Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
    }
}

/// The answerer for `node`. A worker has no certificate to call other nodes with.
fn answerer(
    node: &str,
    caller: &Caller,
    head: &Parts,
    current: &Current,
) -> Result<Answerer, Status> {
    let authority = head.uri.authority().map(http::uri::Authority::as_str);
    if local::is_this_node(node, caller.reached, authority) {
        return Ok(Answerer::Here);
    }
    // With this node's certificate, the next node could not tell which node forwarded first.
    if caller.roles.contains(&Role::Impersonator) {
        return Err(Status::permission_denied(
            "a forwarded call is not forwarded again",
        ));
    }
    if let Some(config) = &current.client {
        return Ok(Answerer::Node(node.to_owned(), config.clone()));
    }
    if corten_pki::is_for(&current.own, local::bare(node)).unwrap_or(false) {
        return Ok(Answerer::Here);
    }
    Err(Status::permission_denied(
        "no request forwarding: this node is a worker; use a control plane node as endpoint",
    ))
}

/// The certificate's roles; for a forwarding node, the roles in the metadata.
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn impersonator_has_the_forwarded_roles_and_none_of_its_own() {
        let mut headers = HeaderMap::new();
        headers.append("talos-role", HeaderValue::from_static("os:reader"));
        headers.append("talos-role", HeaderValue::from_static("os:root"));
        let both = [Role::Impersonator, Role::Admin];
        assert_eq!(effective_roles(&both, &headers), [Role::Reader]);
        assert_eq!(effective_roles(&both, &HeaderMap::new()), []);
        assert_eq!(effective_roles(&[Role::Admin], &headers), [Role::Admin]);
    }
}

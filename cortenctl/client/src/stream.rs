//! The loop over nodes for calls to one node at a time, and the loop over the frames of a stream.

use std::future::Future;
use std::io;

use corten_api::common::Data;
use corten_api::metadata::NOT_FORWARDED;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::clients::Service;
use crate::connect::{Direct, Route, Session, Target, count};
use crate::failure::{Failure, finish};
use crate::messages::{Message, failure_of, node_of};
use crate::status::{DEADLINE, explain};

/// Failed nodes, each with its error.
pub type Failed = Vec<(String, String)>;

/// The reason why the work on one node ended early.
#[derive(Debug)]
pub enum Trouble {
    /// The node refused, or the connection broke.
    Call(Status),
    /// The node's answer is unusable; a sentence.
    Said(String),
    /// This side failed: the remaining nodes are not called.
    Here(Failure),
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Trouble {
        Trouble::Call(status)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Here(failure)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Here(error.into())
    }
}

/// One node and its connection, for calls to one node at a time.
#[derive(Debug, Clone)]
pub struct Node {
    /// The name in outputs.
    pub name: String,
    channel: Channel,
    /// Metadata value of the node behind the endpoint; `None` for the endpoint itself.
    asked: Option<MetadataValue<Ascii>>,
    /// The way to connect to the node directly.
    direct: Option<Direct>,
}

impl Node {
    fn all(name: &str, session: &Session) -> Vec<Node> {
        let one = |name: &str, asked| Node {
            name: name.to_owned(),
            channel: session.channel.clone(),
            asked,
            direct: session.direct.clone(),
        };
        if session.nodes.is_empty() {
            return vec![one(name, None)];
        }
        let nodes = session.nodes.iter();
        nodes
            .map(|(name, value)| one(name, Some(value.clone())))
            .collect()
    }

    /// The same node over a connection of its own. `None` if it cannot be reached, or if the
    /// connection is direct already.
    async fn itself(&self) -> Option<Node> {
        self.asked.as_ref()?;
        let channel = self.direct.as_ref()?.open(&self.name).await.ok()?;
        Some(Node {
            name: self.name.clone(),
            channel,
            asked: None,
            direct: None,
        })
    }

    /// Runs `work`, and repeats it over a direct connection if the node refuses a forwarded call.
    pub async fn or_itself<T>(
        &self,
        mut work: impl AsyncFnMut(&Node) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        match work(self).await {
            Err(Trouble::Call(status)) if is_not_forwarded(&status) => match self.itself().await {
                Some(node) => work(&node).await,
                None => Err(status.into()),
            },
            done => done,
        }
    }

    /// A client of a service on the connection.
    pub fn client<C: Service>(&self) -> C {
        C::over(self.channel.clone())
    }

    /// A request without a timeout, for a stream that stays open.
    pub fn request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        if let Some(node) = &self.asked {
            let metadata = request.metadata_mut();
            metadata.insert(corten_api::metadata::NODE, node.clone());
        }
        request
    }

    /// A request with a timeout.
    pub fn brief<B>(&self, body: B) -> Request<B> {
        let mut request = self.request(body);
        request.set_timeout(DEADLINE);
        request
    }
}

/// Runs `work` on every session; collects the routes that are not open or fail.
pub async fn sessions(
    routes: Vec<Route>,
    mut work: impl AsyncFnMut(&str, &Session, &mut Failed) -> Result<(), Trouble>,
) -> Result<Failed, Failure> {
    let mut failed = Vec::new();
    for Route { name, session } in routes {
        match session {
            Err(why) => failed.push((name, why)),
            Ok(session) => match work(&name, &session, &mut failed).await {
                Ok(()) => {}
                Err(trouble) => failed.push((name, told(trouble, &session.roles)?)),
            },
        }
    }
    Ok(failed)
}

/// Whether a node refuses the call because another node forwarded it.
fn is_not_forwarded(status: &Status) -> bool {
    status.code() == Code::PermissionDenied && status.message().contains(NOT_FORWARDED)
}

fn told(trouble: Trouble, roles: &[String]) -> Result<String, Failure> {
    match trouble {
        Trouble::Call(status) => Ok(explain(&status, roles)),
        Trouble::Said(why) => Ok(why),
        Trouble::Here(failure) => Err(failure),
    }
}

/// Works on one node after the other, for services that answer for one node at a time. `work` may run
/// twice for a node, see [`Node::or_itself`].
pub async fn each(
    routes: Vec<Route>,
    work: impl AsyncFnMut(&Node) -> Result<(), Trouble>,
) -> Result<Failed, Failure> {
    visit(routes, None, work).await
}

/// As [`each`], but stops at the first failure: the nodes after it fail with `untouched`.
pub async fn in_turn(
    routes: Vec<Route>,
    untouched: &str,
    work: impl AsyncFnMut(&Node) -> Result<(), Trouble>,
) -> Result<Failed, Failure> {
    visit(routes, Some(untouched), work).await
}

async fn visit(
    routes: Vec<Route>,
    untouched: Option<&str>,
    mut work: impl AsyncFnMut(&Node) -> Result<(), Trouble>,
) -> Result<Failed, Failure> {
    sessions(routes, async |name, session, failed| {
        for node in Node::all(name, session) {
            match untouched {
                Some(why) if !failed.is_empty() => failed.push((node.name, why.to_owned())),
                _ => {
                    if let Err(trouble) = node.or_itself(&mut work).await {
                        failed.push((node.name, told(trouble, &session.roles)?));
                    }
                }
            }
        }
        Ok(())
    })
    .await
}

/// Runs `work` on the one node of a target over a new connection. Every error is a sentence.
pub async fn alone<T>(
    target: &Target,
    mut work: impl AsyncFnMut(&Node) -> Result<T, Trouble>,
) -> Result<T, String> {
    let asked = async {
        let mut found = None;
        let failed = each(target.open().await?, async |node| {
            found = Some(work(node).await?);
            Ok(())
        })
        .await?;
        Ok::<_, Failure>((found, failed))
    };
    match asked.await {
        Ok((Some(found), _)) => Ok(found),
        Ok((None, failed)) => {
            let why = failed.into_iter().next().map(|(_, why)| why);
            Err(why.unwrap_or_else(|| "it does not answer".to_owned()))
        }
        Err(failure) => Err(failure.sentence()),
    }
}

/// Refuses more than one node, for a verb whose output is one file.
pub fn only_one(routes: &[Route], what: &str) -> Result<(), Failure> {
    if count(routes) == 1 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "only one node can {what}: name it with -n"
    )))
}

/// Passes on every frame of a stream until its end.
pub async fn drain<M>(
    frames: &mut Streaming<M>,
    mut take: impl FnMut(M) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    while let Some(frame) = frames.message().await? {
        take(frame)?;
    }
    Ok(())
}

/// Collects the frames of a stream, at most `limit` bytes of them. Keeps the data before an error;
/// `too_large` is the error for a longer stream.
pub async fn gather(
    frames: &mut Streaming<Data>,
    limit: usize,
    too_large: &str,
    bytes: &mut Vec<u8>,
) -> Result<(), Trouble> {
    drain(frames, |frame: Data| {
        if bytes.len() + frame.bytes.len() > limit {
            return Err(Trouble::Said(too_large.to_owned()));
        }
        bytes.extend_from_slice(&frame.bytes);
        Ok(())
    })
    .await
}

/// Makes a streaming call and passes every frame to `take` with the frame's node.
pub async fn stream<C, B, M, F, Fut, G>(
    routes: Vec<Route>,
    body: B,
    call: F,
    mut take: G,
) -> Result<Failed, Failure>
where
    C: Service,
    B: Clone,
    M: Message,
    F: Fn(C, Request<B>) -> Fut,
    Fut: Future<Output = Result<Response<Streaming<M>>, Status>>,
    G: FnMut(&str, M) -> Result<(), Failure>,
{
    frames(routes, body, call, |node, frame, failed| match frame {
        Ok(message) => take(node, message),
        Err(why) => {
            failed.push((node.to_owned(), why));
            Ok(())
        }
    })
    .await
}

/// As [`stream`], for a stream that may never end: the error of a node is printed when it arrives.
pub async fn follow<C, B, M, F, Fut, G>(
    routes: Vec<Route>,
    body: B,
    call: F,
    mut take: G,
) -> Result<(), Failure>
where
    C: Service,
    B: Clone,
    M: Message,
    F: Fn(C, Request<B>) -> Fut,
    Fut: Future<Output = Result<Response<Streaming<M>>, Status>>,
    G: FnMut(&str, M) -> Result<(), Failure>,
{
    let mut has_failed = false;
    let failed = frames(routes, body, call, |node, frame, _| match frame {
        Ok(message) => take(node, message),
        Err(why) => {
            has_failed = finish(&[(node.to_owned(), why)]).is_err();
            Ok(())
        }
    })
    .await?;
    finish(&failed)?;
    match has_failed {
        true => Err(Failure::Told),
        false => Ok(()),
    }
}

/// Makes a streaming call and passes every frame, or the error of its node, to `take`.
async fn frames<C, B, M, F, Fut, G>(
    routes: Vec<Route>,
    body: B,
    call: F,
    mut take: G,
) -> Result<Failed, Failure>
where
    C: Service,
    B: Clone,
    M: Message,
    F: Fn(C, Request<B>) -> Fut,
    Fut: Future<Output = Result<Response<Streaming<M>>, Status>>,
    G: FnMut(&str, Result<M, String>, &mut Failed) -> Result<(), Failure>,
{
    sessions(routes, async |name, session, failed| {
        let request = session.request(body.clone());
        let mut frames = call(session.client(), request).await?.into_inner();
        drain(&mut frames, |message: M| {
            let node = node_of(&message, name);
            let frame = failure_of(&message).map_or(Ok(message), Err);
            Ok(take(&node, frame, failed)?)
        })
        .await
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(names: &[&str]) -> Route {
        let node = |name: &&str| (name.to_string(), name.parse().unwrap());
        let session = Session {
            channel: tonic::transport::Endpoint::from_static("http://[::1]:1").connect_lazy(),
            nodes: names.iter().map(node).collect(),
            roles: Vec::new(),
            direct: None,
        };
        Route {
            name: String::new(),
            session: Ok(session),
        }
    }

    #[tokio::test]
    async fn nodes_after_the_first_failure_are_left_alone() {
        let mut changed = Vec::new();
        let routes = vec![route(&["a", "b", "c"]), route(&["d"])];
        let failed = in_turn(routes, "not changed", async |node: &Node| {
            changed.push(node.name.clone());
            match &*node.name {
                "b" => Err(Trouble::Said("broken".to_owned())),
                _ => Ok(()),
            }
        });
        let failed = failed.await.ok().unwrap();
        let lines = failed.iter().map(|(name, why)| format!("{name}: {why}"));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines, ["b: broken", "c: not changed", "d: not changed"]);
        assert_eq!(changed, ["a", "b"]);
    }
}

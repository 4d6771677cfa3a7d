//! Unary calls, with their answers sorted by node.
//!
//! A reply is a list with a message per node. The message of a node that failed has only metadata,
//! and the call as a whole is a success on the wire.

use std::future::Future;
use std::time::Duration;

use corten_api::metadata::NOT_FORWARDED;
use tonic::{Request, Response, Status};

use crate::clients::Service;
use crate::connect::{Route, Session};
use crate::failure::{Failure, finish};
use crate::messages::{Message, Reply, failure_of, node_of};
use crate::status::{DEADLINE, explain};
use crate::stream::sessions;

/// The answers of the nodes.
#[derive(Debug)]
pub struct Answers<M> {
    /// Node and message, in the order of the reply.
    pub good: Vec<(String, M)>,
    /// Node and error.
    pub failed: Vec<(String, String)>,
}

impl<M> Default for Answers<M> {
    fn default() -> Answers<M> {
        Answers {
            good: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl<M: Message> Answers<M> {
    /// Sorts a reply. `asked` are the nodes whose messages it should have.
    fn add(&mut self, messages: Vec<M>, name: &str, asked: &[&str]) {
        let mut heard = Vec::new();
        for message in messages {
            let node = node_of(&message, name);
            heard.push(node.clone());
            match failure_of(&message) {
                Some(why) => self.failed.push((node, why)),
                None => self.good.push((node, message)),
            }
        }
        match asked {
            [] | [_] if heard.is_empty() => {
                self.failed
                    .push((name.to_owned(), "the answer is empty".to_owned()));
            }
            [] | [_] => {}
            many => {
                for node in many.iter().filter(|node| !heard.iter().any(|h| h == *node)) {
                    self.failed
                        .push(((*node).to_owned(), "no answer from this node".to_owned()));
                }
            }
        }
    }
}

impl<M> Answers<M> {
    /// Reports the failed nodes on stderr; the last step of a verb.
    pub fn finish(self) -> Result<(), Failure> {
        finish(&self.failed)
    }
}

/// Makes a unary call on every route.
pub async fn ask<C, B, R, F, Fut>(
    routes: Vec<Route>,
    body: B,
    call: F,
) -> Result<Answers<R::Message>, Failure>
where
    C: Service,
    B: Clone,
    R: Reply,
    F: Fn(C, Request<B>) -> Fut,
    Fut: Future<Output = Result<Response<R>, Status>>,
{
    ask_within(Some(DEADLINE), routes, body, call).await
}

/// Makes a unary call on every route with another timeout, or without one.
pub async fn ask_within<C, B, R, F, Fut>(
    limit: Option<Duration>,
    routes: Vec<Route>,
    body: B,
    call: F,
) -> Result<Answers<R::Message>, Failure>
where
    C: Service,
    B: Clone,
    R: Reply,
    F: Fn(C, Request<B>) -> Fut,
    Fut: Future<Output = Result<Response<R>, Status>>,
{
    let mut answers = Answers::default();
    let unreached = sessions(routes, async |name, session, _| {
        let ask = async |session: &Session| {
            let mut request = session.request(body.clone());
            if let Some(limit) = limit {
                request.set_timeout(limit);
            }
            call(session.client(), request)
                .await
                .map(Response::into_inner)
        };
        let reply = ask(session).await?;
        let nodes = session.nodes.iter();
        let asked: Vec<&str> = nodes.map(|(node, _)| node.as_str()).collect();
        let mut through = Answers::default();
        through.add(reply.messages(), name, &asked);
        answers.good.append(&mut through.good);
        for (node, why) in through.failed {
            let is_refused = why.contains(NOT_FORWARDED) && asked.contains(&&*node);
            let direct = if is_refused {
                session.directly(&node).await
            } else {
                None
            };
            match direct {
                Some(direct) => match ask(&direct).await {
                    Ok(reply) => answers.add(reply.messages(), &node, &[]),
                    Err(status) => answers
                        .failed
                        .push((node, explain(&status, &session.roles))),
                },
                None => answers.failed.push((node, why)),
            }
        }
        Ok(())
    })
    .await?;
    answers.failed.extend(unreached);
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use corten_api::{common, machine};

    use super::*;

    fn memory(hostname: &str, error: &str) -> machine::Memory {
        let metadata = common::Metadata {
            hostname: hostname.into(),
            error: error.into(),
            ..Default::default()
        };
        machine::Memory {
            metadata: Some(metadata),
            meminfo: None,
        }
    }

    #[test]
    fn messages_are_split_into_answers_and_failures_by_node() {
        let mut answers = Answers::default();
        answers.add(
            vec![memory("a", ""), memory("b", "unreachable")],
            "a,b,c",
            &["a", "b", "c"],
        );
        assert_eq!(answers.good.len(), 1);
        assert_eq!(answers.good[0].0, "a");
        let failed = [("b", "unreachable"), ("c", "no answer from this node")];
        assert_eq!(
            answers.failed,
            failed.map(|(n, w)| (n.to_owned(), w.to_owned()))
        );
        assert!(matches!(answers.finish(), Err(Failure::Told)));
    }

    #[test]
    fn answer_without_metadata_belongs_to_the_endpoint() {
        let mut answers = Answers::default();
        answers.add(vec![machine::Memory::default()], "10.0.0.1", &[]);
        assert_eq!(answers.good[0].0, "10.0.0.1");
        answers.add(Vec::new(), "10.0.0.2", &[]);
        assert_eq!(
            answers.failed,
            [("10.0.0.2".to_owned(), "the answer is empty".to_owned())]
        );
    }
}

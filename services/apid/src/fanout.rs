//! One call to several nodes: asks every node and labels every answer. A dead, slow or lying node fails only its own
//! row.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corten_api::MAX_MESSAGE;
use corten_api::roles::needs_more_than_reader;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, future, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;

use crate::answer::{Answer, Task};
use crate::answerer::{Answerer, Answerers};
use crate::audit::Nodes;
use crate::forward::Forward;
use crate::frames::{Frames, Memory, Message, framed, joined_frame};
use crate::intake::Intake;
use crate::merge;
use crate::quota::Taken;
use crate::replies::Reply;
use crate::reply::{Body, BoxError, counted};
use crate::wire;

/// Limit of nodes being connected to at once.
const AT_ONCE: usize = 128;
/// Timeout of a node for a read-only call, or for the head of a stream. It starts when the connection is open, so
/// unreachable nodes take no time from the nodes queued behind them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout of a node for a call that changes it or takes long, such as wiping a disk.
const CHANGE: Duration = Duration::from_secs(30 * 60);
/// Limit of fields in one message of another node, which bounds the memory of decoding: an element of two bytes takes
/// hundreds when decoded.
pub(crate) const FIELDS: usize = 64 * 1024;

/// One requested node, by the caller's name for it.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) node: String,
    pub(crate) answerer: Answerer,
}

/// A call to several nodes.
#[derive(Debug)]
pub(crate) struct FanOut {
    answerers: Arc<Answerers>,
    forward: Forward,
    memory: Memory,
    /// Timeout of a node for the head of a stream, and for a read-only call.
    longest: Duration,
    /// Limits the nodes being connected to.
    connecting: Semaphore,
    nodes: Nodes,
    /// Deadline of the caller, less the time to deliver the answer.
    asked_by: Option<Instant>,
}

impl FanOut {
    /// `memory` is that of the caller; failed nodes are counted in `nodes`.
    pub(crate) fn new(
        answerers: Arc<Answerers>,
        mut forward: Forward,
        memory: Memory,
        longest: Duration,
        nodes: Nodes,
    ) -> FanOut {
        // Compressed answers cannot be merged.
        forward.headers.remove("grpc-accept-encoding");
        let patience = forward.headers.get("grpc-timeout").and_then(patience);
        FanOut {
            answerers,
            forward,
            memory,
            longest,
            connecting: Semaphore::new(AT_ONCE),
            nodes,
            asked_by: patience.and_then(|patience| Instant::now().checked_add(patience)),
        }
    }

    /// Asks every node and merges the labelled answers of kind `reply`.
    pub(crate) fn ask(
        self,
        rows: Vec<Row>,
        reply: Reply,
        intake: Intake,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let Intake { body, failure } = intake;
        let answer = async move {
            let rows = self.with_bodies(rows, body).await?;
            self.nodes.asked(rows.len());
            match reply {
                Reply::One(is_reply) => {
                    let frame = self.unary(rows, is_reply).await;
                    Ok(success(stream::iter([frame])))
                }
                Reply::Stream(is_message) => {
                    let this = Arc::new(self);
                    let streams = rows
                        .into_iter()
                        .map(|(row, body)| this.clone().stream(row, body, is_message).boxed());
                    // Dropping the call drops all streams. The caller's reading drives them.
                    Ok(success(stream::select_all(streams)))
                }
            }
        };
        Box::pin(failure.or(answer))
    }

    /// The request body of each node: one node gets the caller's stream; several nodes get a copy of its only message.
    async fn with_bodies(&self, rows: Vec<Row>, body: Body) -> Result<Vec<(Row, Body)>, Status> {
        if rows.len() == 1 {
            return Ok(rows.into_iter().zip([body]).collect());
        }
        let mut frames = Frames::new(body, self.memory.clone());
        let message = frames.next().await?;
        let message =
            message.ok_or_else(|| Status::invalid_argument("a call without a message"))?;
        if frames.next().await?.is_some() {
            return Err(Status::invalid_argument(
                "a method with a request stream can be called on one node at a time",
            ));
        }
        let frame = counted(framed(&message), message.into_held());
        let body = || {
            Full::new(frame.clone())
                .map_err(|never| match never {})
                .boxed_unsync()
        };
        Ok(rows.into_iter().map(|row| (row, body())).collect())
    }

    async fn unary(&self, rows: Vec<(Row, Body)>, is_reply: fn(&[u8]) -> bool) -> Bytes {
        let asked = rows.into_iter().map(|(row, body)| async move {
            let asked = self.one(&row, body, is_reply);
            let reply = self.in_time(asked).await;
            (row.node, reply)
        });
        let answers = future::join_all(asked).await;
        joined(&self.nodes, answers.into_iter())
    }

    /// The result of `work`, with the caller's deadline if there is one.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        match self.asked_by {
            Some(deadline) => timeout_at(deadline, work)
                .await
                .unwrap_or_else(|_| Err(too_late())),
            None => work.await,
        }
    }

    /// A node's labelled reply, or an error after the node's timeout.
    async fn one(
        &self,
        row: &Row,
        body: Body,
        is_reply: fn(&[u8]) -> bool,
    ) -> Result<Part, Status> {
        let longest = if needs_more_than_reader(&self.forward.path) {
            CHANGE
        } else {
            self.longest
        };
        self.reach(row).await?;
        let answer = async {
            let mut frames = self.open(row, body).await?;
            let reply = frames.next().await?;
            if reply.is_some() && frames.next().await?.is_some() {
                return Err(Status::internal("it sent more than one answer"));
            }
            outcome(frames.into_trailers())?;
            Ok(reply)
        };
        let reply = timeout(longest, answer).await;
        let reply = reply.unwrap_or_else(|_| Err(too_late()))?;
        let reply = reply.ok_or_else(|| Status::internal("it sent no answer"))?;
        let label = merge::label_of(&row.node);
        let bytes = merge::labelled_reply(&reply, &label).ok_or_else(nonsense)?;
        checked(row, &reply, is_reply)?;
        let held = reply.into_held();
        Ok(Part { bytes, held })
    }

    /// A node's labelled messages, framed. If the stream fails, the last message is the failure.
    fn stream(
        self: Arc<Self>,
        row: Row,
        body: Body,
        is_message: fn(&[u8]) -> bool,
    ) -> impl futures_util::Stream<Item = Bytes> + Send {
        let label = merge::label_of(&row.node);
        let begin = Some((self, row, label, Progress::Asking(body)));
        stream::unfold(begin, move |state| async move {
            let (this, row, label, progress) = state?;
            let next = this.next(&row, progress, is_message);
            match this.in_time(next).await {
                Ok(Some((message, frames))) => {
                    let length = message.len() + label.len();
                    let labelled = joined_frame(length, [&*message, &label]);
                    let labelled = match message.into_held() {
                        Some(held) => counted(labelled, held),
                        None => labelled,
                    };
                    let state = (this, row, label, Progress::Reading(frames));
                    Some((labelled, Some(state)))
                }
                Ok(None) => None,
                Err(status) => {
                    this.nodes.one_failed();
                    Some((framed(&merge::failure(&row.node, &status)), None))
                }
            }
        })
    }

    async fn next(
        self: &Arc<Self>,
        row: &Row,
        progress: Progress,
        is_message: fn(&[u8]) -> bool,
    ) -> Result<Option<(Message, Box<Frames<Answer>>)>, Status> {
        let mut frames = match progress {
            Progress::Asking(body) => {
                // A task of its own, not driven by the caller's reading: other calls wait for the same connection, and
                // the node's timeout runs.
                let begun = Task::spawn(self.clone().begin(row.clone(), body));
                let begun = begun.done().await;
                begun.unwrap_or_else(|| Err(Status::internal("the call to it ended early")))?
            }
            Progress::Reading(frames) => frames,
        };
        match frames.next().await? {
            Some(message) => {
                checked(row, &message, is_message)?;
                Ok(Some((message, frames)))
            }
            None => outcome(frames.into_trailers()).map(|()| None),
        }
    }

    /// Opens a node's stream.
    async fn begin(self: Arc<Self>, row: Row, body: Body) -> Result<Box<Frames<Answer>>, Status> {
        self.reach(&row).await?;
        // A stream's messages have no timeout, only its beginning has.
        let opened = timeout(self.longest, self.open(&row, body)).await;
        opened.unwrap_or_else(|_| Err(too_late())).map(Box::new)
    }

    /// Connects to a node when a slot is free. machined needs no connection.
    async fn reach(&self, row: &Row) -> Result<(), Status> {
        let Answerer::Node(node, config) = &row.answerer else {
            return Ok(());
        };
        let _one_of_few = self.connecting.acquire().await;
        self.answerers.peers.reach(node, config).await
    }

    /// Asks a node and waits for the head of its answer.
    async fn open(&self, row: &Row, body: Body) -> Result<Frames<Answer>, Status> {
        let request = self.forward.request(&row.answerer, body)?;
        let response = self.answerers.send(&row.answerer, request).await?;
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Err(status);
        }
        Ok(Frames::new(response.into_body(), self.memory.clone()))
    }
}

/// A node's part of a merged reply.
struct Part {
    bytes: Vec<u8>,
    held: Option<Taken>,
}

/// Merges all replies into one frame. Its length never exceeds the message limit: the longest parts are replaced by
/// failures.
fn joined(nodes: &Nodes, answers: impl Iterator<Item = (String, Result<Part, Status>)>) -> Bytes {
    let failed = |node: &str, status: &Status| {
        nodes.one_failed();
        let bytes = merge::wrapped(&merge::failure(node, status));
        Part { bytes, held: None }
    };
    let mut parts: Vec<_> = answers
        .map(|(node, answer)| {
            let part = answer.unwrap_or_else(|status| failed(&node, &status));
            (node, part)
        })
        .collect();
    let length = |(_, part): &(String, Part)| part.bytes.len();
    let mut total: usize = parts.iter().map(length).sum();
    while total > MAX_MESSAGE
        && let Some((node, longest)) = parts.iter_mut().max_by_key(|row| length(row))
    {
        let status = Status::resource_exhausted(
            "its answer does not fit beside those of the other nodes: ask this node alone",
        );
        total -= longest.bytes.len();
        *longest = failed(node, &status);
        total += longest.bytes.len();
    }
    let held: Vec<Taken> = parts
        .iter_mut()
        .filter_map(|(_, part)| part.held.take())
        .collect();
    let frame = joined_frame(total, parts.into_iter().map(|(_, part)| part.bytes));
    counted(frame, held)
}

/// Progress of a node's stream.
enum Progress {
    Asking(Body),
    Reading(Box<Frames<Answer>>),
}

/// Checks another node's message; machined's is trusted.
fn checked(row: &Row, message: &[u8], is_right: fn(&[u8]) -> bool) -> Result<(), Status> {
    match row.answerer {
        Answerer::Here => Ok(()),
        Answerer::Node(..) if wire::has_more_fields(message, FIELDS) => {
            Err(Status::resource_exhausted(
                "its answer has too many fields to be checked: ask this node alone",
            ))
        }
        Answerer::Node(..) if !is_right(message) => Err(nonsense()),
        Answerer::Node(..) => Ok(()),
    }
}

fn nonsense() -> Status {
    Status::internal("its answer is not a valid answer of this method")
}

fn too_late() -> Status {
    Status::deadline_exceeded("it did not answer in time")
}

fn outcome(trailers: Option<HeaderMap>) -> Result<(), Status> {
    match trailers.as_ref().and_then(Status::from_header_map) {
        None => Err(Status::unavailable("the stream ended early")),
        Some(status) if status.code() == tonic::Code::Ok => Ok(()),
        Some(status) => Err(status),
    }
}

/// The caller's timeout from `grpc-timeout` (the gRPC protocol's "Timeout"), less a tenth but at most a second.
fn patience(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    let whole = match unit {
        "H" => Duration::from_secs(number * 60 * 60),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    };
    Some(whole - (whole / 10).min(Duration::from_secs(1)))
}

/// A successful answer of frames; failures are inside, node by node.
fn success(frames: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    let end = future::ready(Ok(Frame::trailers(trailers)));
    let frames = frames.map(|frame| Ok::<_, BoxError>(Frame::data(frame)));
    let frames = frames.chain(stream::once(end));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_of_the_caller_is_kept_with_time_to_answer() {
        let read = |text| patience(&HeaderValue::from_static(text));
        assert_eq!(read("100S"), Some(Duration::from_secs(99)));
        assert_eq!(read("100m"), Some(Duration::from_millis(90)));
        assert_eq!(
            read("99999999H").map(|time| time.as_secs()),
            Some(359_999_996_399)
        );
        assert_eq!(read("0n"), Some(Duration::ZERO));
        for bad in ["", "S", "-1S", "1", "1x", "123456789S", "1.5S"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn longest_answers_are_dropped_when_the_merged_reply_is_too_large() {
        let part = |length: usize| {
            let bytes = merge::wrapped(&vec![0; length]);
            Ok(Part { bytes, held: None })
        };
        let nodes = Nodes::default();
        let answers = [
            ("a", part(10)),
            ("b", part(20 << 20)),
            ("c", part(15 << 20)),
        ];
        let answers = answers.map(|(node, part)| (node.to_owned(), part));
        let frame = joined(&nodes, answers.into_iter());
        assert!(((15 << 20)..(16 << 20)).contains(&frame.len()));
        // "b" has only its failure.
        let name = frame.windows(3).position(|bytes| bytes == b"\x0a\x01b");
        assert!(name.is_some_and(|place| place < 100));
    }
}

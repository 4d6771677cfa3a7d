//! A machined that streams as much as a call asks for, and counts the bytes it sent.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use corten_api::common::Data;
use corten_api::machine as api;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;

use crate::client::framed;

/// Size of machined's messages of a file.
pub const CHUNK: usize = 64 << 10;
/// A log line of typical length.
pub const LINE: &[u8] = b"2026-11-22T18:07:20Z kubelet: a line as programs write them, of 100 bytes, number 1234567890123456\n";
/// Number of ready lines per HTTP/2 frame.
const TOGETHER: usize = 10;

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// Counters of the backend.
#[derive(Debug, Default)]
pub struct Counted {
    /// Bytes of bodies that HTTP/2 accepted.
    pub sent: AtomicUsize,
    /// Calls whose answers have not ended.
    pub answering: AtomicUsize,
}

impl Counted {
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    pub fn answering(&self) -> usize {
        self.answering.load(Ordering::SeqCst)
    }
}

/// Counts an answer until it is dropped.
struct Answering(Arc<Counted>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Serves at `socket` on a thread, as long as the test runs.
pub fn serve(socket: &Path) -> Arc<Counted> {
    let counted = Arc::<Counted>::default();
    let ours = counted.clone();
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    on_a_thread(async move || {
        listener.set_nonblocking(true).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(connection(stream, ours.clone()));
        }
    });
    counted
}

fn on_a_thread(work: impl AsyncFnOnce() + Send + 'static) {
    thread::spawn(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work());
    });
}

async fn connection<T>(stream: T, counted: Arc<Counted>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(counted.clone(), request));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(None);
    let _ended = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    counted: Arc<Counted>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let message = request.into_body().collect().await?.to_bytes().split_off(5);
    let frames = match path.rsplit('/').next().unwrap() {
        // The file's name is its number of chunks.
        "Read" => {
            let asked = api::ReadRequest::decode(message).unwrap();
            let chunk = data(&[7; CHUNK]);
            stream::iter(0..asked.path.parse().unwrap())
                .map(move |_: usize| chunk.clone())
                .boxed()
        }
        // Number of lines; negative for an endless log. Then the log is followed.
        "Logs" => {
            let asked = api::LogsRequest::decode(message).unwrap();
            log(&asked).chain(stream::pending()).boxed()
        }
        // The watch begins, and no event follows.
        "Watch" => {
            let first = stream::iter([framed(&[])]);
            first.chain(stream::pending()).boxed()
        }
        _ => stream::iter([framed(&[])]).boxed(),
    };
    counted.answering.fetch_add(1, Ordering::SeqCst);
    let answering = Answering(counted);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = frames
        .map(move |bytes| {
            answering.0.sent.fetch_add(bytes.len(), Ordering::SeqCst);
            Frame::data(bytes)
        })
        .chain(stream::iter([Frame::trailers(trailers)]));
    let mut response = Response::new(StreamBody::new(frames.map(Ok).boxed()));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

fn log(asked: &api::LogsRequest) -> BoxStream<'static, Bytes> {
    let line = data(LINE);
    match usize::try_from(asked.tail_lines) {
        Ok(lines) => {
            let several = Bytes::from(line.repeat(TOGETHER));
            stream::iter(0..lines / TOGETHER)
                .map(move |_| several.clone())
                .boxed()
        }
        Err(_) => stream::repeat(line).boxed(),
    }
}

fn data(bytes: &[u8]) -> Bytes {
    let data = Data {
        metadata: None,
        bytes: bytes.to_vec(),
    };
    framed(&data.encode_to_vec())
}

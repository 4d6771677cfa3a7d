//! Clients: HTTP/2 over mTLS or a unix socket, with small windows, so that little data is in flight.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::join_all;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, UnixStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

/// Length of a message's prefix: compression flag and length.
const PREFIX: usize = 5;
/// Default window of a stream in bytes.
pub const WINDOW: u32 = 64 << 10;
/// No limit for all streams of a connection together.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// A connection, open while it has an owner or a call.
pub struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    /// Connects from an address of the loopback network, which has sixteen million.
    pub async fn to_apid(
        from: [u8; 4],
        address: SocketAddr,
        own: Arc<ClientConfig>,
        window: u32,
    ) -> Connection {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let stream = socket.connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(own).connect(name, stream);
        Connection::begin(stream.await.unwrap(), window).await
    }

    pub async fn to_socket(socket: &Path, window: u32) -> Connection {
        Connection::begin(UnixStream::connect(socket).await.unwrap(), window).await
    }

    async fn begin<T>(stream: T, window: u32) -> Connection
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, driver) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(driver);
        Connection(sender)
    }

    /// Calls a method; returns the body of its answer, or the head of an error.
    pub async fn try_call(
        &self,
        method: &str,
        message: &impl Message,
        metadata: &[(&str, &str)],
    ) -> Result<Incoming, HeaderMap> {
        let mut request = Request::post(format!("https://127.0.0.1:50000/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in metadata {
            request = request.header(*name, *value);
        }
        let body = Full::new(framed(&message.encode_to_vec()));
        let request = request.body(body).unwrap();
        let response = self.0.clone().send_request(request).await.unwrap();
        if response.headers().contains_key("grpc-status") {
            return Err(response.headers().clone());
        }
        Ok(response.into_body())
    }

    /// Calls a method and expects success.
    pub async fn call(
        &self,
        method: &str,
        message: &impl Message,
        metadata: &[(&str, &str)],
    ) -> Messages {
        let answered = self.try_call(method, message, metadata).await;
        Messages::of(answered.unwrap_or_else(|head| panic!("{method}: {head:?}")))
    }
}

/// Opens `number` watches on one connection and waits until all have begun: a watch begins with an empty frame.
pub async fn begin_watching(
    connection: &Connection,
    number: usize,
    method: &str,
    watch: &impl Message,
) -> Vec<Messages> {
    let calls = (0..number).map(async |_| {
        let mut watcher = connection.call(method, watch, &[]).await;
        assert_eq!(watcher.next().await.unwrap(), "");
        watcher
    });
    join_all(calls).await
}

/// A runtime for connections. Its shutdown drops them without a word of HTTP/2 or TLS.
pub fn mortal() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// Reads the messages of an answer.
pub struct Messages {
    pub body: Incoming,
    buffer: BytesMut,
}

impl Messages {
    pub fn of(body: Incoming) -> Messages {
        Messages {
            body,
            buffer: BytesMut::new(),
        }
    }

    /// The next message; `None` after the last.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some((prefix, rest)) = self.buffer.split_at_checked(PREFIX) {
                let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
                let length = usize::try_from(length).unwrap();
                if rest.len() >= length {
                    self.buffer.advance(PREFIX);
                    return Some(self.buffer.split_to(length).freeze());
                }
            }
            let frame = self.body.frame().await?.unwrap();
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

pub fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

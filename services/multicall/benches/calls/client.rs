//! A client of the API: HTTP/2 over TLS with a certificate, cheaper than the server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Length of a message's prefix: compression flag and length.
const PREFIX: usize = 5;

/// A connection.
pub type Sender = SendRequest<Full<Bytes>>;

pub async fn connect(address: SocketAddr, own: &Arc<ClientConfig>) -> Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::from(IpAddr::from([127, 0, 0, 1]));
    let stream = TlsConnector::from(own.clone())
        .connect(name, stream)
        .await
        .unwrap();
    let (sender, driver) = Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(driver);
    sender
}

/// Calls `method` for `nodes`, or for the contacted node if that is empty. Returns all messages of the answer.
pub async fn call(sender: &Sender, method: &str, message: &[u8], nodes: &[String]) -> Vec<Bytes> {
    let uri = format!("https://127.0.0.1:50000/{method}");
    let mut request = Request::post(uri)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for node in nodes {
        request = request.header("nodes", node);
    }
    let request = request.body(Full::new(framed(message))).unwrap();
    let response = sender.clone().send_request(request).await.unwrap();
    assert!(
        !response.headers().contains_key("grpc-status"),
        "{method}: {:?}",
        response.headers()
    );
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0", "{method}");
    messages(body.to_bytes())
}

pub fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

fn messages(mut body: Bytes) -> Vec<Bytes> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let prefix = body.split_to(PREFIX);
        let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
        found.push(body.split_to(usize::try_from(length).unwrap()));
    }
    found
}

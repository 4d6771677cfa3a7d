//! A client of the API: HTTP/2 over TLS with a certificate, and nothing that would cost more than the server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use corten_pki::{Ca, NODE_LIFETIME};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, version};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// What stands before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A connection.
pub type Sender = SendRequest<Full<Bytes>>;

/// A caller with a role.
pub fn config(ca: &Ca, role: &str) -> Arc<ClientConfig> {
    let own = ca
        .client(&[role], SystemTime::now(), NODE_LIFETIME)
        .unwrap();
    let mut roots = RootCertStore::empty();
    for root in corten_pki::certificates_from_pem(ca.pem().crt.as_bytes()).unwrap() {
        roots.add(root).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap(),
            corten_pki::private_key_from_pem(own.key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

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

/// One call of `method` for `nodes`, or for the node that is asked: all messages of its answer.
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

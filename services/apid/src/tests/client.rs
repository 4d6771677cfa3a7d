//! Clients for the tests: any TLS configuration, any bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use corten_pki::{Ca, CertificateAndKey};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tonic::Status;

use crate::frames::framed;
use crate::reply::Body;

/// Trusts any server; other tests check apid's certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// TLS of a client that verifies the server against `ca`, or trusts any server if `ca` is `None`.
pub(crate) fn tls(ca: Option<&Ca>, own: Option<&CertificateAndKey>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let builder = match ca {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for root in corten_pki::certificates_from_pem(ca.pem().crt.as_bytes()).unwrap() {
                roots.add(root).unwrap();
            }
            builder.with_root_certificates(roots)
        }
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody)),
    };
    let mut config = match own {
        Some(own) => builder
            .with_client_auth_cert(
                corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap(),
                corten_pki::private_key_from_pem(own.key.as_bytes()).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Window of an answer in bytes.
const WINDOW: u32 = 32 * 1024;

/// A client that sends any path, metadata and bytes.
#[derive(Clone)]
pub(crate) struct Client(SendRequest<Body>);

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: Status,
    pub(crate) bytes: Bytes,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, tls: Arc<ClientConfig>) -> io::Result<Client> {
        Client::connect_from([127, 0, 0, 1], address, tls).await
    }

    /// Connects from an address of the loopback network, which has sixteen million.
    pub(crate) async fn connect_from(
        own: [u8; 4],
        address: SocketAddr,
        tls: Arc<ClientConfig>,
    ) -> io::Result<Client> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((own, 0).into())?;
        let stream = socket.connect(address).await?;
        let name = ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let stream = TlsConnector::from(tls).connect(name, stream).await?;
        let (sender, driver) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(driver);
        Ok(Client(sender))
    }

    /// Sends a call, and waits for the head of the answer.
    pub(crate) async fn send(
        &self,
        path: &str,
        metadata: &[(&'static str, &str)],
        body: Body,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut headers = HeaderMap::new();
        for (key, value) in metadata {
            headers.append(*key, HeaderValue::from_str(value).unwrap());
        }
        self.send_headers(path, &headers, body).await
    }

    async fn send_headers(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, hyper::Error> {
        let mut request = Request::post(format!("https://127.0.0.1:50000{path}"))
            .header(CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .body(body)
            .unwrap();
        request.headers_mut().extend(headers.clone());
        self.0.clone().send_request(request).await
    }

    /// Calls with any headers and bytes; reads the answer to its end.
    pub(crate) async fn call_bytes(
        &self,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, hyper::Error> {
        let response = self.send_headers(path, headers, full(body)).await?;
        Ok(response.into_body().collect().await?.to_bytes())
    }

    /// Calls and reads the answer to its end.
    pub(crate) async fn try_call(
        &self,
        path: &str,
        metadata: &[(&'static str, &str)],
        message: &[u8],
    ) -> Result<Answered, hyper::Error> {
        let response = self.send(path, metadata, full(framed(message))).await?;
        assert_eq!(response.status(), StatusCode::OK);
        if let Some(status) = Status::from_header_map(response.headers()) {
            let bytes = Bytes::new();
            return Ok(Answered { status, bytes });
        }
        let body = response.into_body().collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let none = || Status::unknown("no trailers");
        Ok(Answered {
            status: Status::from_header_map(&trailers).unwrap_or_else(none),
            bytes: body.to_bytes(),
        })
    }

    pub(crate) async fn call(
        &self,
        path: &str,
        metadata: &[(&'static str, &str)],
        message: &[u8],
    ) -> Answered {
        self.try_call(path, metadata, message).await.unwrap()
    }
}

pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

impl Answered {
    /// The messages of a successful answer.
    pub(crate) fn messages<M: prost::Message + Default>(&self) -> Vec<M> {
        assert_eq!(self.status.code(), tonic::Code::Ok, "{:?}", self.status);
        let mut rest = self.bytes.as_ref();
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let (head, after) = rest.split_at(5);
            let length = u32::from_be_bytes(head[1..].try_into().unwrap());
            let (message, after) = after.split_at(length.try_into().unwrap());
            messages.push(M::decode(message).unwrap());
            rest = after;
        }
        messages
    }
}

//! HTTP client for metadata services. It limits sizes and times, and never leaves the host of the request.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::request::Method;

/// Size limit of a document in bytes; the largest user data that a cloud accepts are 1 MiB.
pub(crate) const LARGEST: usize = 1 << 20;
/// Size limit of a response header in bytes.
const LARGEST_HEADER: usize = 64 << 10;
/// Redirect limit of a request.
const MOST_REDIRECTS: usize = 3;
/// Connection timeout; a metadata service is nearby.
const CONNECT: Duration = Duration::from_secs(3);
/// Timeout of a request, from the connection to the last byte.
const PATIENCE: Duration = Duration::from_secs(10);
/// Privileged source ports that no service of ours uses.
const LOW_PORTS: std::ops::Range<u16> = 600..1000;

/// A request to send.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub url: &'a str,
    pub method: Method,
    pub headers: Vec<(&'static str, String)>,
    pub body: &'a str,
    pub from_low_port: bool,
}

/// HTTP client for metadata services.
#[derive(Debug, Clone)]
pub struct Client {
    /// CA certificates, in PEM, for services behind TLS.
    roots: Arc<[u8]>,
    patience: Duration,
    /// Destination of every request in tests.
    instead: Option<SocketAddr>,
}

impl Client {
    /// Creates a client. `roots` are CA certificates in PEM; only platforms whose service is behind TLS need them.
    #[must_use]
    pub fn new(roots: &[u8]) -> Client {
        Client {
            roots: roots.into(),
            patience: PATIENCE,
            instead: None,
        }
    }

    /// A client that sends every request to a local server.
    #[cfg(test)]
    pub(crate) fn of_test(server: SocketAddr, patience: Duration) -> Client {
        Client {
            instead: Some(server),
            patience,
            ..Client::new(&[])
        }
    }

    /// Sends one request; `None` when the document does not exist.
    ///
    /// # Errors
    /// The failure of the server or the network. The text quotes nothing from the response.
    pub(crate) async fn ask(&self, question: &Question<'_>) -> Result<Option<Vec<u8>>, String> {
        let asked = timeout(self.patience, self.ask_host(question));
        asked.await.unwrap_or_else(|_| {
            Err(format!(
                "no complete answer within {} s",
                self.patience.as_secs()
            ))
        })
    }

    async fn ask_host(&self, question: &Question<'_>) -> Result<Option<Vec<u8>>, String> {
        let mut url: Uri = question
            .url
            .parse()
            .map_err(|_| "the URL is malformed".to_owned())?;
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.exchange(&url, question).await?;
            let status = answer.status();
            if status.is_success() {
                let body = Limited::new(answer.into_body(), LARGEST).collect().await;
                let body = body.map_err(|error| told(&*error))?.to_bytes();
                return Ok((status != StatusCode::NO_CONTENT).then(|| body.to_vec()));
            }
            match status {
                StatusCode::NOT_FOUND => return Ok(None),
                status if status.is_redirection() && question.method == Method::Get => {
                    let to = answer.headers().get(LOCATION);
                    url = redirected(&url, to).ok_or_else(|| {
                        "the answer redirects to another host, which is not allowed".to_owned()
                    })?;
                }
                status => return Err(format!("the answer is {}", status.as_u16())),
            }
        }
        Err(format!("more than {MOST_REDIRECTS} redirects"))
    }

    async fn exchange(
        &self,
        url: &Uri,
        question: &Question<'_>,
    ) -> Result<http::Response<hyper::body::Incoming>, String> {
        let host = url.host().unwrap_or_default();
        let is_tls = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = self.connect(host, port, is_tls, question.from_low_port);
        let stream = timeout(CONNECT, stream)
            .await
            .unwrap_or_else(|_| Err("the connection timed out".to_owned()))?;
        let request = request(url, question)?;
        if is_tls && self.instead.is_none() {
            let stream = self.encrypt(host, stream).await?;
            send(stream, request).await
        } else {
            send(stream, request).await
        }
    }

    async fn connect(
        &self,
        host: &str,
        port: u16,
        is_tls: bool,
        from_low_port: bool,
    ) -> Result<TcpStream, String> {
        let address = match self.instead {
            Some(address) => address,
            None => address(host, port, is_tls).await?,
        };
        if !from_low_port || self.instead.is_some() {
            let stream = TcpStream::connect(address).await;
            return stream.map_err(|error| error.to_string());
        }
        let mut refused = String::new();
        for port in LOW_PORTS.rev() {
            match connect_from(port, address).await {
                Ok(stream) => return Ok(stream),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
                    ) =>
                {
                    refused = error.to_string();
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(refused)
    }

    async fn encrypt(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.roots).flatten() {
            // Unsupported certificates among the many are skipped.
            let _ = roots.add(certificate);
        }
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots)
                .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await;
        stream.map_err(|error| error.to_string())
    }
}

async fn connect_from(port: u16, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::UNSPECIFIED, port).into())?;
    socket.connect(address).await
}

/// Resolves a host. Without TLS, a name must resolve to a local address: a resolver could otherwise send the node to
/// any server.
async fn address(host: &str, port: u16, is_tls: bool) -> Result<SocketAddr, String> {
    let bare = host.trim_matches(['[', ']']);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = lookup_host((host, port)).await;
    let found = found.map_err(|error| error.to_string())?;
    let mut found = found.filter(|address| is_tls || is_local(address.ip()));
    found
        .next()
        .ok_or_else(|| "the name has no address in a private network".to_owned())
}

/// Whether an address is in a range that Internet routers do not forward, and not this machine's own.
pub(crate) fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            // RFC 6598 range, which Alibaba uses for its metadata service.
            let is_shared = address.octets().starts_with(&[100])
                && address
                    .octets()
                    .get(1)
                    .is_some_and(|byte| byte & 0xc0 == 64);
            address.is_link_local() || address.is_private() || is_shared
        }
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_unique_local(),
    }
}

fn request(url: &Uri, question: &Question<'_>) -> Result<http::Request<Full<Bytes>>, String> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let host = url.authority().map_or("", |authority| authority.as_str());
    let method = match question.method {
        Method::Get => http::Method::GET,
        Method::Put => http::Method::PUT,
        Method::Post => http::Method::POST,
    };
    let mut request = http::Request::new(Full::new(Bytes::from(question.body.to_owned())));
    *request.method_mut() = method;
    *request.uri_mut() = path
        .parse()
        .map_err(|_| "the URL is malformed".to_owned())?;
    let headers = request.headers_mut();
    let value = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| "a token is not a valid header value".to_owned())
    };
    headers.insert(HOST, value(host)?);
    headers.insert(USER_AGENT, HeaderValue::from_static("corten"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    for (name, text) in &question.headers {
        let name = HeaderName::try_from(*name).map_err(|error| error.to_string())?;
        let mut value = value(text)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(request)
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: http::Request<Full<Bytes>>,
) -> Result<http::Response<hyper::body::Incoming>, String> {
    let handshake = http1::Builder::new()
        .max_buf_size(LARGEST_HEADER)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| told(&error))?;
    // The connection ends with the response's last byte, or when the response is dropped.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    answer.map_err(|error| told(&error))
}

/// An error with its causes; none of them quotes the response.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    if error.is::<http_body_util::LengthLimitError>() {
        return format!("the answer is larger than {} KiB", LARGEST >> 10);
    }
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

/// Target of a redirect, if it is on the same host.
fn redirected(from: &Uri, to: Option<&HeaderValue>) -> Option<Uri> {
    let to = to?.to_str().ok()?;
    if to.starts_with('/') && !to.starts_with("//") {
        let origin = format!("{}://{}", from.scheme_str()?, from.authority()?);
        return format!("{origin}{to}").parse().ok();
    }
    let to: Uri = to.parse().ok()?;
    let is_same = to.scheme() == from.scheme() && to.authority() == from.authority();
    is_same.then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_its_host() {
        let from: Uri = "http://169.254.169.254/latest".parse().unwrap();
        for (to, expected) in [
            ("/other", Some("http://169.254.169.254/other")),
            (
                "http://169.254.169.254/x?y=1",
                Some("http://169.254.169.254/x?y=1"),
            ),
            ("http://169.254.169.253/x", None),
            ("https://169.254.169.254/x", None),
            ("http://169.254.169.254:81/x", None),
            ("http://me@169.254.169.254/x", None),
            ("//10.0.0.1/x", None),
            ("relative", None),
            ("", None),
        ] {
            let to = HeaderValue::from_static(to);
            let found = redirected(&from, Some(&to)).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{to:?}");
        }
        assert_eq!(redirected(&from, None), None);
    }

    #[tokio::test]
    async fn plain_http_names_must_resolve_to_private_addresses() {
        let refused = address("localhost", 80, false).await.unwrap_err();
        assert!(refused.contains("private network"), "{refused}");
        for (address, expected) in [
            ("10.1.1.1", true),
            ("100.100.100.200", true),
            ("100.128.0.1", false),
            ("169.254.169.254", true),
            ("fd00:ec2::254", true),
            ("fe80::1", true),
            ("127.0.0.1", false),
            ("1.1.1.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_local(address.parse().unwrap()), expected, "{address}");
        }
    }
}

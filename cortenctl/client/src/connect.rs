//! Connections to nodes: the first endpoint that answers carries the call.

use std::fmt;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncBufReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint as Http, Uri};

use crate::clientconfig::{ForwardThrough, Identity, Search};
use crate::clients::Service;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::flags::Global;
use crate::tls;

/// Timeout of name resolution, and then of the TCP connection over all addresses of an endpoint.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of the TLS handshake: a booting emulated machine is slow, and QEMU's port forward
/// accepts before the guest does.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time to wait for the node's first bytes, which show whether it accepts our certificate, before
/// we send anyway.
const FIRST_WORD: Duration = Duration::from_secs(2);

/// Flow control window of a stream in bytes: the most that a node sends ahead of the output.
const WINDOW: u32 = 2 << 20;
/// Flow control window of a connection in bytes. The HTTP/2 library wants 256 bytes in each pending
/// frame. It ends a connection whose frames together lack more than half of this window. With a
/// small window a paused reader would end a log that is followed. A whole stream window of the
/// shortest messages, of 8 bytes each, falls short by 62 MiB.
const CONNECTION_WINDOW: u32 = 128 << 20;

/// An open connection, and the nodes that calls on it address.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) channel: Channel,
    /// Values of the `nodes` metadata; empty addresses the endpoint itself.
    pub nodes: Vec<(String, MetadataValue<Ascii>)>,
    /// Our roles, for error messages.
    pub roles: Vec<String>,
    /// The way to connect to nodes behind the endpoint directly.
    pub(crate) direct: Option<Direct>,
}

impl Session {
    /// A client of a service on the connection.
    pub fn client<C: Service>(&self) -> C {
        C::over(self.channel.clone())
    }

    /// A session with one of the nodes itself. `None` if this machine cannot reach the node, which
    /// is normal where the endpoint is the only way.
    pub(crate) async fn directly(&self, node: &str) -> Option<Session> {
        let channel = self.direct.as_ref()?.open(node).await.ok()?;
        Some(Session {
            channel,
            nodes: Vec::new(),
            roles: self.roles.clone(),
            direct: None,
        })
    }

    /// A request to every node of the session.
    pub fn request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        for (_, node) in &self.nodes {
            let metadata = request.metadata_mut();
            metadata.append(corten_api::metadata::NODES, node.clone());
        }
        request
    }
}

/// Credentials for a direct connection to a node by its own address.
#[derive(Debug, Clone)]
pub(crate) struct Direct(Arc<ClientConfig>);

impl Direct {
    /// A connection to the node, with the certificate verified as for an endpoint.
    ///
    /// # Errors
    /// The reason why the connection failed, a sentence.
    pub async fn open(&self, node: &str) -> Result<Channel, String> {
        let endpoint: Endpoint = node
            .parse()
            .map_err(|error: crate::endpoint::BadEndpoint| error.to_string())?;
        open(&endpoint, &self.0).await.map(|(channel, _)| channel)
    }
}

/// A way to one or more nodes, open or failed. Several routes exist only with `--insecure`, where
/// nodes do not forward calls.
#[derive(Debug, Clone)]
pub struct Route {
    /// Value of the NODE column unless the answer has one.
    pub name: String,
    /// The open connection, or the reason why there is none.
    pub session: Result<Session, String>,
}

/// The open routes: the failed ones have been reported already.
pub fn opened(routes: &[Route]) -> Vec<Route> {
    let open = routes.iter().filter(|route| route.session.is_ok());
    open.cloned().collect()
}

/// The expected number of answering nodes.
pub fn count(routes: &[Route]) -> usize {
    let nodes = |route: &Route| {
        let session = route.session.as_ref();
        session.map_or(1, |session| session.nodes.len().max(1))
    };
    routes.iter().map(nodes).sum()
}

/// No endpoint could be reached: every endpoint, with its error.
#[derive(Debug)]
pub struct Unreached(pub Vec<(Endpoint, String)>);

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(endpoint, why): &(Endpoint, String)| format!("{endpoint}: {why}");
        match self.0.as_slice() {
            [one] => f.write_str(&line(one)),
            many => {
                let lines: Vec<String> = many.iter().map(line).collect();
                write!(f, "no endpoint answers:\n  {}", lines.join("\n  "))
            }
        }
    }
}

impl std::error::Error for Unreached {}

/// Opens the routes that the global flags name.
///
/// # Errors
/// [`Unreached`], or an error in flags or client config.
pub async fn routes(global: &Global) -> Result<Vec<Route>, Failure> {
    if global.insecure {
        return insecure_routes(global).await;
    }
    Target::of(global)?.open().await
}

/// New routes to nodes of which none answered: a broken connection does not recover. Returns the
/// old routes while no endpoint answers.
///
/// # Errors
/// `open` fails for another reason than unreachable endpoints.
pub async fn reopened(
    old: Vec<Route>,
    open: impl AsyncFnOnce() -> Result<Vec<Route>, Failure>,
) -> Result<Vec<Route>, Failure> {
    match open().await {
        Err(Failure::Call(_)) => Ok(old),
        opened => opened,
    }
}

/// The nodes of a cluster, and the credentials for them.
#[derive(Debug, Clone)]
pub struct Target {
    /// The name of the context.
    pub context: String,
    /// The context's default nodes.
    pub usual_nodes: Vec<String>,
    /// Endpoints, tried in order.
    pub endpoints: Vec<Endpoint>,
    /// Nodes that answer the call; empty for the endpoint itself.
    pub nodes: Vec<String>,
    /// The credentials of the context.
    pub identity: Identity,
    /// The endpoints that may forward the call.
    pub forward_through: ForwardThrough,
}

impl Target {
    /// The target that the global flags and the client config name.
    ///
    /// # Errors
    /// The context does not exist, or it names no endpoint.
    pub fn of(global: &Global) -> Result<Target, Failure> {
        if global.insecure {
            return Err(Failure::usage(
                "this verb needs a node with a usable config: leave --insecure out; for a locked node, apply its config first \
                 (`cortenctl apply-config`)",
            ));
        }
        if !global.cert_fingerprint.is_empty() {
            return Err(Failure::usage(
                "--cert-fingerprint needs --insecure: without it the CA of the context verifies the certificate",
            ));
        }
        let config = Search::new(global.cortenconfig.clone()).load()?;
        let name = global.context.as_deref();
        let context = config.select(name)?;
        let endpoints = if global.endpoints.is_empty() {
            let parsed = context
                .endpoints
                .iter()
                .map(|text| text.parse::<Endpoint>());
            parsed
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| Failure::call(format!("endpoints of the context: {error}")))?
        } else {
            global.endpoints.clone()
        };
        if endpoints.is_empty() {
            return Err(Failure::usage(
                "no endpoint: name one with -e HOST, or put it under endpoints of the context",
            ));
        }
        let nodes = if global.nodes.is_empty() {
            &context.nodes
        } else {
            &global.nodes
        };
        Ok(Target {
            context: name.unwrap_or(&config.context).to_owned(),
            usual_nodes: context.nodes.clone(),
            endpoints,
            nodes: nodes.clone(),
            identity: context.identity()?,
            forward_through: global
                .forward_through
                .or(context.forward_through)
                .unwrap_or_default(),
        })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// [`Unreached`], among others.
    pub async fn open(&self) -> Result<Vec<Route>, Failure> {
        let nodes = self.nodes.iter().map(|node| node_value(node));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let roles = tls::roles(&self.identity);
        let tls = Arc::new(tls::mutual(&self.identity, SystemTime::now())?);
        let may_carry = |endpoint: &Endpoint, leaf: &CertificateDer<'_>| self.check(endpoint, leaf);
        let (endpoint, channel) = first(&self.endpoints, &tls, may_carry).await?;
        let name = match self.nodes.as_slice() {
            [] => endpoint.host().to_owned(),
            some => some.join(","),
        };
        Ok(vec![Route {
            name,
            session: Ok(Session {
                channel,
                nodes,
                roles,
                direct: Some(Direct(tls)),
            }),
        }])
    }

    /// Refuses to forward through an endpoint that may be a compromised worker: it would receive
    /// data meant for another node.
    fn check(&self, endpoint: &Endpoint, leaf: &CertificateDer<'_>) -> Result<(), String> {
        let is_itself = |node: &String| {
            node.eq_ignore_ascii_case(endpoint.host())
                || corten_pki::is_for(leaf, node).unwrap_or(false)
        };
        if self.forward_through == ForwardThrough::Any
            || self.nodes.iter().all(is_itself)
            || corten_pki::is_control_planes(leaf).unwrap_or(false)
        {
            return Ok(());
        }
        Err(
            "its certificate does not mark it as a control plane node, so it may not forward calls to other nodes; \
             use a control plane node as endpoint; for nodes of the reference or of an older Corten, use \
             --forward-through any (forward-through: any in the context)"
                .to_owned(),
        )
    }
}

/// Our credentials for a locked node, which identifies its owner by the certificate alone. A
/// context named by flag must be usable; a node in maintenance requests no certificate.
fn owner(global: &Global) -> Result<Option<Identity>, Failure> {
    let load = || -> Result<Identity, Failure> {
        let config = Search::new(global.cortenconfig.clone()).load()?;
        Ok(config.select(global.context.as_deref())?.identity()?)
    };
    match load() {
        Ok(identity) => Ok(Some(identity)),
        Err(failure) if global.cortenconfig.is_some() || global.context.is_some() => Err(failure),
        Err(_) => Ok(None),
    }
}

/// Routes to nodes without a config: they do not forward calls, so that each is an endpoint of its
/// own.
async fn insecure_routes(global: &Global) -> Result<Vec<Route>, Failure> {
    let owner = owner(global)?;
    let tls = Arc::new(tls::insecure(&global.cert_fingerprint, owner.as_ref())?);
    let session = |channel| Session {
        channel,
        nodes: Vec::new(),
        roles: owner.as_ref().map(tls::roles).unwrap_or_default(),
        direct: None,
    };
    if global.nodes.is_empty() {
        if global.endpoints.is_empty() {
            return Err(Failure::usage(
                "--insecure needs the node's address: -n ADDRESS",
            ));
        }
        let (endpoint, channel) = first(&global.endpoints, &tls, |_, _| Ok(())).await?;
        let name = endpoint.host().to_owned();
        return Ok(vec![Route {
            name,
            session: Ok(session(channel)),
        }]);
    }
    let mut routes = Vec::new();
    for node in &global.nodes {
        let endpoint: Endpoint = node
            .parse()
            .map_err(|error| Failure::usage(format!("--nodes: {error}")))?;
        let opened = open(&endpoint, &tls).await;
        routes.push(Route {
            name: node.clone(),
            session: opened.map(|(channel, _)| session(channel)),
        });
    }
    Ok(routes)
}

/// A node as a value of the metadata, which allows only ASCII characters.
pub fn node_value(node: &str) -> Result<(String, MetadataValue<Ascii>), Failure> {
    let plain = !node.is_empty() && node.chars().all(|c| c.is_ascii_graphic());
    let value = if plain { node.parse().ok() } else { None };
    value
        .map(|value| (node.to_owned(), value))
        .ok_or_else(|| Failure::usage(format!("{node:?} is not a node's name or address")))
}

/// The first endpoint that answers and whose certificate may carry the call.
///
/// # Errors
/// [`Unreached`] when no endpoint qualifies.
async fn first<'a>(
    endpoints: &'a [Endpoint],
    tls: &Arc<ClientConfig>,
    may_carry: impl Fn(&Endpoint, &CertificateDer<'_>) -> Result<(), String>,
) -> anyhow::Result<(&'a Endpoint, Channel)> {
    let mut failures = Vec::new();
    for endpoint in endpoints {
        let opened = open(endpoint, tls).await;
        let opened = opened.and_then(|(channel, leaf)| {
            may_carry(endpoint, &leaf)?;
            Ok(channel)
        });
        match opened {
            Ok(channel) => return Ok((endpoint, channel)),
            Err(why) => failures.push((endpoint.clone(), why)),
        }
    }
    Err(Unreached(failures).into())
}

/// A connection, and the certificate of its server.
async fn open(
    endpoint: &Endpoint,
    tls: &Arc<ClientConfig>,
) -> Result<(Channel, CertificateDer<'static>), String> {
    let stream = dial(endpoint, tls).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let leaf = shown.and_then(|chain| chain.first().cloned());
    let leaf = leaf.ok_or("it presents no certificate")?;
    let channel = channel(endpoint, stream)
        .await
        .map_err(|error| tls::chain(&error))?;
    Ok((channel, leaf))
}

async fn dial(
    endpoint: &Endpoint,
    tls: &Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, String> {
    let found = timeout(
        CONNECT,
        tokio::net::lookup_host((endpoint.host(), endpoint.port())),
    )
    .await
    .map_err(|_| {
        format!(
            "no name server answers within {} s; an IP address needs none",
            CONNECT.as_secs()
        )
    })?
    .map_err(|error| refused(&error))?;
    let tcp = corten_dial::one_of(found.collect(), CONNECT)
        .await
        .map_err(|error| refused(&error))?;
    keep_alive(&tcp).map_err(|error| error.to_string())?;
    let name = endpoint.server_name().map_err(|error| error.to_string())?;
    let mut stream = timeout(
        HANDSHAKE,
        TlsConnector::from(Arc::clone(tls)).connect(name, tcp),
    )
    .await
    .map_err(|_| {
        format!(
            "it accepts connections but sends nothing for {} s; the node may still be booting",
            HANDSHAKE.as_secs()
        )
    })?
    .map_err(|error| tls::explain(&error, endpoint.host()))?;
    if stream.get_ref().1.alpn_protocol() != Some(tls::ALPN) {
        return Err("it does not speak the node API; is the port right?".to_owned());
    }
    accepted(&mut stream, endpoint.host()).await?;
    Ok(stream)
}

/// Waits for the node's first bytes after the handshake. With TLS 1.3 a node refuses our
/// certificate after our side of the handshake is complete, and closes the connection; data written
/// by then could hide the reason. The first bytes are either the alert or the HTTP/2 settings (RFC
/// 9113, section 3.4). After a timeout the call is sent anyway.
async fn accepted(stream: &mut TlsStream<TcpStream>, host: &str) -> Result<(), String> {
    match timeout(FIRST_WORD, stream.fill_buf()).await {
        Ok(Ok([])) => Err("it closed the connection at once; the node may still be booting".into()),
        Ok(Err(error)) => Err(tls::explain(&error, host)),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

fn refused(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused; the API is not running there (yet), or the port is wrong"
                .to_owned()
        }
        io::ErrorKind::TimedOut => format!(
            "no answer within {} s; is the address right, and the node up?",
            CONNECT.as_secs()
        ),
        _ => error.to_string(),
    }
}

/// Enables TCP keepalive, so that a dead node does not block a `--follow` forever. It probes after
/// 30 s of silence, and gives up after another 30 s. Other servers end connections with HTTP/2
/// pings this frequent.
fn keep_alive(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(tcp, true)?;
    rustix::net::sockopt::set_tcp_keepidle(tcp, Duration::from_secs(30))?;
    rustix::net::sockopt::set_tcp_keepintvl(tcp, Duration::from_secs(10))?;
    rustix::net::sockopt::set_tcp_keepcnt(tcp, 3)?;
    Ok(())
}

/// A channel on an open stream. When the stream ends, calls fail: a call such as a reboot must not
/// be repeated on a new connection.
async fn channel(
    endpoint: &Endpoint,
    stream: TlsStream<TcpStream>,
) -> Result<Channel, tonic::transport::Error> {
    let mut once = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = once.take();
        ready(stream.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotConnected,
                "the connection to the node was lost",
            )
        }))
    });
    let authority = endpoint.authority();
    // For an https address the library would start TLS itself; the stream already has it.
    let http = Http::from_shared(format!("http://{authority}"))?;
    let http = match format!("https://{authority}").parse::<Uri>() {
        Ok(origin) => http.origin(origin),
        Err(_) => http,
    };
    http.initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .connect_with_connector(connector)
        .await
}

#[cfg(test)]
mod tests;

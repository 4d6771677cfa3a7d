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

use crate::cli::Global;
use crate::clientconfig::{ForwardThrough, Identity, Search};
use crate::clients::Service;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::tls;

/// How long the name servers have to answer, and then all addresses of an endpoint
/// together to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long it then has for the handshake: an emulated machine that is booting
/// is slow, and QEMU's port forward accepts before the guest does.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long we then listen for its first word, which says whether it accepts
/// our certificate, before we speak anyway.
const FIRST_WORD: Duration = Duration::from_secs(2);

/// What of a stream comes before it is printed, in bytes.
const WINDOW: u32 = 2 << 20;
/// And of all streams of a connection. HTTP/2's library ends a connection on which small frames wait that lack more
/// than half of this of 256 bytes each: so a pause would end a log that is followed. A whole window of the shortest
/// messages, of 8 bytes each, lacks 62 MiB.
const CONNECTION_WINDOW: u32 = 128 << 20;

/// An open connection, and whom a call on it asks.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) channel: Channel,
    /// Values of the `nodes` metadata; empty asks the endpoint itself.
    pub(crate) nodes: Vec<(String, MetadataValue<Ascii>)>,
    /// Our roles, for messages.
    pub(crate) roles: Vec<String>,
    /// How nodes behind the endpoint are reached without it.
    pub(crate) direct: Option<Direct>,
}

impl Session {
    pub(crate) fn client<C: Service>(&self) -> C {
        C::over(self.channel.clone())
    }

    /// A session with one of the nodes itself; `None`: it cannot be reached from here, which is no news where the
    /// endpoint is the only way.
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
    pub(crate) fn request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        for (_, node) in &self.nodes {
            let metadata = request.metadata_mut();
            metadata.append(corten_api::metadata::NODES, node.clone());
        }
        request
    }
}

/// The way to a node that is named, by its own address.
#[derive(Debug, Clone)]
pub(crate) struct Direct(Arc<ClientConfig>);

impl Direct {
    /// A connection to the node, whose certificate is verified as an endpoint's.
    ///
    /// # Errors
    /// Why there is none, a sentence.
    pub(crate) async fn open(&self, node: &str) -> Result<Channel, String> {
        let endpoint: Endpoint = node
            .parse()
            .map_err(|error: crate::endpoint::BadEndpoint| error.to_string())?;
        open(&endpoint, &self.0).await.map(|(channel, _)| channel)
    }
}

/// A way to one or more nodes, open or failed. Two of them only with
/// `--insecure`, where nobody forwards.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// What the NODE column shows unless the answer says otherwise.
    pub(crate) name: String,
    pub(crate) session: Result<Session, String>,
}

/// Those of the routes that are open: what is said of the others need not be said again.
pub(crate) fn opened(routes: &[Route]) -> Vec<Route> {
    let open = routes.iter().filter(|route| route.session.is_ok());
    open.cloned().collect()
}

/// How many nodes will answer.
pub(crate) fn count(routes: &[Route]) -> usize {
    let nodes = |route: &Route| {
        let session = route.session.as_ref();
        session.map_or(1, |session| session.nodes.len().max(1))
    };
    routes.iter().map(nodes).sum()
}

/// No endpoint could be reached: each of them, with why.
#[derive(Debug)]
pub(crate) struct Unreached(pub(crate) Vec<(Endpoint, String)>);

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

/// Opens what the global flags ask for.
///
/// # Errors
/// [`Unreached`] among them.
pub(crate) async fn routes(global: &Global) -> Result<Vec<Route>, Failure> {
    if global.insecure {
        return insecure_routes(global).await;
    }
    Target::of(global)?.open().await
}

/// Other routes to nodes of which none answered: a connection that ended stays so. While no endpoint answers, the old
/// ones.
///
/// # Errors
/// It is not endpoints that `open` fails for.
pub(crate) async fn anew(
    old: Vec<Route>,
    open: impl AsyncFnOnce() -> Result<Vec<Route>, Failure>,
) -> Result<Vec<Route>, Failure> {
    match open().await {
        Err(Failure::Call(_)) => Ok(old),
        opened => opened,
    }
}

/// A cluster's nodes, and as whom they are asked.
pub(crate) struct Target {
    /// The name of the context.
    pub(crate) context: String,
    /// The nodes it asks unless told otherwise.
    pub(crate) usual_nodes: Vec<String>,
    /// Tried in turn.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Who answers; empty: the endpoint itself.
    pub(crate) nodes: Vec<String>,
    pub(crate) identity: Identity,
    /// Which endpoints may hand the call on.
    pub(crate) forward_through: ForwardThrough,
}

impl Target {
    /// What the global flags and the client config name.
    ///
    /// # Errors
    /// There is no such context, or it names no endpoint.
    pub(crate) fn of(global: &Global) -> Result<Target, Failure> {
        if global.insecure {
            return Err(Failure::usage(
                "--insecure is for nodes without a config, which belong to no cluster yet",
            ));
        }
        if !global.cert_fingerprint.is_empty() {
            return Err(Failure::usage(
                "--cert-fingerprint goes with --insecure: otherwise the certificate is verified by its authority",
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
    /// [`Unreached`] among them.
    pub(crate) async fn open(&self) -> Result<Vec<Route>, Failure> {
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

    /// Refuses an endpoint that could be an impostor among the cluster's nodes, as a node behind it would be given
    /// what is meant for another.
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
            "its certificate does not carry the mark of a control plane node, so calls for other nodes do not go \
             through it; use a control plane node as endpoint, or, for nodes of the reference and older ones of Corten, \
             --forward-through any (forward-through: any in the context)"
                .to_owned(),
        )
    }
}

/// Who we are to a node that is locked, which knows its owner by the certificate alone. One that is named must be
/// usable; a node in maintenance asks for none.
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

/// Nodes without a config do not forward, so each is an endpoint of its own.
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

/// A node as a value of the metadata, which holds only plain characters.
pub(crate) fn node_value(node: &str) -> Result<(String, MetadataValue<Ascii>), Failure> {
    let plain = !node.is_empty() && node.chars().all(|c| c.is_ascii_graphic());
    let value = if plain { node.parse().ok() } else { None };
    value
        .map(|value| (node.to_owned(), value))
        .ok_or_else(|| Failure::usage(format!("{node:?} is not a node's name or address")))
}

/// The first endpoint that answers and whose certificate may carry the call.
///
/// # Errors
/// [`Unreached`] when none does.
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

/// A connection, and the certificate of who answers there.
async fn open(
    endpoint: &Endpoint,
    tls: &Arc<ClientConfig>,
) -> Result<(Channel, CertificateDer<'static>), String> {
    let stream = dial(endpoint, tls).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let leaf = shown.and_then(|chain| chain.first().cloned());
    let leaf = leaf.ok_or("it shows no certificate")?;
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
            "it accepts connections but says nothing for {} s; the node may still be booting",
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

/// With TLS 1.3 a node refuses our certificate after our side of the handshake
/// is over, and closes: what we had written by then could cost us the reason.
/// So its first word comes first: the alert, or the settings with which HTTP/2
/// begins (RFC 9113, section 3.4). One that stays silent is spoken to.
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

/// A node that dies without a word must not hold a `--follow` for ever: asked
/// after 30 s of silence, given up after another 30 s. HTTP/2 pings would do
/// too, but servers of other make end connections that ping this often.
fn keep_alive(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(tcp, true)?;
    rustix::net::sockopt::set_tcp_keepidle(tcp, Duration::from_secs(30))?;
    rustix::net::sockopt::set_tcp_keepintvl(tcp, Duration::from_secs(10))?;
    rustix::net::sockopt::set_tcp_keepcnt(tcp, 3)?;
    Ok(())
}

/// A channel on a stream that is open. When the stream ends, calls fail: a call
/// such as a reboot must not be repeated on a new connection.
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
    // The library would start TLS of its own for an https address; ours is up.
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

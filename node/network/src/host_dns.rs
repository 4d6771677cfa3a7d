//! The node's DNS cache: it answers on local addresses and forwards queries to the network's name servers.
//!
//! hickory provides the protocol and the cache; this module chooses the name servers and sets the limits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use corten_config::Document;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::{Time, TokioRuntimeProvider};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{
    Edns, Header, HeaderCounts, MessageType, Metadata, OpCode, ResponseCode,
};
use hickory_resolver::proto::rr::{DNSClass, Name, Record, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use hickory_server::Server;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::host_dns_tcp::{CONNECTIONS, serve};

/// DNS port.
pub const PORT: u16 = 53;

/// Service addresses for pods, one per family; no other machine can have them (facts: 7.2).
const SERVICE: Ipv4Addr = Ipv4Addr::new(169, 254, 116, 108);
const SERVICE_V6: Ipv6Addr =
    Ipv6Addr::new(0xfd54, 0x616c, 0x6f73, 0, 0x204f, 0x5320, 0x444e, 0x0531);

/// Number of cached answers. A typical answer takes about 1 KiB.
const CACHE: u64 = 2048;

/// Limit of pending queries; further queries are refused. It keeps an unreachable name server from growing the memory
/// of process 1.
pub(super) const WAITING: usize = 512;

/// Timeout of a query. A resolver retries, or tries another server, after 5 s (resolv.conf(5)); our error must arrive
/// earlier.
const TIMEOUT: Duration = Duration::from_millis(4500);

/// Lifetime of negative answers (facts: 7.2).
const NEGATIVE: Duration = Duration::from_secs(10);

/// Addresses of the cache for the cluster's DNS, in the families of the pod subnets.
#[must_use]
pub fn service_addresses(document: &Document) -> Vec<IpAddr> {
    if !document.host_dns().forward {
        return Vec::new();
    }
    let pods = document.pod_subnets();
    let has = |is: fn(&IpAddr) -> bool| pods.iter().any(|subnet| is(&subnet.address));
    let v4 = (pods.is_empty() || has(IpAddr::is_ipv4)).then_some(SERVICE.into());
    let v6 = has(IpAddr::is_ipv6).then_some(SERVICE_V6.into());
    v4.into_iter().chain(v6).collect()
}

/// Forwards queries to the name servers; cheap to clone.
#[derive(Clone)]
pub struct Forwarder {
    /// `None` while there are no name servers.
    resolver: Arc<RwLock<Option<TokioResolver>>>,
    pub(super) free: Arc<Semaphore>,
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").finish_non_exhaustive()
    }
}

impl Default for Forwarder {
    fn default() -> Forwarder {
        Forwarder {
            resolver: Arc::default(),
            free: Arc::new(Semaphore::new(WAITING)),
        }
    }
}

impl Forwarder {
    /// Forwards to these servers from now on, with an empty cache.
    ///
    /// # Errors
    /// hickory cannot be set up.
    pub fn ask(&self, servers: &[SocketAddr]) -> Result<(), String> {
        let resolver = match servers {
            [] => None,
            _ => Some(resolver(servers, options())?),
        };
        // A poisoned lock is safe to use: the value is replaced as a whole.
        *self
            .resolver
            .write()
            .unwrap_or_else(PoisonError::into_inner) = resolver;
        Ok(())
    }

    /// Listens at an address, by UDP and TCP, until the returned value is dropped.
    ///
    /// # Errors
    /// The address is not the node's, or its port is in use.
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening, String> {
        let failed = |error| format!("cannot listen at {address}: {error}");
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        // For port 0, UDP must use the port that TCP got.
        let udp = UdpSocket::bind(address).await.map_err(failed)?;
        let mut by_udp = Server::new(self.clone());
        by_udp.register_socket(udp);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut by_tcp = JoinSet::new();
        by_tcp.spawn(serve(tcp, self.clone(), places));
        Ok(Listening {
            _by_udp: by_udp,
            _by_tcp: by_tcp,
            address,
        })
    }

    async fn answer(&self, request: &Request) -> Answer {
        let Ok(_free) = self.free.try_acquire() else {
            return Answer::error(ResponseCode::Refused);
        };
        let is_question = request.metadata.message_type == MessageType::Query
            && request.metadata.op_code == OpCode::Query;
        let info = request.request_info();
        let Some(query) = info.ok().map(|info| info.query).filter(|_| is_question) else {
            return Answer::error(ResponseCode::NotImp);
        };
        // A cache does not answer for whole zones or for classes other than Internet.
        let whole = [RecordType::AXFR, RecordType::IXFR, RecordType::ANY];
        if query.query_class() != DNSClass::IN || whole.contains(&query.query_type()) {
            return Answer::error(ResponseCode::Refused);
        }
        let resolver = self
            .resolver
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(resolver) = resolver else {
            return Answer::error(ResponseCode::ServFail);
        };
        let mut name = Name::from(query.name());
        name.set_fqdn(true);
        match resolver.lookup(name, query.query_type()).await {
            Ok(lookup) => Answer {
                code: ResponseCode::NoError,
                answers: lookup.answers().to_vec(),
                authorities: lookup.authorities().to_vec(),
            },
            Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) => Answer {
                // The SOA record tells the client how long to cache the negative answer (RFC 2308, section 5).
                authorities: nothing
                    .soa
                    .map(|soa| soa.into_record_of_rdata())
                    .into_iter()
                    .collect(),
                ..Answer::error(nothing.response_code)
            },
            Err(_) => Answer::error(ResponseCode::ServFail),
        }
    }
}

/// The answer to a query.
struct Answer {
    code: ResponseCode,
    answers: Vec<Record>,
    authorities: Vec<Record>,
}

impl Answer {
    fn error(code: ResponseCode) -> Answer {
        Answer {
            code,
            answers: Vec::new(),
            authorities: Vec::new(),
        }
    }
}

/// A listener; it answers until it is dropped.
#[expect(
    missing_debug_implementations,
    reason = "the server of the library does not implement Debug"
)]
pub struct Listening {
    _by_udp: Server<Forwarder>,
    _by_tcp: JoinSet<()>,
    /// Address of the listener.
    pub address: SocketAddr,
}

#[async_trait::async_trait]
impl RequestHandler for Forwarder {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut responses: R,
    ) -> ResponseInfo {
        let answer = self.answer(request).await;
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = answer.code;
        metadata.recursion_available = true;
        // UDP payload limit of the client; without EDNS it is 512 bytes (RFC 6891, section 6.2.3).
        let edns = request.edns.as_ref().map(|asked| {
            let mut edns = Edns::new();
            edns.set_max_payload(asked.max_payload().max(512));
            edns
        });
        let mut builder = MessageResponseBuilder::from_message_request(request);
        if let Some(edns) = &edns {
            builder.edns(edns);
        }
        let response = builder.build(metadata, &answer.answers, &answer.authorities, [], []);
        match responses.send_response(response).await {
            Ok(info) => info,
            // The client is gone.
            Err(_) => Header {
                metadata,
                counts: HeaderCounts::default(),
            }
            .into(),
        }
    }
}

fn resolver(servers: &[SocketAddr], options: ResolverOpts) -> Result<TokioResolver, String> {
    let servers = servers.iter().map(|server| upstream(*server)).collect();
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder
        .build()
        .map_err(|error| format!("cannot create the resolver: {error}"))
}

/// Whether a name server answers at all. Its answer about the root does not matter.
pub async fn is_healthy(server: SocketAddr) -> bool {
    let mut options = options();
    options.cache_size = 0;
    let Ok(resolver) = resolver(&[server], options) else {
        return false;
    };
    match resolver.lookup(Name::root(), RecordType::NS).await {
        Ok(_) => true,
        Err(error) => error.is_no_records_found(),
    }
}

fn upstream(server: SocketAddr) -> NameServerConfig {
    let by = |protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = server.port();
        connection
    };
    let connections = vec![by(ProtocolConfig::Udp), by(ProtocolConfig::Tcp)];
    NameServerConfig::new(server.ip(), true, connections)
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = TIMEOUT / 2;
    options.attempts = 1;
    options.cache_size = CACHE;
    options.negative_max_ttl = Some(NEGATIVE);
    options.case_randomization = true;
    options.preserve_intermediates = true;
    options
}

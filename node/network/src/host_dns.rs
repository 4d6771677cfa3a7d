//! The name cache of the node: answers on addresses of its own, asks the name servers of the network.
//!
//! Speaking DNS, both ways, and the cache are hickory's; here is who is asked, and the bounds.

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

/// Of name servers.
pub const PORT: u16 = 53;

/// Where pods ask, in each family; no other machine can have these (facts: 7.2).
const SERVICE: Ipv4Addr = Ipv4Addr::new(169, 254, 116, 108);
const SERVICE_V6: Ipv6Addr =
    Ipv6Addr::new(0xfd54, 0x616c, 0x6f73, 0, 0x204f, 0x5320, 0x444e, 0x0531);

/// Answers that are kept. One of the usual size takes about 1 KiB.
const CACHE: u64 = 2048;

/// Questions that wait for an answer at once; more are refused. A name server that is away must not make
/// process 1 grow.
pub(super) const WAITING: usize = 512;

/// A resolver asks again, or somebody else, after 5 s (resolv.conf(5)); it should have heard of us before.
const TIMEOUT: Duration = Duration::from_millis(4500);

/// For that long what was not there is believed not to be there (facts: 7.2).
const NEGATIVE: Duration = Duration::from_secs(10);

/// The addresses at which the cluster's DNS shall find the cache: of the families its pods have.
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

/// Whom to ask; cheap to clone.
#[derive(Clone)]
pub struct Forwarder {
    /// `None`: nobody.
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
    /// Asks these servers from now on, and forgets what the others said.
    ///
    /// # Errors
    /// When hickory cannot be set up.
    pub fn ask(&self, servers: &[SocketAddr]) -> Result<(), String> {
        let resolver = match servers {
            [] => None,
            _ => Some(resolver(servers, options())?),
        };
        // What is locked is whole, whatever happened to who held it.
        *self
            .resolver
            .write()
            .unwrap_or_else(PoisonError::into_inner) = resolver;
        Ok(())
    }

    /// Listens at an address, by UDP and TCP, until what is returned is dropped.
    ///
    /// # Errors
    /// The address is not the node's, or taken.
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening, String> {
        let failed = |error| format!("cannot listen at {address}: {error}");
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        // With port 0 both get the same one.
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
        // Whole zones are not for a cache, nor is what is not of the Internet.
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
                // Who asks keeps that there is nothing for as long as it says (RFC 2308, section 5).
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

/// What is said to a question.
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

/// Answers as long as it lives.
#[expect(
    missing_debug_implementations,
    reason = "the library's server has none"
)]
pub struct Listening {
    _by_udp: Server<Forwarder>,
    _by_tcp: JoinSet<()>,
    /// Where.
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
        // How much the client takes by UDP; without it 512 bytes (RFC 6891, section 6.2.3).
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
            // Who asked is gone.
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
        .map_err(|error| format!("the resolver: {error}"))
}

/// Whether a name server answers anything at all; what it says of the root does not matter.
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

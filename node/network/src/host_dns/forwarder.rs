//! Answers DNS queries from the cache and the network's name servers. hickory provides the protocol and the cache; this
//! module chooses the name servers and sets the limits.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::{Time, TokioRuntimeProvider};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{
    Edns, Header, HeaderCounts, MessageType, Metadata, OpCode, ResponseCode,
};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use tokio::sync::Semaphore;

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

/// Lifetime of the node's own answers in seconds (facts: 7.2).
const OWN: u32 = 10;

/// Addresses of the names that the node itself knows. A name is in lower case and has no dot at its end.
pub type Names = BTreeMap<String, Vec<IpAddr>>;

/// Forwards queries to the name servers; cheap to clone.
#[derive(Clone)]
pub struct Forwarder {
    names: Arc<RwLock<Names>>,
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
            names: Arc::default(),
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

    /// Answers queries for the addresses of these names itself from now on.
    pub fn know(&self, names: Names) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The node's own answer; `None` if it knows no address of this type.
    fn known(&self, name: &Name, kind: RecordType) -> Option<Answer> {
        let key = name.to_lowercase().to_string();
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let addresses = names.get(key.trim_end_matches('.'))?.iter();
        let data = addresses.map(|address| match address {
            IpAddr::V4(address) => RData::A((*address).into()),
            IpAddr::V6(address) => RData::AAAA((*address).into()),
        });
        let data = data.filter(|data| data.record_type() == kind);
        let answers: Vec<Record> = data
            .map(|data| Record::from_rdata(name.clone(), OWN, data))
            .collect();
        (!answers.is_empty()).then_some(Answer {
            code: ResponseCode::NoError,
            answers,
            authorities: Vec::new(),
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
        let mut name = Name::from(query.name());
        name.set_fqdn(true);
        if let Some(known) = self.known(&name, query.query_type()) {
            return known;
        }
        let resolver = self
            .resolver
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(resolver) = resolver else {
            return Answer::error(ResponseCode::ServFail);
        };
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

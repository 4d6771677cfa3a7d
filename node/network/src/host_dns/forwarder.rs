//! Answers DNS queries: those for the node's own names itself, all others from the name servers and their cache.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

use hickory_resolver::net::runtime::Time;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{
    Edns, Header, HeaderCounts, MessageType, Metadata, OpCode, ResponseCode,
};
use hickory_resolver::proto::rr::rdata::PTR;
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use tokio::sync::Semaphore;

use super::upstreams::Upstreams;

/// Limit of pending queries; further queries are refused. It keeps an unreachable name server from growing the memory
/// of process 1.
pub(super) const WAITING: usize = 512;

/// Lifetime of the node's own answers in seconds (the reference's).
const OWN: u32 = 10;

/// What the node itself knows. A name is in lower case and has no dot at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Addresses of names.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Names of addresses, for reverse queries.
    pub reverse: BTreeMap<IpAddr, Vec<String>>,
}

impl Names {
    /// The records of this type, without those that DNS cannot express.
    fn data(&self, name: &Name, kind: RecordType) -> Vec<RData> {
        if kind == RecordType::PTR {
            // The name of a whole network is not that of its first address.
            let whole = name.parse_arpa_name().ok();
            let whole = whole.filter(|net| net.prefix_len() == net.max_prefix_len());
            let names = whole.and_then(|net| self.reverse.get(&net.addr()));
            let names = names.into_iter().flatten();
            let names = names.filter_map(|name| Name::from_ascii(format!("{name}.")).ok());
            return names.map(|name| RData::PTR(PTR(name))).collect();
        }
        let key = name.to_lowercase().to_string();
        let addresses = self.addresses.get(key.trim_end_matches('.'));
        let data = addresses
            .into_iter()
            .flatten()
            .map(|address| match address {
                IpAddr::V4(address) => RData::A((*address).into()),
                IpAddr::V6(address) => RData::AAAA((*address).into()),
            });
        data.filter(|data| data.record_type() == kind).collect()
    }
}

/// Forwards queries to the name servers; cheap to clone.
#[derive(Clone)]
pub struct Forwarder {
    names: Arc<RwLock<Names>>,
    /// `None` while there are no name servers.
    upstreams: Arc<RwLock<Option<Arc<Upstreams>>>>,
    /// Name servers that are asked last.
    last: Arc<RwLock<BTreeSet<SocketAddr>>>,
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
            upstreams: Arc::default(),
            last: Arc::default(),
            free: Arc::new(Semaphore::new(WAITING)),
        }
    }
}

impl Forwarder {
    /// Forwards to these servers from now on, with an empty cache. A later server is asked when those before it fail.
    ///
    /// # Errors
    /// hickory cannot be set up.
    pub fn ask(&self, servers: &[SocketAddr]) -> Result<(), String> {
        let upstreams = match servers {
            [] => None,
            _ => Some(Arc::new(Upstreams::new(servers)?)),
        };
        // A poisoned lock is safe to use: the value is replaced as a whole.
        *self
            .upstreams
            .write()
            .unwrap_or_else(PoisonError::into_inner) = upstreams;
        Ok(())
    }

    /// Asks these servers after the others from now on. The cache stays.
    pub fn ask_last(&self, servers: BTreeSet<SocketAddr>) {
        *self.last.write().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// Answers queries for these names and addresses itself from now on.
    pub fn know(&self, names: Names) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The node's own answer; `None` if it knows nothing of this type.
    fn known(&self, name: &Name, kind: RecordType) -> Option<Answer> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let data = names.data(name, kind).into_iter();
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
        let upstreams = self
            .upstreams
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(upstreams) = upstreams else {
            return Answer::error(ResponseCode::ServFail);
        };
        let last = self
            .last
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match upstreams.look_up(name, query.query_type(), &last).await {
            Ok(found) => Answer {
                code: ResponseCode::NoError,
                answers: found.answers,
                authorities: found.authorities,
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

//! Asks the name servers of the network in their order, and keeps the answers. hickory provides the protocol and the
//! cache; this module chooses the name server and sets the limits.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Resolver, ResponseCache, TokioResolver, TtlConfig};
use tokio::time::timeout;

/// Number of cached answers. A typical answer takes about 1 KiB.
const CACHE: u64 = 2048;

/// Timeout of a query. A resolver retries, or tries another server, after 5 s (resolv.conf(5)); our error must arrive
/// earlier.
const TIMEOUT: Duration = Duration::from_millis(4500);

/// So many silent servers are waited for within [`TIMEOUT`]. With more, each would have too little time for an answer.
const SILENT: u32 = 3;

/// Lifetime of negative answers (the reference's).
const NEGATIVE: Duration = Duration::from_secs(10);

/// The name servers, and what they answered.
pub(super) struct Upstreams {
    servers: Vec<Upstream>,
    /// One for all servers: an answer of the second is kept although the first does not have it.
    cache: ResponseCache,
}

struct Upstream {
    address: SocketAddr,
    resolver: TokioResolver,
}

impl Upstreams {
    /// # Errors
    /// hickory cannot be set up.
    pub(super) fn new(addresses: &[SocketAddr]) -> Result<Upstreams, String> {
        let options = options(addresses.len());
        let cache = ResponseCache::new(CACHE, TtlConfig::from_opts(&options));
        let servers = addresses.iter().map(|address| {
            Ok(Upstream {
                address: *address,
                resolver: resolver(*address, options.clone())?,
            })
        });
        Ok(Upstreams {
            servers: servers.collect::<Result<_, String>>()?,
            cache,
        })
    }

    /// The answer of the cache or of a server. The servers of `last` are asked after the others.
    ///
    /// # Errors
    /// There are no such records, or no server has answered.
    pub(super) async fn look_up(
        &self,
        name: Name,
        kind: RecordType,
        last: &BTreeSet<SocketAddr>,
    ) -> Result<Message, NetError> {
        let query = Query::query(name, kind);
        if let Some(cached) = self.cache.get(&query, Instant::now()) {
            return cached;
        }
        let asked = timeout(TIMEOUT, self.ask(&query, last)).await;
        let found = asked.unwrap_or(Err(NetError::Timeout));
        // Of the errors, the cache keeps only those that say that there are no records.
        self.cache.insert(query, found.clone(), Instant::now());
        found
    }

    /// Asks one server after the other, until one says what there is or that there is nothing. Two at once would race:
    /// a public server could deny an internal name faster than the internal server answers.
    async fn ask(&self, query: &Query, last: &BTreeSet<SocketAddr>) -> Result<Message, NetError> {
        let mut servers: Vec<&Upstream> = self.servers.iter().collect();
        // This sort keeps the given order otherwise.
        servers.sort_by_key(|server| last.contains(&server.address));
        let mut failed = NetError::NoConnections;
        for server in servers {
            let name = query.name().clone();
            match server.resolver.lookup(name, query.query_type()).await {
                Ok(lookup) => return Ok(lookup.message().clone()),
                Err(nothing) if nothing.is_no_records_found() => return Err(nothing),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// Whether a name server answers at all. Its answer about the root does not matter: one for internal names may refuse
/// to speak of it.
pub async fn is_healthy(server: SocketAddr) -> bool {
    let Ok(resolver) = resolver(server, options(1)) else {
        return false;
    };
    match resolver.lookup(Name::root(), RecordType::NS).await {
        Ok(_) => true,
        Err(error) => matches!(error, NetError::Dns(_)),
    }
}

fn resolver(server: SocketAddr, options: ResolverOpts) -> Result<TokioResolver, String> {
    let by = |protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = server.port();
        connection
    };
    let connections = vec![by(ProtocolConfig::Udp), by(ProtocolConfig::Tcp)];
    let server = NameServerConfig::new(server.ip(), true, connections);
    let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder
        .build()
        .map_err(|error| format!("cannot create the resolver: {error}"))
}

/// Options for one of so many servers. A single server is asked twice; otherwise the next server is the second attempt.
fn options(servers: usize) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    let silent = u32::try_from(servers).unwrap_or(SILENT);
    options.timeout = TIMEOUT / silent.clamp(2, SILENT);
    options.attempts = usize::from(servers == 1);
    // `Upstreams` has the cache.
    options.cache_size = 0;
    options.negative_max_ttl = Some(NEGATIVE);
    options.case_randomization = true;
    options.preserve_intermediates = true;
    // hickory would read the file once and keep entries that are gone. The forwarder knows the current ones.
    options.use_hosts_file = ResolveHosts::Never;
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_servers_leave_time_for_the_error() {
        for servers in 1..9 {
            let options = options(servers);
            let attempts = u32::try_from(servers * (1 + options.attempts)).unwrap();
            let all = options.timeout * attempts.min(SILENT);
            assert!(all <= TIMEOUT, "{servers} servers: {all:?}");
        }
    }

    #[test]
    fn hosts_file_is_not_read() {
        assert_eq!(options(2).use_hosts_file, ResolveHosts::Never);
    }
}

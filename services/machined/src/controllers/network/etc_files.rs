//! The files programs look into: `/etc/{hostname,hosts,resolv.conf}` are links to these in `/run/names`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::watch;

use super::host_dns::LOCAL;
use crate::network::host_dns::PORT;
use crate::network::{Setup, files};
use crate::resources::network::HostnameStatus;
use crate::resources::network_dns::DnsResolveCache;
use crate::resources::network_names::{ResolverStatus, StaticHost};

/// Writes them.
#[derive(Debug, Clone)]
pub(in crate::controllers) struct EtcFiles {
    pub(in crate::controllers) setup: watch::Receiver<Option<Arc<Setup>>>,
    /// Whether they are there.
    pub(in crate::controllers) written: watch::Sender<bool>,
}

impl Controller for EtcFiles {
    fn name(&self) -> &'static str {
        "network.EtcFileController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<HostnameStatus>(Dependency::Weak),
            Input::of::<ResolverStatus>(Dependency::Weak),
            Input::of::<StaticHost>(Dependency::Weak),
            Input::of::<DnsResolveCache>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let Some(setup) = Setup::wait(&mut self.setup).await else {
            return Ok(());
        };
        let mut last = None;
        let local = SocketAddr::new(LOCAL, PORT).to_string();
        loop {
            context.event().await;
            let Some(name) = context.get::<HostnameStatus>(HostnameStatus::ID)? else {
                continue;
            };
            let resolvers = context.get::<ResolverStatus>(ResolverStatus::ID)?;
            let (mut servers, search) = resolvers
                .map(|status| (status.dns_servers.clone(), status.search_domains.clone()))
                .unwrap_or_default();
            let caches = context.list::<DnsResolveCache>()?;
            if caches.iter().any(|cache| cache.id() == local) {
                servers = vec![LOCAL];
            }
            let hosts: BTreeMap<String, _> = context
                .list::<StaticHost>()?
                .iter()
                .map(|host| (host.id().to_owned(), host.addresses.clone()))
                .collect();
            let all = Some((name.full(), hosts, servers, search));
            if all == last {
                continue;
            }
            if let Some((name, hosts, servers, search)) = &all {
                files::write_all(&setup.names, name, hosts, servers, search)
                    .map_err(|error| format!("cannot write the name files: {error}"))?;
            }
            last = all;
            self.written.send_replace(true);
        }
    }
}

//! Renders `/etc/{hostname,hosts,resolv.conf}`, which are links to files in `/run/names`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use corten_network::files;
use corten_network::host_dns::PORT;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::files::EtcFileSpec;
use corten_types::network::HostnameStatus;
use corten_types::network_dns::DnsResolveCache;
use corten_types::network_names::{ResolverStatus, StaticHost};

use super::host_dns::LOCAL;

/// Readable by everyone.
const MODE: u32 = 0o644;

/// Shows the wanted content of the files.
#[derive(Debug, Clone)]
pub(crate) struct EtcFiles;

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
        vec![Output::exclusive::<EtcFileSpec>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
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
            let texts = files::contents(&name.full(), &hosts, &servers, &search);
            for (file, contents) in files::NAMES.into_iter().zip(texts) {
                let spec = EtcFileSpec {
                    contents,
                    mode: MODE,
                    selinux_label: "",
                };
                context.put(Draft::new(file, spec))?;
            }
        }
    }
}

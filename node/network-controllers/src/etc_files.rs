//! Renders `/etc/{hostname,hosts,resolv.conf}`, which are links to files in `/run/names`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use corten_network::files;
use corten_network::host_dns::PORT;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::files::EtcFileSpec;
use corten_types::network::{HostnameStatus, NodeAddress};
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
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::DEFAULT),
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
            let address = context.get::<NodeAddress>(NodeAddress::DEFAULT)?;
            let address = address.and_then(|address| address.ips().next());
            let texts = files::contents(&name.full(), address, &hosts, &servers, &search);
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

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Store};

    use super::*;

    #[tokio::test]
    async fn hosts_file_follows_the_default_address() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(EtcFiles).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let status = HostnameStatus {
            hostname: "n1".to_owned(),
            domainname: String::new(),
        };
        store
            .put(Draft::new(HostnameStatus::ID, status), "")
            .unwrap();
        let says = async |line: &str| {
            sample::until(&store, "hosts", |spec: Option<&EtcFileSpec>| {
                spec.is_some_and(|spec| spec.contents.ends_with(line))
            })
            .await;
        };
        says("\n127.0.1.1 n1\n").await;
        let default = NodeAddress {
            addresses: vec!["10.0.0.5/24".to_owned()],
            sort_algorithm: "v1",
        };
        store
            .put(Draft::new(NodeAddress::DEFAULT, default), "")
            .unwrap();
        says("\n10.0.0.5 n1\n").await;
        let gone = Pointer::of::<NodeAddress>(NodeAddress::DEFAULT);
        store.destroy(&gone, "").unwrap();
        says("\n127.0.1.1 n1\n").await;
    }
}

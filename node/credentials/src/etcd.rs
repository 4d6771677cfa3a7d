//! Connects machined to etcd, and takes the node's member out of its cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use corten_etcd::{Client, EtcdError, LeaveError, Leaver, Tls};
use corten_kubernetes::etcd::{CLIENT_PORT, peer_urls};
use corten_resources::Store;
use corten_resources::controller::with_causes as describe;
use corten_types::etcd::EtcdSpec;
use corten_types::secrets::Endpoint;

/// Timeout of a call; a member without a leader answers late.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects as an administrator to the first of these addresses that answers.
///
/// # Errors
/// A certificate cannot be read, or no member answers.
pub async fn connect(secrets: &Path, addresses: &[IpAddr]) -> Result<Client, String> {
    let tls = Tls::read(secrets).map_err(|error| describe(&error))?;
    let connected = connect_with(&tls, addresses).await;
    connected.map_err(|error| describe(&error))
}

/// Like [`connect`]; `None` if every address refuses the connection, so that no member runs there.
///
/// # Errors
/// A certificate cannot be read, or a member may run at an address that gives no usable answer.
pub async fn connect_if_there(
    secrets: &Path,
    addresses: &[IpAddr],
) -> Result<Option<Client>, String> {
    let tls = Tls::read(secrets).map_err(|error| describe(&error))?;
    match connect_with(&tls, addresses).await {
        Ok(client) => Ok(Some(client)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(describe(&error)),
    }
}

async fn connect_with(tls: &Tls, addresses: &[IpAddr]) -> Result<Client, EtcdError> {
    let endpoints: Vec<String> = addresses.iter().copied().map(endpoint).collect();
    Client::connect(&endpoints, tls, PATIENCE).await
}

/// Removes this node's member from its cluster, with further attempts for five minutes.
///
/// # Errors
/// As [`corten_etcd::leave()`].
pub async fn leave(tls: Tls, store: &Store) -> Result<(), LeaveError> {
    let connect = |endpoints: Vec<String>| {
        let tls = tls.clone();
        async move { Client::connect(&endpoints, &tls, PATIENCE).await }
    };
    corten_etcd::leave(connect, &leaver(store)).await
}

/// This node's member, and the control plane nodes that are known. Without an address of its own the node cannot be
/// found among the members, so that it asks no other.
fn leaver(store: &Store) -> Leaver {
    let own = Leaver {
        endpoint: endpoint(Ipv4Addr::LOCALHOST.into()),
        ..Leaver::default()
    };
    let Some(spec) = store.get_as::<EtcdSpec>(EtcdSpec::ID) else {
        return own;
    };
    Leaver {
        others: others(store),
        name: spec.name.clone(),
        peer_urls: peer_urls(&spec.advertised_addresses),
        ..own
    }
}

/// Endpoints of the other members, as far as the node knows control plane nodes.
#[must_use]
pub fn others(store: &Store) -> Vec<String> {
    let own = store.get_as::<EtcdSpec>(EtcdSpec::ID);
    let own = own.map(|own| own.advertised_addresses.clone());
    let own = own.unwrap_or_default();
    let known = [Endpoint::MEMBERS, Endpoint::CLUSTER].map(|id| store.get_as::<Endpoint>(id));
    let known = known.iter().flatten().flat_map(|known| &known.addresses);
    let addresses = known.filter_map(|text| text.parse::<IpAddr>().ok());
    let others: BTreeSet<IpAddr> = addresses.filter(|address| !own.contains(address)).collect();
    others.into_iter().map(endpoint).collect()
}

fn endpoint(address: IpAddr) -> String {
    SocketAddr::new(address, CLIENT_PORT).to_string()
}

#[cfg(test)]
mod tests {
    use corten_resources::Draft;
    use corten_types::kubernetes_components::Args;

    use super::*;

    #[test]
    fn member_is_known_by_its_addresses_and_asks_the_other_nodes() {
        let store = Store::new();
        store.register::<EtcdSpec>().unwrap();
        store.register::<Endpoint>().unwrap();
        let members = Endpoint {
            addresses: vec!["10.0.0.2".to_owned(), "10.0.0.1".to_owned()],
            ..Endpoint::default()
        };
        store
            .put(Draft::new(Endpoint::MEMBERS, members), "")
            .unwrap();
        let nobody = leaver(&store);
        assert_eq!(nobody.endpoint, "127.0.0.1:2379");
        assert!(nobody.others.is_empty() && nobody.peer_urls.is_empty());
        let spec = EtcdSpec {
            name: "cp-2".to_owned(),
            advertised_addresses: vec!["10.0.0.2".parse().unwrap()],
            listen_peer_addresses: Vec::new(),
            listen_client_addresses: Vec::new(),
            image: String::new(),
            extra_args: Args::new(),
        };
        store.put(Draft::new(EtcdSpec::ID, spec), "").unwrap();
        let expected = Leaver {
            endpoint: "127.0.0.1:2379".to_owned(),
            others: vec!["10.0.0.1:2379".to_owned()],
            name: "cp-2".to_owned(),
            peer_urls: vec!["https://10.0.0.2:2380".to_owned()],
        };
        assert_eq!(leaver(&store), expected);
    }
}

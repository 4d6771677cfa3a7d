//! Joins a control plane node without etcd data to the existing members.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_etcd::{Client, Join, Tls, plan};
use corten_kubernetes::etcd::{CLIENT_PORT, Start, peer_url};
use corten_resources::controller::with_causes as describe;

/// Timeout of a call; a member without a leader answers late.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of changes of the member list until a node has joined.
const STEPS: usize = 4;

/// Connects as an administrator to the first of these addresses that answers.
pub(crate) async fn connect(secrets: &Path, addresses: &[IpAddr]) -> Result<Client, String> {
    let read = |name: &str| fs::read_to_string(secrets.join(name));
    let tls = (|| {
        Ok::<_, io::Error>(Tls {
            ca: read("ca.crt")?,
            crt: read("admin.crt")?,
            key: read("admin.key")?,
        })
    })();
    let tls = tls.map_err(|error| format!("its certificates: {error}"))?;
    let endpoint = |address: &IpAddr| SocketAddr::new(*address, CLIENT_PORT).to_string();
    let endpoints: Vec<String> = addresses.iter().map(endpoint).collect();
    let connected = Client::connect(&endpoints, &tls, PATIENCE).await;
    connected.map_err(|error| describe(&error))
}

/// Makes the members at `others` add this node, step by step. Returns how it starts; the error gives the reason to
/// wait.
pub(super) async fn join(
    secrets: &Path,
    others: &[IpAddr],
    name: &str,
    own: IpAddr,
) -> Result<Start, String> {
    let client = connect(secrets, others).await?;
    let peer = peer_url(own);
    let said = |error: corten_etcd::EtcdError| describe(&error);
    for _ in 0..STEPS {
        let members = client.members().await.map_err(said)?;
        match plan(&members, name, &peer) {
            Join::Remove(stale) => {
                console::say(&format!(
                    "etcd: this node's former member {:016x} is removed, because its data are gone",
                    stale.id
                ));
                client.remove(stale.id).await.map_err(said)?;
            }
            Join::NameTaken(other) => {
                return Err(format!(
                    "the cluster has a member {name:?} at {}: give this node another host name or, if that member is \
                     gone for good, call `cortenctl etcd remove-member {:016x}` on another control plane node",
                    other.peer_urls.join(", "),
                    other.id
                ));
            }
            Join::Wait(other) => {
                return Err(format!(
                    "another node is joining etcd at {}: this node joins after that member has started",
                    other.peer_urls.join(", ")
                ));
            }
            Join::Add => {
                let added = client.add_learner(std::slice::from_ref(&peer)).await;
                added.map_err(said)?;
            }
            Join::Start(members) => return Ok(Start::Join(members)),
        }
    }
    Err("the etcd member list keeps changing".to_owned())
}

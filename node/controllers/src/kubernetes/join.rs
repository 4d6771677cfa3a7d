//! Joins a control plane node without etcd data to the existing members.

use std::net::IpAddr;
use std::path::Path;

use corten_base::console;
use corten_credentials::etcd::connect;
use corten_etcd::{Join, plan};
use corten_kubernetes::etcd::{Addresses, Start};
use corten_resources::controller::with_causes as describe;

/// Maximum number of changes of the member list until a node has joined.
const STEPS: usize = 4;

/// Makes the members at `others` add this node, step by step. Returns how it starts; the error gives the reason to
/// wait.
pub(super) async fn join(
    secrets: &Path,
    others: &[IpAddr],
    name: &str,
    own: &Addresses,
) -> Result<Start, String> {
    let client = connect(secrets, others).await?;
    let peers = own.peer_urls();
    let said = |error: corten_etcd::EtcdError| describe(&error);
    for _ in 0..STEPS {
        let members = client.members().await.map_err(said)?;
        match plan(&members, name, &peers) {
            Join::Remove(stale) => {
                console::say(&format!(
                    "etcd: this node's former member {:016x} is removed, because its data or addresses are gone",
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
                client.add_learner(&peers).await.map_err(said)?;
            }
            Join::Start(members) => return Ok(Start::Join(members)),
        }
    }
    Err("the etcd member list keeps changing".to_owned())
}

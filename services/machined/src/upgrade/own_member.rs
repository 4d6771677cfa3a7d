//! Whether this node has a vote in etcd, and the id of its member. The data on disk say so: [`EtcdMember`] is away whenever
//! etcd answers late.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use corten_credentials::etcd::connect;
use corten_etcd::Client;
use corten_kubernetes::etcd::{DATA, has_data};
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::Store;
use corten_resources::controller::with_causes as describe;
use corten_server::node::Node as _;
use corten_supervisor::kubernetes::ETCD;
use corten_types::etcd::EtcdMember;
use tokio::time::timeout;

use crate::state::NodeState;

/// Timeout of etcd's answer.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

/// Id of this node's voting member in hexadecimal; `None` without one. A learner has no vote.
///
/// # Errors
/// The node has a member that does not say whether it votes.
pub(super) async fn own_vote(node: &NodeState) -> Result<Option<String>, String> {
    vote(node.store(), has_member(node), in_time(status())).await
}

/// Whether this node has a member of etcd, running or not. The data of a former control plane node are no member.
#[must_use]
pub fn has_member(node: &NodeState) -> bool {
    let config = node.config();
    config.is_some_and(|config| config.machine.kind.is_control_plane()) && has_data(Path::new(DATA))
}

/// As [`own_vote`]. `status` asks the member for its id, and whether it is a learner.
async fn vote(
    store: &Store,
    has_member: bool,
    status: impl Future<Output = Result<(u64, bool), String>>,
) -> Result<Option<String>, String> {
    if let Some(member) = store.get_as::<EtcdMember>(EtcdMember::ID) {
        return Ok(Some(member.member_id.clone()));
    }
    if !has_member {
        return Ok(None);
    }
    let (id, is_learner) = status.await?;
    Ok((!is_learner).then(|| format!("{id:016x}")))
}

async fn status() -> Result<(u64, bool), String> {
    let status = own_member().await?.status().await;
    let status = status.map_err(|error| describe(&error))?;
    Ok((status.member_id, status.is_learner))
}

/// Connects to this node's member.
pub(super) async fn own_member() -> Result<Client, String> {
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    connect(&secrets, &[IpAddr::from([127, 0, 0, 1])]).await
}

/// Bounds an answer of this node's member by a timeout.
pub(super) async fn in_time<T>(
    answer: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    match timeout(ANSWER, answer).await {
        Ok(answer) => answer,
        Err(_) => Err("this node's member does not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use corten_resources::Draft;

    use super::*;

    fn store() -> Store {
        let store = Store::new();
        store.register::<EtcdMember>().unwrap();
        store
    }

    #[tokio::test(start_paused = true)]
    async fn node_whose_member_answers_late_still_has_a_member() {
        let store = store();
        let late = vote(&store, true, in_time(pending())).await;
        assert_eq!(late.unwrap_err(), "this node's member does not answer");
        let answers = async { Ok((0x1f, false)) };
        let voter = vote(&store, true, answers).await.unwrap();
        assert_eq!(voter.as_deref(), Some("000000000000001f"));
    }

    #[tokio::test(start_paused = true)]
    async fn node_without_a_vote_in_etcd_has_no_member() {
        let store = store();
        let learner = async { Ok((0x1f, true)) };
        assert_eq!(vote(&store, true, learner).await, Ok(None));
        let none = vote(&store, false, in_time(pending())).await;
        assert_eq!(none, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn known_member_is_not_asked() {
        let store = store();
        let member_id = "1f".to_owned();
        let member = Draft::new(EtcdMember::ID, EtcdMember { member_id });
        store.put(member, "").unwrap();
        let known = vote(&store, true, pending()).await;
        assert_eq!(known, Ok(Some("1f".to_owned())));
    }
}

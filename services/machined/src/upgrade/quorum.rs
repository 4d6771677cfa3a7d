//! Checks that etcd keeps its quorum without this node's member, before an upgrade takes the node away.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use corten_credentials::etcd::connect;
use corten_etcd::Member;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::controller::with_causes as describe;
use corten_server::node::Node as _;
use corten_services::kubernetes::ETCD;
use corten_types::etcd::EtcdMember;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::state::NodeState;

/// Timeout of a member's answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Checks that the other members keep their quorum while this node is away. The check passes on a node without a member
/// or with the only one: no other member depends on it.
///
/// # Errors
/// The quorum would be lost, or the members cannot be asked; the text says which.
pub(super) async fn check(node: &NodeState) -> Result<(), String> {
    let Some(own) = node.store().get_as::<EtcdMember>(EtcdMember::ID) else {
        return Ok(());
    };
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    let unsafe_now = |why: String| {
        format!(
            "etcd may lose its quorum without this node: {why}; repair etcd first, or force the upgrade"
        )
    };
    let asked = async {
        let client = connect(&secrets, &[IpAddr::from([127, 0, 0, 1])]).await?;
        client.members().await.map_err(|error| describe(&error))
    };
    let members = match timeout(ANSWER, asked).await {
        Ok(members) => members.map_err(unsafe_now)?,
        Err(_) => return Err(unsafe_now("this node's member does not answer".to_owned())),
    };
    let voters: Vec<&Member> = members.iter().filter(|member| !member.is_learner).collect();
    let others = voters
        .iter()
        .filter(|member| format!("{:016x}", member.id) != own.member_id);
    let answers = join_all(others.map(|member| answers(&secrets, member))).await;
    let silent: Vec<String> = answers
        .iter()
        .filter_map(|answer| answer.clone().err())
        .collect();
    if keeps_quorum(voters.len(), answers.len().saturating_sub(silent.len())) {
        return Ok(());
    }
    Err(unsafe_now(match silent.is_empty() {
        true => format!("the cluster has {} voting members", voters.len()),
        false => format!("no answer from {}", silent.join(", ")),
    }))
}

/// Whether `healthy_others` of `voters` members have a majority. A single voter always passes: no other member loses.
fn keeps_quorum(voters: usize, healthy_others: usize) -> bool {
    voters <= 1 || healthy_others > voters / 2
}

/// Checks that a member is healthy. The error is the member's name.
async fn answers(secrets: &Path, member: &Member) -> Result<(), String> {
    let host = |url: &String| {
        let uri: http::Uri = url.parse().ok()?;
        uri.host()?.trim_matches(['[', ']']).parse::<IpAddr>().ok()
    };
    let addresses: Vec<IpAddr> = member.client_urls.iter().filter_map(host).collect();
    let asked = async {
        let client = connect(secrets, &addresses).await?;
        client.health().await.map_err(|error| describe(&error))
    };
    match timeout(ANSWER, asked).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(member.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_healthy_voters_must_be_a_majority() {
        for (voters, healthy_others, keeps) in [
            (0, 0, true),
            (1, 0, true),
            (2, 1, false),
            (3, 2, true),
            (3, 1, false),
            (5, 3, true),
            (5, 2, false),
        ] {
            assert_eq!(
                keeps_quorum(voters, healthy_others),
                keeps,
                "{voters} {healthy_others}"
            );
        }
    }
}

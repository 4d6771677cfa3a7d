//! Checks that etcd keeps its quorum without this node's member, before a call takes the node away.

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

use super::patience::patiently;
use crate::state::NodeState;

/// Timeout of a member's answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Remedy of a refused call whose caller accepts the risk.
pub(super) const FORCE: &str = "force the call (`upgrade --force`, also to the version before; `shutdown --force`; \
                                `reboot --mode force`)";

/// What becomes of etcd while this node is away.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The other members keep their quorum, or no other member depends on this node.
    Kept,
    /// The other members are too few for a quorum; the text says how many there are.
    Lost(String),
    /// The other members that answer are too few; the text names those that do not.
    Silent(String),
    /// This node's member does not name the members, because it does not run or etcd has no quorum now.
    Unknown(String),
}

impl Outlook {
    /// Error message of a refused call; `None` if the other members keep their quorum.
    pub(super) fn refusal(&self) -> Option<String> {
        let (Outlook::Lost(why) | Outlook::Silent(why) | Outlook::Unknown(why)) = self else {
            return None;
        };
        Some(format!(
            "etcd may lose its quorum without this node: {why}; repair etcd first, or {FORCE}"
        ))
    }
}

/// Finds out whether the other members of etcd keep their quorum while this node is away. Members that do not answer are
/// asked again for this time.
pub(super) async fn outlook(node: &NodeState, patience: Duration) -> Outlook {
    let is_final = |outlook: &Outlook| matches!(outlook, Outlook::Kept | Outlook::Lost(_));
    patiently(patience, || look(node), is_final).await
}

async fn look(node: &NodeState) -> Outlook {
    let Some(own) = node.store().get_as::<EtcdMember>(EtcdMember::ID) else {
        return Outlook::Kept;
    };
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    let asked = async {
        let client = connect(&secrets, &[IpAddr::from([127, 0, 0, 1])]).await?;
        client.members().await.map_err(|error| describe(&error))
    };
    let members = match timeout(ANSWER, asked).await {
        Ok(Ok(members)) => members,
        Ok(Err(why)) => return Outlook::Unknown(why),
        Err(_) => return Outlook::Unknown("this node's member does not answer".to_owned()),
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
        return Outlook::Kept;
    }
    match silent.is_empty() {
        true => Outlook::Lost(format!("the cluster has {} voting members", voters.len())),
        false => Outlook::Silent(format!("no answer from {}", silent.join(", "))),
    }
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

//! Checks that etcd keeps its quorum without this node's member, before a call takes the node away.

use std::path::Path;
use std::time::Duration;

use corten_credentials::etcd::connect;
use corten_etcd::{LeaveError, Member};
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::controller::with_causes as describe;
use corten_server::node::{Reset, SubmitError};
use corten_supervisor::kubernetes::ETCD;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::own_member::{ANSWER, in_time, own_member, own_vote};
use super::patience::patiently;
use super::{LEAVE_PATIENCE, refused};
use crate::state::NodeState;

/// Remedy of a refused call whose caller accepts the risk.
pub(super) const FORCE: &str = "force the call (`upgrade --force`, also to the version before; `shutdown --force`; \
                                `reboot --mode force`)";

/// How long this node's member is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// Until the node is back. The cluster counts the member meanwhile.
    Passing,
    /// For good: the cluster no longer counts the member.
    Final,
}

/// The state of etcd while this node is away.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The other members keep their quorum, or no other member depends on this node.
    Kept,
    /// There is no other member, and this one leaves for good.
    Last,
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
        let why = match self {
            Outlook::Kept | Outlook::Last => return None,
            Outlook::Lost(why) | Outlook::Silent(why) | Outlook::Unknown(why) => why,
        };
        Some(format!(
            "etcd may lose its quorum without this node: {why}; repair etcd first, or {FORCE}"
        ))
    }

    /// Error message of a refused graceful reset. A member that cannot say what becomes of etcd may be why its node is
    /// reset; the others then decide whether it leaves. The last member stays unless the reset wipes it.
    fn refusal_of(&self, reset: &Reset) -> Option<String> {
        match self {
            Outlook::Last => reset
                .wipes_ephemeral()
                .then(|| LeaveError::Last.to_string()),
            Outlook::Kept | Outlook::Unknown(_) => None,
            Outlook::Lost(why) | Outlook::Silent(why) => Some(format!(
                "etcd refuses to let this node's member go: {why}; repair etcd first, or `reset --graceful=false`, \
                 which leaves the member behind in the cluster"
            )),
        }
    }
}

/// Checks that etcd lets this node's member go, before a graceful reset stops anything.
///
/// # Errors
/// etcd would lose its quorum, or its data with its last member.
pub async fn check_reset(node: &NodeState, reset: &Reset) -> Result<(), SubmitError> {
    if !reset.graceful {
        return Ok(());
    }
    let outlook = outlook(node, Absence::Final, LEAVE_PATIENCE).await;
    outlook
        .refusal_of(reset)
        .map_or(Ok(()), |why| Err(refused(why)))
}

/// Finds out whether the other members of etcd keep their quorum while this node is away. Members that do not answer are
/// asked again for this time.
pub(super) async fn outlook(node: &NodeState, absence: Absence, patience: Duration) -> Outlook {
    let is_final =
        |outlook: &Outlook| matches!(outlook, Outlook::Kept | Outlook::Last | Outlook::Lost(_));
    patiently(patience, || look(node, absence), is_final).await
}

async fn look(node: &NodeState, absence: Absence) -> Outlook {
    match own_vote(node).await {
        Ok(Some(own)) => match members().await {
            Ok(members) => judge(&own, &members, absence).await,
            Err(why) => Outlook::Unknown(why),
        },
        Ok(None) => Outlook::Kept,
        Err(why) => Outlook::Unknown(why),
    }
}

/// The members as the cluster lists them. A member that follows a leader and answers late does not lack a quorum, so that
/// its own list counts.
async fn members() -> Result<Vec<Member>, String> {
    let asked = async {
        let members = own_member().await?.members().await;
        members.map_err(|error| describe(&error))
    };
    let why = match in_time(asked).await {
        Ok(members) => return Ok(members),
        Err(why) => why,
    };
    in_time(async {
        let own = own_member().await?;
        let status = own.status().await.map_err(|error| describe(&error))?;
        if status.leader == 0 {
            return Err(why);
        }
        let members = own.local_members().await;
        members.map_err(|error| describe(&error))
    })
    .await
}

/// Finds out whether the voters among `members` keep their quorum without the member `own`.
async fn judge(own: &str, members: &[Member], absence: Absence) -> Outlook {
    if absence == Absence::Final && members.len() == 1 {
        return Outlook::Last;
    }
    let voters: Vec<&Member> = members.iter().filter(|member| !member.is_learner).collect();
    let others = voters
        .iter()
        .filter(|member| format!("{:016x}", member.id) != own);
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    let answers = join_all(others.map(|member| answers(&secrets, member))).await;
    let silent: Vec<String> = answers
        .iter()
        .filter_map(|answer| answer.clone().err())
        .collect();
    let healthy = answers.len().saturating_sub(silent.len());
    if keeps_quorum(voters.len(), healthy, absence) {
        return Outlook::Kept;
    }
    match silent.is_empty() {
        true => Outlook::Lost(format!("the cluster has {} voting members", voters.len())),
        false => Outlook::Silent(format!("no answer from {}", silent.join(", "))),
    }
}

/// Whether `healthy_others` of `voters` members have a majority. A single voter may be away: no other member loses. It
/// never leaves for good, since learners alone are no cluster.
fn keeps_quorum(voters: usize, healthy_others: usize, absence: Absence) -> bool {
    match absence {
        Absence::Passing => voters <= 1 || healthy_others > voters / 2,
        Absence::Final => healthy_others > voters.saturating_sub(1) / 2,
    }
}

/// Checks that a member is healthy. The error is the member's name.
async fn answers(secrets: &Path, member: &Member) -> Result<(), String> {
    let asked = async {
        let client = connect(secrets, &member.hosts()).await?;
        client.health().await.map_err(|error| describe(&error))
    };
    match timeout(ANSWER, asked).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(member.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use corten_volumes::Target;

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
                keeps_quorum(voters, healthy_others, Absence::Passing),
                keeps,
                "{voters} {healthy_others}"
            );
        }
    }

    #[test]
    fn voter_leaves_for_good_while_a_majority_of_the_rest_is_healthy() {
        for (voters, healthy_others, keeps) in [
            (1, 0, false),
            (2, 1, true),
            (2, 0, false),
            (3, 2, true),
            (3, 1, false),
            (4, 2, true),
            (5, 3, true),
            (5, 2, false),
        ] {
            assert_eq!(
                keeps_quorum(voters, healthy_others, Absence::Final),
                keeps,
                "{voters} {healthy_others}"
            );
        }
    }

    #[test]
    fn graceful_reset_that_costs_the_quorum_or_the_data_of_etcd_is_refused() {
        let reset = |target| Reset {
            targets: vec![target],
            graceful: true,
            reboot: true,
        };
        let (all, state) = (Target::SystemDisk, Target::Partition("STATE"));
        let silent = || Outlook::Silent("no answer from cp-3".to_owned());
        for (outlook, target, is_refused) in [
            (silent(), all.clone(), true),
            (silent(), state.clone(), true),
            (Outlook::Lost(String::new()), all.clone(), true),
            (Outlook::Last, all.clone(), true),
            (Outlook::Last, Target::Partition("EPHEMERAL"), true),
            (Outlook::Last, state, false),
            (Outlook::Kept, all.clone(), false),
            (Outlook::Unknown(String::new()), all, false),
        ] {
            let told = outlook.refusal_of(&reset(target));
            assert_eq!(told.is_some(), is_refused, "{outlook:?} {told:?}");
            if let Some(told) = told {
                assert!(told.contains("--graceful=false"), "{told}");
            }
        }
    }
}

//! etcd's operations for an operator, passed on to this node's member.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_api::common::Data;
use corten_api::machine as api;
use corten_api::machine::etcd_member_alarm::AlarmType;
use corten_etcd::{Action, Alarm, AlarmKind, Client, EtcdError, LeaveError, Member, Refusal, Tls};
use corten_kubernetes::ETCD_UID;
use corten_kubernetes::etcd::{CLIENT_PORT, has_data};
use corten_resources::controller::with_causes as describe;
use futures_util::{Stream, StreamExt as _};
use rustix::fs::fchown;
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;
use tonic::Status;
use tonic::codegen::BoxStream;

use crate::Paths;
use crate::actions::to_its_end;
use crate::node::{self, Node};

/// Timeout of an etcd call. A member without a leader answers late.
const PATIENCE: Duration = Duration::from_secs(20);
/// Timeout of a defragmentation, which rewrites the database.
const DEFRAGMENT: Duration = Duration::from_secs(300);
/// Size limit of an uploaded snapshot in bytes, four times etcd's default limit of a database.
const LARGEST: u64 = 8 << 30;

/// Why a node without a member refuses a call.
const NO_MEMBER: &str = "this node has no etcd member: only a control plane node has one, after `bootstrap` or after it \
                         has joined a cluster";

/// A client of this node's member, with the certificate in `secrets`.
pub(super) async fn connect(secrets: &Path) -> Result<Client, Status> {
    let tls = read_tls(secrets)?;
    let client = Client::connect(&[own()], &tls, PATIENCE).await;
    client.map_err(|error| refused(&error))
}

/// Asks this node's member or, if it cannot say anything about the cluster, the first of `others` that answers.
pub(super) async fn ask_cluster<T, F>(
    secrets: &Path,
    others: &[String],
    ask: impl Fn(Client) -> F,
) -> Result<T, Status>
where
    F: Future<Output = Result<T, EtcdError>>,
{
    let tls = read_tls(secrets)?;
    let ask_at = async |endpoints: &[String]| {
        let client = Client::connect(endpoints, &tls, PATIENCE).await?;
        ask(client).await
    };
    let answer = match ask_at(&[own()]).await {
        Err(error) if is_outside(&error) && !others.is_empty() => ask_at(others).await,
        answer => answer,
    };
    answer.map_err(|error| refused(&error))
}

/// Whether the asked member does not run, or has not joined yet.
fn is_outside(error: &EtcdError) -> bool {
    matches!(error, EtcdError::Connect(_)) || error.refusal() == Some(Refusal::OfALearner)
}

fn read_tls(secrets: &Path) -> Result<Tls, Status> {
    Tls::read(secrets).map_err(|_| Status::failed_precondition(NO_MEMBER))
}

fn own() -> String {
    format!("127.0.0.1:{CLIENT_PORT}")
}

/// Maps an etcd error to a status by what the caller can do about it.
pub(super) fn refused(error: &EtcdError) -> Status {
    let text = corten_resources::controller::with_causes(error);
    match error.refusal() {
        Some(Refusal::MemberNotFound) => Status::not_found(text),
        Some(Refusal::AlreadyMember) => Status::already_exists(text),
        Some(Refusal::BadVersion) => Status::invalid_argument(text),
        Some(_) => Status::failed_precondition(text),
        None => Status::unavailable(text),
    }
}

pub(super) async fn members(client: &Client) -> Result<api::EtcdMemberListResponse, EtcdError> {
    client.members().await.map(listed)
}

pub(super) async fn local_members(
    client: &Client,
) -> Result<api::EtcdMemberListResponse, EtcdError> {
    client.local_members().await.map(listed)
}

fn listed(members: Vec<Member>) -> api::EtcdMemberListResponse {
    let members = api::EtcdMembers {
        metadata: None,
        legacy_members: members.iter().map(|member| member.name.clone()).collect(),
        members: members.into_iter().map(shown).collect(),
    };
    api::EtcdMemberListResponse {
        messages: vec![members],
    }
}

fn shown(member: Member) -> api::EtcdMember {
    api::EtcdMember {
        id: member.id,
        hostname: member.name,
        peer_urls: member.peer_urls,
        client_urls: member.client_urls,
        is_learner: member.is_learner,
    }
}

pub(super) async fn status(client: &Client) -> Result<api::EtcdStatusResponse, EtcdError> {
    let status = client.status().await?;
    let signed = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
    let status = api::EtcdStatus {
        metadata: None,
        member_status: Some(api::EtcdMemberStatus {
            storage_version: status.storage_version,
            member_id: status.member_id,
            protocol_version: status.version,
            db_size: signed(status.db_size),
            db_size_in_use: signed(status.db_size_in_use),
            leader: status.leader,
            raft_index: status.raft_index,
            raft_term: status.raft_term,
            raft_applied_index: status.raft_applied_index,
            errors: status.errors,
            is_learner: status.is_learner,
        }),
    };
    let messages = vec![status];
    Ok(api::EtcdStatusResponse { messages })
}

pub(super) async fn alarms(client: &Client) -> Result<api::EtcdAlarmListResponse, EtcdError> {
    let alarm = api::EtcdAlarm {
        metadata: None,
        member_alarms: raised(&client.alarms().await?),
    };
    let messages = vec![alarm];
    Ok(api::EtcdAlarmListResponse { messages })
}

pub(super) async fn disarm(client: &Client) -> Result<api::EtcdAlarmDisarmResponse, EtcdError> {
    let alarm = api::EtcdAlarmDisarm {
        metadata: None,
        member_alarms: raised(&client.disarm_all().await?),
    };
    let messages = vec![alarm];
    Ok(api::EtcdAlarmDisarmResponse { messages })
}

fn raised(alarms: &[Alarm]) -> Vec<api::EtcdMemberAlarm> {
    let shown = |alarm: &Alarm| {
        let kind = match alarm.kind {
            AlarmKind::NoSpace => AlarmType::Nospace.into(),
            AlarmKind::Corrupt => AlarmType::Corrupt.into(),
            AlarmKind::Other(number) => number,
        };
        api::EtcdMemberAlarm {
            member_id: alarm.member,
            alarm: kind,
        }
    };
    alarms.iter().map(shown).collect()
}

pub(super) async fn defragment(client: &Client) -> Result<api::EtcdDefragmentResponse, EtcdError> {
    client.defragment(DEFRAGMENT).await?;
    let messages = vec![api::EtcdDefragment { metadata: None }];
    Ok(api::EtcdDefragmentResponse { messages })
}

pub(super) async fn remove(
    client: &Client,
    id: u64,
) -> Result<api::EtcdRemoveMemberByIdResponse, EtcdError> {
    client.remove(id).await?;
    let messages = vec![api::EtcdRemoveMemberById { metadata: None }];
    Ok(api::EtcdRemoveMemberByIdResponse { messages })
}

/// Removes this node's member from the cluster, then stops etcd and deletes its data. If the cluster has no such member
/// any more, its data still go: they would keep the node from joining again.
pub(super) async fn leave(
    node: Arc<dyn Node>,
    paths: &Paths,
) -> Result<api::EtcdLeaveClusterResponse, Status> {
    if !has_data(&paths.etcd) {
        return Err(Status::failed_precondition(NO_MEMBER));
    }
    let tls = Tls::read(&paths.etcd_secrets);
    let tls = tls.map_err(|error| Status::failed_precondition(describe(&error)))?;
    let asked = node.clone();
    let left = async move { corten_credentials::etcd::leave(tls, asked.store()).await };
    end_after(left, node).await
}

/// Stops etcd and deletes its data after its member has left. A caller that disconnects in between changes nothing.
async fn end_after(
    left: impl Future<Output = Result<(), LeaveError>> + Send + 'static,
    node: Arc<dyn Node>,
) -> Result<api::EtcdLeaveClusterResponse, Status> {
    let ended = async move {
        left.await.map_err(|error| match error {
            LeaveError::Etcd(error) => refused(&error),
            LeaveError::Alone(_) => Status::unavailable(error.to_string()),
            LeaveError::Last | LeaveError::Unclear(..) => {
                Status::failed_precondition(error.to_string())
            }
        })?;
        let ended = node.end_member().await;
        ended.map_err(|error| node::refused(&error))
    };
    to_its_end(ended).await?;
    let messages = vec![api::EtcdLeaveCluster { metadata: None }];
    Ok(api::EtcdLeaveClusterResponse { messages })
}

pub(super) async fn forfeit(
    client: &Client,
) -> Result<api::EtcdForfeitLeadershipResponse, EtcdError> {
    let forfeited = api::EtcdForfeitLeadership {
        metadata: None,
        member: client.hand_over().await?,
    };
    let messages = vec![forfeited];
    Ok(api::EtcdForfeitLeadershipResponse { messages })
}

pub(super) async fn validate_downgrade(
    client: &Client,
    version: &str,
) -> Result<api::EtcdDowngradeValidateResponse, EtcdError> {
    let cluster_downgrade = downgrade(client, Action::Validate, version).await?;
    let messages = vec![api::EtcdDowngradeValidate {
        metadata: None,
        cluster_downgrade,
    }];
    Ok(api::EtcdDowngradeValidateResponse { messages })
}

pub(super) async fn enable_downgrade(
    client: &Client,
    version: &str,
) -> Result<api::EtcdDowngradeEnableResponse, EtcdError> {
    let cluster_downgrade = downgrade(client, Action::Enable, version).await?;
    let messages = vec![api::EtcdDowngradeEnable {
        metadata: None,
        cluster_downgrade,
    }];
    Ok(api::EtcdDowngradeEnableResponse { messages })
}

pub(super) async fn cancel_downgrade(
    client: &Client,
) -> Result<api::EtcdDowngradeCancelResponse, EtcdError> {
    let cluster_downgrade = downgrade(client, Action::Cancel, "").await?;
    let messages = vec![api::EtcdDowngradeCancel {
        metadata: None,
        cluster_downgrade,
    }];
    Ok(api::EtcdDowngradeCancelResponse { messages })
}

async fn downgrade(
    client: &Client,
    action: Action,
    version: &str,
) -> Result<Option<api::EtcdClusterDowngrade>, EtcdError> {
    let cluster_version = client.downgrade(action, version).await?;
    Ok(Some(api::EtcdClusterDowngrade { cluster_version }))
}

/// Streams the whole database.
pub(super) fn snapshot(client: &Client) -> BoxStream<Data> {
    let parts = client.snapshot().map(|part| match part {
        Ok(bytes) => Ok(Data {
            metadata: None,
            bytes: bytes.to_vec(),
        }),
        Err(error) => Err(refused(&error)),
    });
    Box::pin(parts)
}

/// Stores an uploaded snapshot for a later bootstrap, atomically.
pub(super) async fn keep_snapshot<S>(path: &Path, mut parts: S) -> Result<(), Status>
where
    S: Stream<Item = Result<Data, Status>> + Unpin,
{
    let failed = |error: std::io::Error| {
        Status::internal(format!(
            "cannot write {}: {error}; make room on EPHEMERAL, or repair its disk, and upload the snapshot again",
            path.display()
        ))
    };
    let new = path.with_extension("snapshot.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o400)
        .open(&new)
        .await
        .map_err(failed)?;
    let written = async {
        let mut size = 0_u64;
        while let Some(part) = parts.next().await {
            let part = part?;
            size = size.saturating_add(part.bytes.len() as u64);
            if size > LARGEST {
                return Err(Status::invalid_argument(format!(
                    "the snapshot is larger than {LARGEST} bytes, the limit of an upload; defragment etcd before the \
                     next snapshot"
                )));
            }
            file.write_all(&part.bytes).await.map_err(failed)?;
        }
        if size == 0 {
            return Err(Status::invalid_argument(
                "the snapshot is empty; `cortenctl etcd snapshot` takes one",
            ));
        }
        let owner = rustix::process::Uid::from_raw(ETCD_UID);
        let group = rustix::process::Gid::from_raw(ETCD_UID);
        fchown(&file, Some(owner), Some(group)).map_err(|error| failed(error.into()))?;
        file.sync_all().await.map_err(failed)?;
        fs::rename(&new, path).map_err(failed)
    };
    let written = written.await;
    if written.is_err() {
        // Free the space of the incomplete file.
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;
    use crate::tests::{DEADLINE, Remembering};

    #[tokio::test]
    async fn data_of_a_removed_member_are_deleted_although_the_caller_is_gone() {
        let node = Arc::new(Remembering::default());
        let (remove, removed) = oneshot::channel();
        let left = async move { removed.await.unwrap() };
        let call = end_after(left, node.clone());
        // The call is dropped after its first step.
        assert!(call.now_or_never().is_none());
        remove.send(Ok(())).unwrap();
        let ended = node.member_ended.notified();
        timeout(DEADLINE, ended).await.unwrap();
    }

    #[tokio::test]
    async fn data_of_a_member_that_stays_are_kept() {
        let node = Arc::new(Remembering::default());
        let refused = end_after(async { Err(LeaveError::Last) }, node.clone()).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::FailedPrecondition);
        assert!(node.member_ended.notified().now_or_never().is_none());
    }

    #[tokio::test]
    async fn truncated_or_empty_snapshot_keeps_the_previous_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd.snapshot");
        fs::write(&path, "before").unwrap();
        let part = |text: &str| {
            Ok(Data {
                metadata: None,
                bytes: text.into(),
            })
        };
        let cut = [part("new"), Err(Status::cancelled("gone"))];
        let refused = keep_snapshot(&path, futures_util::stream::iter(cut)).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::Cancelled);
        let nothing = keep_snapshot(&path, futures_util::stream::iter([])).await;
        assert_eq!(nothing.unwrap_err().code(), tonic::Code::InvalidArgument);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn node_without_etcd_names_bootstrap_as_the_next_step() {
        let directory = tempfile::tempdir().unwrap();
        let status = connect(directory.path()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        assert!(status.message().contains("bootstrap"), "{status}");
    }
}

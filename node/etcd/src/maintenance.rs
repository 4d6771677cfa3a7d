//! Maintenance of a member: status, alarms, database size, leadership, downgrades and snapshots.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use tonic::Streaming;
use tonic::transport::Channel;

use crate::client::Client;
use crate::error::EtcdError;
use crate::wire::etcdserverpb as pb;
use crate::wire::etcdserverpb::alarm_request::AlarmAction;
use crate::wire::etcdserverpb::downgrade_request::DowngradeAction;
use crate::wire::etcdserverpb::maintenance_client::MaintenanceClient;

/// Status of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Id of the cluster.
    pub cluster_id: u64,
    /// Id of the member.
    pub member_id: u64,
    /// Version of etcd.
    pub version: String,
    /// Version of the storage; empty before etcd 3.6.
    pub storage_version: String,
    /// Size of the database file, in bytes.
    pub db_size: u64,
    /// Used part of the database in bytes; defragmentation frees the rest.
    pub db_size_in_use: u64,
    /// Id of the leader; 0 without a leader.
    pub leader: u64,
    /// Index of the last committed entry of the raft log.
    pub raft_index: u64,
    /// Raft term.
    pub raft_term: u64,
    /// Index of the last applied entry of the raft log.
    pub raft_applied_index: u64,
    /// Errors that etcd reports about itself, including alarms.
    pub errors: Vec<String>,
    /// Whether the member is a learner, without a vote.
    pub is_learner: bool,
}

/// Kind of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// The database has reached its size limit and rejects writes.
    NoSpace,
    /// The member's data differ from those of other members.
    Corrupt,
    /// Unknown kind, with its number.
    Other(i32),
}

impl AlarmKind {
    fn number(self) -> i32 {
        match self {
            AlarmKind::NoSpace => pb::AlarmType::Nospace as i32,
            AlarmKind::Corrupt => pb::AlarmType::Corrupt as i32,
            AlarmKind::Other(number) => number,
        }
    }
}

impl From<i32> for AlarmKind {
    fn from(number: i32) -> AlarmKind {
        match pb::AlarmType::try_from(number) {
            Ok(pb::AlarmType::Nospace) => AlarmKind::NoSpace,
            Ok(pb::AlarmType::Corrupt) => AlarmKind::Corrupt,
            Ok(pb::AlarmType::None) | Err(_) => AlarmKind::Other(number),
        }
    }
}

/// An active alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// Id of the affected member.
    pub member: u64,
    /// Kind of the alarm.
    pub kind: AlarmKind,
}

/// Step of a downgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Checks whether the cluster can downgrade to the version.
    Validate,
    /// Starts the downgrade: members of that version may join.
    Enable,
    /// Cancels the downgrade. etcd 3.7 accepts it even without a downgrade in progress.
    Cancel,
}

/// A size from etcd, which is never negative.
fn size(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or_default()
}

fn alarms(alarms: Vec<pb::AlarmMember>) -> Vec<Alarm> {
    let alarm = |alarm: pb::AlarmMember| Alarm {
        member: alarm.member_id,
        kind: alarm.alarm.into(),
    };
    alarms.into_iter().map(alarm).collect()
}

/// Progress of a snapshot.
struct Copying {
    client: Client,
    /// `None` before the first message.
    stream: Option<Streaming<pb::SnapshotResponse>>,
    /// Remaining bytes of the database, from the last message.
    remaining: Option<u64>,
}

const SNAPSHOT: &str = "read a snapshot";

impl Copying {
    async fn next(&mut self) -> Result<Option<Bytes>, EtcdError> {
        let within = self.client.timeout();
        if self.stream.is_none() {
            let mut maintenance = self.client.maintenance();
            let answer = maintenance.snapshot(pb::SnapshotRequest {});
            self.stream = Some(self.client.call(SNAPSHOT, answer).await?);
        }
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let message = tokio::time::timeout(within, stream.message())
            .await
            .map_err(|_| self.client.silent(SNAPSHOT, within))?
            .map_err(|status| self.client.failed(SNAPSHOT, &status))?;
        match (message, self.remaining) {
            (Some(message), _) => {
                self.remaining = Some(message.remaining_bytes);
                Ok(Some(message.blob.into()))
            }
            (None, Some(0)) => Ok(None),
            (None, _) => Err(self.client.broken(SNAPSHOT, "it ended early")),
        }
    }
}

impl Client {
    fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel())
    }

    /// Status of the member; needs no quorum.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn status(&self) -> Result<Status, EtcdError> {
        let what = "read the status";
        let mut client = self.maintenance();
        let answer = self.call(what, client.status(pb::StatusRequest {})).await?;
        let header = answer
            .header
            .ok_or_else(|| self.broken(what, "it does not name its member"))?;
        Ok(Status {
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            version: answer.version,
            storage_version: answer.storage_version,
            db_size: size(answer.db_size),
            db_size_in_use: size(answer.db_size_in_use),
            leader: answer.leader,
            raft_index: answer.raft_index,
            raft_term: answer.raft_term,
            raft_applied_index: answer.raft_applied_index,
            errors: answer.errors,
            is_learner: answer.is_learner,
        })
    }

    async fn alarm(
        &self,
        what: &'static str,
        request: pb::AlarmRequest,
    ) -> Result<Vec<Alarm>, EtcdError> {
        let answer = self.call(what, self.maintenance().alarm(request)).await?;
        Ok(alarms(answer.alarms))
    }

    /// Alarms of all members.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn alarms(&self) -> Result<Vec<Alarm>, EtcdError> {
        let request = pb::AlarmRequest {
            action: AlarmAction::Get as i32,
            ..Default::default()
        };
        self.alarm("read the alarms", request).await
    }

    /// Disarms an alarm whose cause is fixed. Returns the disarmed alarms; none if it was not active.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn disarm(&self, alarm: Alarm) -> Result<Vec<Alarm>, EtcdError> {
        let request = pb::AlarmRequest {
            action: AlarmAction::Deactivate as i32,
            member_id: alarm.member,
            alarm: alarm.kind.number(),
        };
        self.alarm("disarm an alarm", request).await
    }

    /// Disarms all active alarms, and returns them.
    ///
    /// # Errors
    /// [`EtcdError`]; the alarms before the failed one are disarmed.
    pub async fn disarm_all(&self) -> Result<Vec<Alarm>, EtcdError> {
        let mut ended = Vec::new();
        for alarm in self.alarms().await? {
            ended.extend(self.disarm(alarm).await?);
        }
        Ok(ended)
    }

    /// Rewrites the member's database to free unused space. The member serves no requests meanwhile, and the disk's
    /// speed determines the duration; `within` is the timeout.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn defragment(&self, within: Duration) -> Result<(), EtcdError> {
        let mut client = self.maintenance();
        let answer = client.defragment(pb::DefragmentRequest {});
        self.call_within("defragment the database", within, answer)
            .await?;
        Ok(())
    }

    /// Moves the leadership from this member, which must lead, to the member `target`.
    ///
    /// # Errors
    /// [`EtcdError::is_not_leader`], or another [`EtcdError`].
    pub async fn move_leader(&self, target: u64) -> Result<(), EtcdError> {
        let request = pb::MoveLeaderRequest { target_id: target };
        let mut client = self.maintenance();
        let answer = client.move_leader(request);
        self.call("move the leadership", answer).await?;
        Ok(())
    }

    /// Performs a step of the cluster's downgrade to `version` ("3.6.0"; ignored for [`Action::Cancel`]). Returns the
    /// cluster's version.
    ///
    /// # Errors
    /// [`EtcdError`]; its [`EtcdError::refusal`] tells a downgrade in progress from an invalid version.
    pub async fn downgrade(&self, action: Action, version: &str) -> Result<String, EtcdError> {
        let (what, action) = match action {
            Action::Validate => ("check a downgrade", DowngradeAction::Validate),
            Action::Enable => ("begin a downgrade", DowngradeAction::Enable),
            Action::Cancel => ("cancel a downgrade", DowngradeAction::Cancel),
        };
        let request = pb::DowngradeRequest {
            action: action as i32,
            version: version.to_owned(),
        };
        let mut client = self.maintenance();
        let answer = client.downgrade(request);
        Ok(self.call(what, answer).await?.version)
    }

    /// Streams a snapshot of the member's database, followed by its SHA-256. The result is a file for
    /// [`verify_snapshot`](crate::verify_snapshot) and `etcdutl snapshot restore`. Pieces of about 32 KiB are fetched
    /// on demand, each with the timeout of a call. A stream that ends early has an error as its last item.
    pub fn snapshot(&self) -> impl Stream<Item = Result<Bytes, EtcdError>> + Send + Unpin + use<> {
        let copying = Copying {
            client: self.clone(),
            stream: None,
            remaining: None,
        };
        stream::try_unfold(copying, async |mut copying| {
            let piece = copying.next().await?;
            Ok(piece.map(|piece| (piece, copying)))
        })
        .boxed()
    }
}

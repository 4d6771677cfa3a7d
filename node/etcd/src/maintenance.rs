//! The upkeep of a member: its state, alarms, size, leadership, version and copy.

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

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The cluster's id.
    pub cluster_id: u64,
    /// The member's own id.
    pub member_id: u64,
    /// The version of etcd.
    pub version: String,
    /// The version of its data; empty before etcd 3.6.
    pub storage_version: String,
    /// The size of the database file, in bytes.
    pub db_size: u64,
    /// How much of that is in use, in bytes: defragmenting frees the rest.
    pub db_size_in_use: u64,
    /// The id of the member that leads; 0 if none does.
    pub leader: u64,
    /// The last entry of the raft log that is committed.
    pub raft_index: u64,
    /// The raft term.
    pub raft_term: u64,
    /// The last entry of the raft log that is applied.
    pub raft_applied_index: u64,
    /// What etcd finds wrong with itself, alarms among it.
    pub errors: Vec<String>,
    /// Whether the member has no vote yet.
    pub is_learner: bool,
}

/// What an alarm is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// The database is as large as it may be: nothing more can be written.
    NoSpace,
    /// The member's data differs from that of others.
    Corrupt,
    /// One that this client does not know, by its number.
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

/// An alarm that is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alarm {
    /// The id of the member that it is about.
    pub member: u64,
    /// What it is about.
    pub kind: AlarmKind,
}

/// A step of a downgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Say whether the cluster could go to the version.
    Validate,
    /// Have the cluster go to the version: members of it may join then.
    Enable,
    /// Take that back. etcd 3.7 does not refuse it when nothing is to be taken back.
    Cancel,
}

/// A size as etcd sends it. None is negative.
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

/// How far a snapshot has come.
struct Copying {
    client: Client,
    /// None before the first message.
    stream: Option<Streaming<pb::SnapshotResponse>>,
    /// How much of the database is still to come, as the last message said.
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
            (None, _) => Err(self.client.broken(SNAPSHOT, "it ended before its end")),
        }
    }
}

impl Client {
    fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel())
    }

    /// What the member says of itself. It needs no quorum.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn status(&self) -> Result<Status, EtcdError> {
        let what = "read the status";
        let mut client = self.maintenance();
        let answer = self.call(what, client.status(pb::StatusRequest {})).await?;
        let header = answer
            .header
            .ok_or_else(|| self.broken(what, "it does not say of which member it is"))?;
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

    /// The alarms of all members.
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

    /// Ends an alarm whose cause has been removed. Returns what was ended: nothing, if it was not raised.
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

    /// Ends every alarm that is raised. Returns what was ended.
    ///
    /// # Errors
    /// [`EtcdError`]; those before the one that failed are ended.
    pub async fn disarm_all(&self) -> Result<Vec<Alarm>, EtcdError> {
        let mut ended = Vec::new();
        for alarm in self.alarms().await? {
            ended.extend(self.disarm(alarm).await?);
        }
        Ok(ended)
    }

    /// Has the member write its database anew, which gives back what is not in use. The member does nothing else
    /// meanwhile, which takes as long as its disk needs for all of it: `within` is for that.
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

    /// Has this member, which must lead, give the leadership to the member `target`.
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

    /// Takes a step of the cluster's downgrade to `version` ("3.6.0"; not read for [`Action::Cancel`]). Returns the
    /// version the cluster has.
    ///
    /// # Errors
    /// [`EtcdError`], whose [`EtcdError::refusal`] tells whether a downgrade runs or the version cannot be.
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

    /// A copy of the member's database, in pieces of some 32 KiB as they are asked for, the SHA-256 of all of it
    /// last: together a file for [`verify_snapshot`](crate::verify_snapshot) and `etcdutl snapshot restore`. Each
    /// piece has the time of a call. A stream that ends early has an error as its last item.
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

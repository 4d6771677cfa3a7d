//! Reads and writes keys.

use std::path::Path;
use std::time::Duration;

use crate::client::{Client, Tls};
use crate::error::EtcdError;
use crate::wire::etcdserverpb as pb;
use crate::wire::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::etcdserverpb::kv_client::KvClient;
use crate::wire::etcdserverpb::request_op::Request as Op;

/// Key of the health check, which need not exist (same as in `etcdctl endpoint health`).
const HEALTH_KEY: &[u8] = b"health";

/// A key's value and metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Value.
    pub value: Vec<u8>,
    /// Revision that created the key.
    pub created: i64,
    /// Revision of the last write.
    pub modified: i64,
    /// Number of writes since the key's creation.
    pub version: i64,
}

/// Checks a member with the credentials in `secrets` ([`Tls::read`]): it reads a key by consensus, which needs a quorum.
/// A learner passes when it answers: it cannot read yet, and becomes a voter because it is healthy.
///
/// Connects anew each time: no connection stays open, and a member that accepts no more of them is noticed.
///
/// # Errors
/// [`EtcdError`] with the reason why the member is unhealthy.
pub async fn check_member(
    endpoint: &str,
    secrets: &Path,
    timeout: Duration,
) -> Result<(), EtcdError> {
    let tls = Tls::read(secrets)?;
    let member = Client::connect(&[endpoint.to_owned()], &tls, timeout).await?;
    match member.health().await {
        Err(error) if error.is_from_learner() => Ok(()),
        health => health,
    }
}

impl Client {
    fn keys(&self) -> KvClient<tonic::transport::Channel> {
        KvClient::new(self.channel())
    }

    async fn read(&self, what: &'static str, key: &[u8]) -> Result<Option<Entry>, EtcdError> {
        let request = pb::RangeRequest {
            key: key.to_vec(),
            ..Default::default()
        };
        let answer = self.call(what, self.keys().range(request)).await?;
        let Some(found) = answer.kvs.into_iter().next() else {
            return Ok(None);
        };
        if found.key != key {
            return Err(self.broken(what, "it has a key that was not requested"));
        }
        Ok(Some(Entry {
            value: found.value,
            created: found.create_revision,
            modified: found.mod_revision,
            version: found.version,
        }))
    }

    /// Reads a key linearizably; needs a quorum.
    ///
    /// # Errors
    /// [`EtcdError`]. etcd refuses an empty key.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Entry>, EtcdError> {
        self.read("read a key", key).await
    }

    /// Checks that the cluster answers: reads a key as [`Client::get`] does, with the default timeout.
    ///
    /// # Errors
    /// [`EtcdError`] with the reason why the cluster is unhealthy.
    pub async fn health(&self) -> Result<(), EtcdError> {
        self.read("see whether etcd is healthy", HEALTH_KEY).await?;
        Ok(())
    }

    /// Writes a key.
    ///
    /// # Errors
    /// [`EtcdError`]. etcd refuses an empty key.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), EtcdError> {
        let request = pb::PutRequest {
            key: key.to_vec(),
            value: value.to_vec(),
            lease: 0,
        };
        self.call("write a key", self.keys().put(request)).await?;
        Ok(())
    }

    /// Deletes a key. Returns whether it existed.
    ///
    /// # Errors
    /// [`EtcdError`]. etcd refuses an empty key.
    pub async fn delete(&self, key: &[u8]) -> Result<bool, EtcdError> {
        let request = pb::DeleteRangeRequest { key: key.to_vec() };
        let mut client = self.keys();
        let answer = client.delete_range(request);
        Ok(self.call("delete a key", answer).await?.deleted > 0)
    }

    /// Compare-and-swap: writes the value `new`, attached to a lease, or deletes the key without one, if the key is
    /// unchanged since `seen` was read. Returns whether it was unchanged.
    pub(crate) async fn swap(
        &self,
        what: &'static str,
        key: &[u8],
        seen: Option<&Entry>,
        new: Option<(&[u8], i64)>,
    ) -> Result<bool, EtcdError> {
        let (key, op) = (
            key.to_vec(),
            match new {
                Some((value, lease)) => Op::RequestPut(pb::PutRequest {
                    key: key.to_vec(),
                    value: value.to_vec(),
                    lease,
                }),
                None => Op::RequestDeleteRange(pb::DeleteRangeRequest { key: key.to_vec() }),
            },
        );
        // A missing key has revision 0.
        let revision = seen.map_or(0, |seen| seen.modified);
        let request = pb::TxnRequest {
            compare: vec![pb::Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key,
                target_union: Some(TargetUnion::ModRevision(revision)),
            }],
            success: vec![pb::RequestOp { request: Some(op) }],
        };
        Ok(self.call(what, self.keys().txn(request)).await?.succeeded)
    }
}

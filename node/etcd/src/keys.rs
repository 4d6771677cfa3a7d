//! Keys and values.

use crate::client::Client;
use crate::error::EtcdError;
use crate::wire::etcdserverpb as pb;
use crate::wire::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::etcdserverpb::kv_client::KvClient;
use crate::wire::etcdserverpb::request_op::Request as Op;

/// The key that is read to see whether the cluster answers; it need not be there (`etcdctl endpoint health`'s).
const HEALTH_KEY: &[u8] = b"health";

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// The revision that made the key.
    pub created: i64,
    /// The revision that wrote it last.
    pub modified: i64,
    /// How often it was written since it was made.
    pub version: i64,
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
            return Err(self.broken(what, "it has another key than was asked for"));
        }
        Ok(Some(Entry {
            value: found.value,
            created: found.create_revision,
            modified: found.mod_revision,
            version: found.version,
        }))
    }

    /// What a key holds, as the cluster has agreed on it (linearizable): it needs a quorum.
    ///
    /// # Errors
    /// [`EtcdError`]. An empty key is refused.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Entry>, EtcdError> {
        self.read("read a key", key).await
    }

    /// Whether the cluster answers: a key is read as by [`Client::get`], in the time a call has.
    ///
    /// # Errors
    /// [`EtcdError`], which is why the cluster is not healthy.
    pub async fn health(&self) -> Result<(), EtcdError> {
        self.read("see whether etcd is healthy", HEALTH_KEY).await?;
        Ok(())
    }

    /// Writes a key.
    ///
    /// # Errors
    /// [`EtcdError`]. An empty key is refused.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), EtcdError> {
        let request = pb::PutRequest {
            key: key.to_vec(),
            value: value.to_vec(),
            lease: 0,
        };
        self.call("write a key", self.keys().put(request)).await?;
        Ok(())
    }

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// [`EtcdError`]. An empty key is refused.
    pub async fn delete(&self, key: &[u8]) -> Result<bool, EtcdError> {
        let request = pb::DeleteRangeRequest { key: key.to_vec() };
        let mut client = self.keys();
        let answer = client.delete_range(request);
        Ok(self.call("delete a key", answer).await?.deleted > 0)
    }

    /// Gives a key the value `new`, which ends with a lease, or without one deletes the key; but only if the key is
    /// still as it was when `seen` was read. Returns whether it was.
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
        // A key that is not there has the revision 0.
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

//! Claims: a key that names the holder of a resource. It outlives its holder until its lease expires.
//!
//! A [lock](crate::Lock) ends with the process that holds it. A claim covers an operation during which its holder
//! reboots.

use std::time::Duration;

use crate::client::Client;
use crate::error::EtcdError;
use crate::keys::Entry;

/// Number of attempts to write the key while other clients change it.
const TRIES: usize = 5;

/// A key that the caller holds until its lease expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    lease: i64,
}

impl Client {
    /// Claims a key for `ttl` (whole seconds, at least one). If the key has a value for which `is_own` is false,
    /// returns that value and leaves the key unchanged.
    ///
    /// # Errors
    /// [`EtcdError`]; the caller does not hold the key, or only until `ttl` has passed.
    pub async fn claim(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Duration,
        is_own: impl Fn(&[u8]) -> bool,
    ) -> Result<Result<Claim, Vec<u8>>, EtcdError> {
        let what = "claim a key";
        let (lease, _) = self.grant(ttl).await?;
        let claimed = async {
            for _ in 0..TRIES {
                let seen = self.get(key).await?;
                if let Some(Entry { value, .. }) = seen.as_ref().filter(|seen| !is_own(&seen.value))
                {
                    return Ok(Err(value.clone()));
                }
                if self
                    .swap(what, key, seen.as_ref(), Some((value, lease)))
                    .await?
                {
                    return Ok(Ok(Claim { lease }));
                }
            }
            Err(self.broken(what, "other clients changed the key in every attempt"))
        }
        .await;
        if !matches!(claimed, Ok(Ok(_))) {
            // The lease also expires by itself, only later.
            let _ = self.revoke(what, lease).await;
        }
        claimed
    }

    /// Renews the lease of a claim. Returns whether the claim still existed.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub async fn prolong(&self, claim: &Claim) -> Result<bool, EtcdError> {
        Ok(self.renew(claim.lease).await?.is_some())
    }

    /// Deletes a key if `is_own` is true for its value. Returns whether it did.
    ///
    /// # Errors
    /// [`EtcdError`]; the key is free once the lease has expired.
    pub async fn give_up(
        &self,
        key: &[u8],
        is_own: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, EtcdError> {
        let what = "free a key";
        for _ in 0..TRIES {
            let Some(seen) = self.get(key).await?.filter(|seen| is_own(&seen.value)) else {
                return Ok(false);
            };
            if self.swap(what, key, Some(&seen), None).await? {
                return Ok(true);
            }
        }
        Err(self.broken(what, "other clients changed the key in every attempt"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tonic::service::Routes;
    use tonic::{Request, Response, Status};

    use super::*;
    use crate::fake::{Fake, LEASE, Script, serve};
    use crate::wire::etcdserverpb as pb;
    use crate::wire::etcdserverpb::compare::TargetUnion;
    use crate::wire::etcdserverpb::kv_server::{Kv, KvServer};
    use crate::wire::etcdserverpb::lease_server::LeaseServer;
    use crate::wire::etcdserverpb::request_op::Request as Op;
    use crate::wire::mvccpb::KeyValue;

    const KEY: &[u8] = b"upgrade";
    const TTL: Duration = Duration::from_secs(60);

    /// A fake of etcd's semantics for a single key.
    #[derive(Debug, Clone, Default)]
    struct Store(Arc<Mutex<State>>);

    #[derive(Debug, Default)]
    struct State {
        revision: i64,
        key: Option<KeyValue>,
        lease: i64,
        /// Values of concurrent writers, each written right after the next read of the key.
        overtakes: Vec<&'static [u8]>,
    }

    impl State {
        fn put(&mut self, value: &[u8], lease: i64) {
            self.revision += 1;
            self.key = Some(KeyValue {
                key: KEY.to_vec(),
                value: value.to_vec(),
                mod_revision: self.revision,
                ..Default::default()
            });
            self.lease = lease;
        }
    }

    #[tonic::async_trait]
    impl Kv for Store {
        async fn range(
            &self,
            _: Request<pb::RangeRequest>,
        ) -> Result<Response<pb::RangeResponse>, Status> {
            let mut state = self.0.lock().unwrap();
            let kvs = state.key.clone().into_iter().collect();
            if let Some(value) = state.overtakes.pop() {
                state.put(value, 1);
            }
            Ok(Response::new(pb::RangeResponse { header: None, kvs }))
        }

        async fn txn(
            &self,
            request: Request<pb::TxnRequest>,
        ) -> Result<Response<pb::TxnResponse>, Status> {
            let request = request.into_inner();
            let mut state = self.0.lock().unwrap();
            let is = state.key.as_ref().map_or(0, |key| key.mod_revision);
            let Some(TargetUnion::ModRevision(wanted)) = request.compare[0].target_union else {
                panic!("{request:?}");
            };
            let succeeded = is == wanted;
            match &request.success[0].request {
                _ if !succeeded => {}
                Some(Op::RequestPut(put)) => state.put(&put.value, put.lease),
                Some(Op::RequestDeleteRange(_)) => state.key = None,
                None => panic!("{request:?}"),
            }
            Ok(Response::new(pb::TxnResponse {
                header: None,
                succeeded,
            }))
        }
    }

    /// A client of a fake store; a script answers its lease calls.
    async fn start(renewals: usize) -> (Store, Fake, Client) {
        let store = Store::default();
        let (fake, _) = Fake::start(Script {
            ttl: 60,
            renewals,
            ..Default::default()
        })
        .await;
        let routes =
            Routes::new(KvServer::new(store.clone())).add_service(LeaseServer::new(fake.clone()));
        (store, fake, serve(routes).await)
    }

    fn value(store: &Store) -> Option<Vec<u8>> {
        store.0.lock().unwrap().key.clone().map(|key| key.value)
    }

    #[tokio::test]
    async fn claim_blocks_other_clients_until_it_is_released() {
        let (store, fake, client) = start(1).await;
        let claim = |own: &'static [u8]| client.claim(KEY, own, TTL, move |value| value == own);
        let held = claim(b"a").await.unwrap().unwrap();
        assert_eq!(store.0.lock().unwrap().lease, LEASE);
        assert_eq!(claim(b"b").await.unwrap(), Err(b"a".to_vec()));
        // The unused lease is revoked.
        assert!(fake.asked(|asked| asked.calls.contains(&format!("revoke {LEASE}"))));
        claim(b"a").await.unwrap().unwrap();
        assert!(client.prolong(&held).await.unwrap());
        assert!(!client.prolong(&held).await.unwrap());
        assert!(!client.give_up(KEY, |value| value == b"b").await.unwrap());
        assert_eq!(value(&store), Some(b"a".to_vec()));
        assert!(client.give_up(KEY, |value| value == b"a").await.unwrap());
        assert_eq!(value(&store), None);
        claim(b"b").await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn loser_of_two_concurrent_claims_learns_the_other_claims_value() {
        let (store, _, client) = start(0).await;
        store.0.lock().unwrap().overtakes.push(b"b");
        let told = client.claim(KEY, b"a", TTL, |value| value == b"a").await;
        assert_eq!(told.unwrap(), Err(b"b".to_vec()));
        assert_eq!(value(&store), Some(b"b".to_vec()));
        // A key that another client takes meanwhile stays.
        store.0.lock().unwrap().overtakes.push(b"c");
        assert!(!client.give_up(KEY, |value| value == b"b").await.unwrap());
        assert_eq!(value(&store), Some(b"c".to_vec()));
    }

    #[tokio::test]
    async fn claim_of_a_constantly_changing_key_fails() {
        let (store, _, client) = start(0).await;
        store.0.lock().unwrap().overtakes = vec![&b"a"[..]; TRIES];
        let error = client.claim(KEY, b"a", TTL, |value| value == b"a").await;
        assert!(error.unwrap_err().to_string().contains("in every attempt"));
    }
}

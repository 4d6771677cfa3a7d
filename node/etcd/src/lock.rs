//! Locks of the cluster, each kept by a lease (etcd's services Lock and Lease).

use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::client::Client;
use crate::error::EtcdError;
use crate::refusal::Refusal;
use crate::wire::etcdserverpb as pb;
use crate::wire::etcdserverpb::lease_client::LeaseClient;
use crate::wire::v3lockpb as locks;
use crate::wire::v3lockpb::lock_client::LockClient;

/// A lease is renewed so often in its time, so that a renewal may fail.
const RENEWALS: u32 = 3;
/// The same while renewals fail.
const RETRIES: u32 = 10;
/// The longest lease that is asked for; etcd refuses those over 9 000 000 000 s.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A lock that is held until it is [unlocked](Lock::unlock), dropped or lost.
///
/// Its lease is renewed in the background. When etcd cannot be reached for the time of the lease, another may get the
/// lock: who holds it has to stop when [`Lock::lost`] returns. A guard that is dropped ends the lease in the
/// background; if that fails, the lock is free when the lease's time is over.
#[derive(Debug)]
pub struct Lock {
    client: Client,
    key: Vec<u8>,
    lease: i64,
    held: watch::Receiver<bool>,
    /// Ends the renewals; dropped without a word, it has them end the lease, too.
    release: Option<oneshot::Sender<()>>,
}

impl Lock {
    /// The key that is there while the lock is held.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the lease is known to last.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // The other end is gone when the runtime has ended the task.
        *self.held.borrow() && self.held.has_changed().is_ok()
    }

    /// Returns when the lock is not held any more.
    pub async fn lost(&mut self) {
        // An error says that nobody renews it any more.
        let _ = self.held.wait_for(|held| !held).await;
    }

    /// Gives the lock to the next who waits for it.
    ///
    /// # Errors
    /// [`EtcdError`]; the lock is free then when the lease's time is over.
    pub async fn unlock(mut self) -> Result<(), EtcdError> {
        let what = "unlock";
        let key = self.key.clone();
        let mut client = LockClient::new(self.client.channel());
        let unlocked = self
            .client
            .call(what, client.unlock(locks::UnlockRequest { key }))
            .await;
        // The lease has no other use. That it is gone is as good, and its end removes the key, too.
        match self.client.revoke(what, self.lease).await {
            Ok(()) => {}
            Err(error) if error.refusal() == Some(Refusal::LeaseNotFound) => {}
            Err(error) if unlocked.is_err() => return Err(error),
            Err(_) => {}
        }
        // Only now: until here, a guard that is dropped has the lease ended in the background.
        if let Some(release) = self.release.take() {
            let _ = release.send(());
        }
        Ok(())
    }
}

impl Client {
    fn leases(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel())
    }

    /// Waits for at most `patience` for the lock `name`, which is then held by a lease of `ttl` (whole seconds, at
    /// least one; etcd may give a longer one). Who is dropped while it waits does not wait in the cluster either.
    ///
    /// # Errors
    /// [`EtcdError::LockHeld`] when another holds it all the time, or another [`EtcdError`].
    pub async fn lock(
        &self,
        name: &str,
        ttl: Duration,
        patience: Duration,
    ) -> Result<Lock, EtcdError> {
        let (lease, until) = self.grant(ttl).await?;
        // From here on the guard ends the lease, however this ends.
        let (release, released) = oneshot::channel();
        let (still, held) = watch::channel(true);
        tokio::spawn(keep(self.clone(), lease, until, still, released));
        let mut lock = Lock {
            client: self.clone(),
            key: Vec::new(),
            lease,
            held,
            release: Some(release),
        };
        let request = locks::LockRequest {
            name: name.as_bytes().to_vec(),
            lease,
        };
        let what = "lock";
        let mut client = LockClient::new(self.channel());
        let answer = client.lock(request);
        let answer = self.call_within(what, patience, answer).await;
        lock.key = match answer {
            Ok(answer) => answer.key,
            Err(EtcdError::Silent {
                endpoint, within, ..
            }) => {
                let name = name.to_owned();
                return Err(EtcdError::LockHeld {
                    name,
                    endpoint,
                    within,
                });
            }
            Err(error) => return Err(error),
        };
        if lock.key.is_empty() {
            return Err(self.broken(what, "it does not name the lock's key"));
        }
        if !lock.is_held() {
            return Err(EtcdError::LockLost {
                name: name.to_owned(),
                endpoint: self.endpoint().to_owned(),
            });
        }
        Ok(lock)
    }

    /// A lease, and until when it lasts if nobody renews it.
    pub(crate) async fn grant(&self, ttl: Duration) -> Result<(i64, Until), EtcdError> {
        let what = "get a lease";
        let seconds = ttl.clamp(Duration::from_secs(1), LONGEST).as_secs();
        let request = pb::LeaseGrantRequest {
            ttl: i64::try_from(seconds).unwrap_or(1),
            id: 0,
        };
        let asked = Instant::now();
        let answer = self.call(what, self.leases().lease_grant(request)).await?;
        if !answer.error.is_empty() {
            return Err(self.failed(what, &tonic::Status::unknown(answer.error)));
        }
        match Until::of(asked, answer.ttl) {
            Some(until) if answer.id != 0 => Ok((answer.id, until)),
            _ => Err(self.broken(what, "the lease has no id or no time")),
        }
    }

    pub(crate) async fn revoke(&self, what: &'static str, id: i64) -> Result<(), EtcdError> {
        let request = pb::LeaseRevokeRequest { id };
        self.call(what, self.leases().lease_revoke(request)).await?;
        Ok(())
    }

    /// Renews a lease. `None` when there is no such lease any more.
    pub(crate) async fn renew(&self, id: i64) -> Result<Option<Until>, EtcdError> {
        let what = "renew a lease";
        let asked = Instant::now();
        let once = futures_util::stream::iter([pb::LeaseKeepAliveRequest { id }]);
        let mut client = self.leases();
        let answers = client.lease_keep_alive(once);
        let mut answers = self.call(what, answers).await?;
        let answer = tokio::time::timeout(self.timeout(), answers.message())
            .await
            .map_err(|_| self.silent(what, self.timeout()))?
            .map_err(|status| self.failed(what, &status))?;
        match answer {
            Some(answer) if answer.id == id => Ok(Until::of(asked, answer.ttl)),
            _ => Err(self.broken(what, "it is not about the lease")),
        }
    }
}

/// How long a lease lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    ttl: Duration,
    end: Instant,
}

impl Until {
    /// Counted from when it was asked for, which is before etcd counts. A lease without time is none.
    fn of(asked: Instant, seconds: i64) -> Option<Until> {
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
        // Times that are too long for a clock are not believed.
        let ttl = Duration::from_secs(seconds).min(LONGEST);
        let end = asked.checked_add(ttl)?;
        Some(Until { ttl, end })
    }
}

/// Renews a lease until it is released or lost.
async fn keep(
    client: Client,
    lease: i64,
    mut until: Until,
    held: watch::Sender<bool>,
    mut released: oneshot::Receiver<()>,
) {
    let mut wait = until.ttl / RENEWALS;
    loop {
        let renewed = async {
            tokio::time::sleep(wait).await;
            client.renew(lease).await
        };
        let renewed = tokio::select! {
            word = &mut released => {
                if word.is_err() {
                    // Nobody is left to be told; the lease ends by itself, only later.
                    let _ = client.revoke("end a lease", lease).await;
                }
                return;
            }
            renewed = tokio::time::timeout_at(until.end, renewed) => renewed,
        };
        match renewed {
            Ok(Ok(Some(longer))) => {
                until = longer;
                wait = until.ttl / RENEWALS;
            }
            Ok(Err(_)) => wait = until.ttl / RETRIES,
            // There is no such lease, or its time is over.
            Ok(Ok(None)) | Err(_) => break,
        }
    }
    held.send_replace(false);
    // The key may still be there if etcd counts longer: then whoever holds the guard can free it by `unlock`, or by
    // dropping it.
    if released.await.is_err() {
        let _ = client.revoke("end a lease", lease).await;
    }
}

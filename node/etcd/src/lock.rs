//! Distributed locks, each bound to a lease (etcd's services Lock and Lease).

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

/// Renewals per TTL; more than one, so that a renewal may fail.
const RENEWALS: u32 = 3;
/// Renewals per TTL while renewals fail.
const RETRIES: u32 = 10;
/// Limit of a lease's TTL; etcd refuses more than 9 000 000 000 s.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A lock that is held until it is [unlocked](Lock::unlock), dropped or lost.
///
/// A background task renews the lease. If etcd is unreachable for the lease's TTL, another client may get the lock, so
/// the holder must stop when [`Lock::lost`] returns. Dropping the guard revokes the lease in the background; if that
/// fails, the lock becomes free when the lease expires.
#[derive(Debug)]
pub struct Lock {
    client: Client,
    key: Vec<u8>,
    lease: i64,
    held: watch::Receiver<bool>,
    /// Stops the renewals. Dropping it without sending also revokes the lease.
    release: Option<oneshot::Sender<()>>,
}

impl Lock {
    /// Key that exists while the lock is held.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the lease is known to be valid.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // A closed channel means that the runtime has stopped the renewal task.
        *self.held.borrow() && self.held.has_changed().is_ok()
    }

    /// Returns when the lock is no longer held.
    pub async fn lost(&mut self) {
        // An error means that the renewals have stopped.
        let _ = self.held.wait_for(|held| !held).await;
    }

    /// Releases the lock to the next waiting client.
    ///
    /// # Errors
    /// [`EtcdError`]; then the lock becomes free when the lease expires.
    pub async fn unlock(mut self) -> Result<(), EtcdError> {
        let what = "unlock";
        let key = self.key.clone();
        let mut client = LockClient::new(self.client.channel());
        let unlocked = self
            .client
            .call(what, client.unlock(locks::UnlockRequest { key }))
            .await;
        // The lease has no other use. An expired lease is fine: its end removes the key, too.
        match self.client.revoke(what, self.lease).await {
            Ok(()) => {}
            Err(error) if error.refusal() == Some(Refusal::LeaseNotFound) => {}
            Err(error) if unlocked.is_err() => return Err(error),
            Err(_) => {}
        }
        // Released only now: until here, dropping the guard still revokes the lease in the background.
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

    /// Waits for the lock `name` for at most `patience`. The lock is bound to a lease of `ttl` (whole seconds, at least
    /// one; etcd may grant more). Dropping the future also ends the wait in the cluster.
    ///
    /// # Errors
    /// [`EtcdError::LockHeld`] when another client holds the lock for the whole time, or another [`EtcdError`].
    pub async fn lock(
        &self,
        name: &str,
        ttl: Duration,
        patience: Duration,
    ) -> Result<Lock, EtcdError> {
        let (lease, until) = self.grant(ttl).await?;
        // From here on the guard revokes the lease, whatever the outcome.
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
            return Err(self.lock_lost(name));
        }
        Ok(lock)
    }

    /// Runs `work` while this client holds the lock `name`. A lost lock ends the work where it waits.
    ///
    /// # Errors
    /// Those of [`Client::lock`], or [`EtcdError::LockLost`].
    pub async fn exclusively<T>(
        &self,
        name: &str,
        (ttl, patience): (Duration, Duration),
        work: impl Future<Output = T>,
    ) -> Result<T, EtcdError> {
        let mut lock = self.lock(name, ttl, patience).await?;
        let done = tokio::select! {
            done = work => done,
            () = lock.lost() => return Err(self.lock_lost(name)),
        };
        // A failure is harmless: the lock becomes free when its lease expires.
        let _ = lock.unlock().await;
        Ok(done)
    }

    fn lock_lost(&self, name: &str) -> EtcdError {
        EtcdError::LockLost {
            name: name.to_owned(),
            endpoint: self.endpoint().to_owned(),
        }
    }

    /// Requests a lease. Returns its id and validity.
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
            _ => Err(self.broken(what, "the lease has no id or no lifetime")),
        }
    }

    pub(crate) async fn revoke(&self, what: &'static str, id: i64) -> Result<(), EtcdError> {
        let request = pb::LeaseRevokeRequest { id };
        self.call(what, self.leases().lease_revoke(request)).await?;
        Ok(())
    }

    /// Renews a lease; `None` if it has expired.
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
            _ => Err(self.broken(what, "it belongs to another lease")),
        }
    }
}

/// Validity of a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    ttl: Duration,
    end: Instant,
}

impl Until {
    /// Counted from the time of the request, which is before etcd starts counting. A TTL of 0 means no lease.
    fn of(asked: Instant, seconds: i64) -> Option<Until> {
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
        // Limits implausibly long TTLs.
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
                    // A failure is harmless: the lease expires on its own, only later.
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
            // The lease has expired.
            Ok(Ok(None)) | Err(_) => break,
        }
    }
    held.send_replace(false);
    // The key may still exist if etcd counts longer. The holder of the guard can remove it with `unlock`, or by
    // dropping the guard.
    if released.await.is_err() {
        let _ = client.revoke("end a lease", lease).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::fake::{Fake, LEASE, Script};

    const SECOND: Duration = Duration::from_secs(1);

    fn script(renewals: usize, lock: Option<&[u8]>) -> Script {
        Script {
            ttl: 1,
            renewals,
            lock: lock.map(<[u8]>::to_vec),
            ..Default::default()
        }
    }

    #[tokio::test]
    async fn work_runs_between_lock_and_unlock() {
        let (fake, client) = Fake::start(script(usize::MAX, Some(b"/m/7"))).await;
        let work = async { fake.asked(|asked| asked.calls.clone()) };
        let before = client.exclusively("/m", (SECOND, SECOND), work).await;
        assert_eq!(before.unwrap(), ["grant 1", "lock /m 7"]);
        let after = fake.asked(|asked| asked.calls.clone());
        assert!(after.ends_with(&["unlock /m/7".to_owned(), format!("revoke {LEASE}")]));
    }

    #[tokio::test]
    async fn work_never_starts_while_another_client_holds_the_lock() {
        let (_, client) = Fake::start(script(usize::MAX, None)).await;
        let mut has_started = false;
        let work = async { has_started = true };
        let limits = (SECOND, SECOND / 10);
        let error = client.exclusively("m", limits, work).await.unwrap_err();
        assert!(matches!(error, EtcdError::LockHeld { .. }), "{error}");
        assert!(!has_started);
    }

    #[tokio::test]
    async fn work_ends_when_the_lock_is_lost() {
        let (_, client) = Fake::start(script(1, Some(b"/m/7"))).await;
        let work = pending::<()>();
        let error = client.exclusively("m", (SECOND, SECOND), work).await;
        let error = error.unwrap_err();
        assert!(matches!(error, EtcdError::LockLost { .. }), "{error}");
    }
}

//! The caller of a connection: certificate, roles, address, and how long they are valid.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use corten_api::metadata::{CERTIFICATE, LARGEST_CHAIN};
use corten_api::roles::Role;
use corten_daemon::{Known, Peer};
use http::{HeaderMap, HeaderValue};
use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;
use tokio::time::sleep;
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

use crate::identity::{Current, Identity};
use crate::quota::Holder;

/// Timeout from the end of the handshake to the first call.
const FIRST_CALL: Duration = Duration::from_secs(30);
/// Idle timeout of a connection.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// Interval of checking that a connection's certificate is still accepted.
pub(crate) const RECHECK: Duration = Duration::from_secs(30);

/// Serial number of a caller without a certificate: every caller in maintenance mode.
pub(crate) const STRANGER: &str = "-";

/// The caller of a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Roles of the certificate; reader in maintenance mode.
    pub(crate) roles: Vec<Role>,
    /// The certificate's serial number, or [`STRANGER`].
    pub(crate) serial: String,
    pub(crate) from: SocketAddr,
    /// Local address of the connection.
    pub(crate) reached: IpAddr,
    certificate: Option<Certificate>,
    /// The certificates as metadata of a forwarded call ([`corten_api::metadata::CERTIFICATE`]).
    pub(crate) shown: Vec<HeaderValue>,
    calls: AtomicU64,
    /// Every running call holds a clone.
    active: Arc<()>,
    refused: Notify,
}

/// A certificate chain that TLS verified.
#[derive(Debug)]
struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    until: SystemTime,
    /// The configuration it was last verified with.
    verified: Mutex<Arc<Current>>,
}

impl Caller {
    /// The caller with the certificate `chain`, leaf first, from a handshake with `current`. The chain is `None` in
    /// maintenance mode.
    pub(crate) fn new(
        chain: Option<&[CertificateDer<'_>]>,
        current: Arc<Current>,
        from: SocketAddr,
        reached: IpAddr,
    ) -> Result<Caller, String> {
        let mut caller = Caller {
            roles: vec![Role::Reader],
            serial: STRANGER.to_owned(),
            from,
            reached,
            certificate: None,
            shown: Vec::new(),
            calls: AtomicU64::new(0),
            active: Arc::new(()),
            refused: Notify::new(),
        };
        let Some(chain) = chain else {
            return Ok(caller);
        };
        let leaf = chain.first().ok_or("no client certificate")?;
        match corten_pki::has_exactly_client_auth(leaf) {
            Ok(true) => {}
            _ => {
                return Err(
                    "the certificate's extended key usage is not exactly clientAuth".into(),
                );
            }
        }
        let unreadable = |error: corten_pki::PkiError| error.to_string();
        let names = corten_pki::organizations(leaf).map_err(unreadable)?;
        let (_, until) = corten_pki::validity(leaf).map_err(unreadable)?;
        caller.roles = names.iter().filter_map(|name| Role::parse(name)).collect();
        caller.serial = corten_pki::serial(leaf).map_err(unreadable)?;
        caller.shown = chain.iter().filter_map(|der| encoded(der)).collect();
        let length: usize = caller.shown.iter().map(size).sum();
        if length > LARGEST_CHAIN {
            return Err(format!("certificates of more than {LARGEST_CHAIN} bytes"));
        }
        caller.certificate = Some(Certificate {
            chain: chain.iter().map(|der| der.clone().into_owned()).collect(),
            until,
            verified: Mutex::new(current),
        });
        Ok(caller)
    }

    /// The quota holder of a call with these roles.
    pub(crate) fn holder(&self, roles: &[Role]) -> Holder {
        Holder {
            peer: Peer::of(self.from.ip()),
            certificate: self.certificate.is_some().then(|| self.serial.clone()),
            is_admin: roles.contains(&Role::Admin),
        }
    }

    /// The key that counts the connection; `None` without certificates. A connection from another node may use the
    /// administrators' reserve: it carries their calls.
    pub(crate) fn known(&self) -> Option<Known> {
        let is_for_admins = |role| matches!(role, &Role::Admin | &Role::Impersonator);
        self.certificate.is_some().then(|| Known {
            certificate: self.serial.clone(),
            is_admin: self.roles.iter().any(is_for_admins),
        })
    }

    /// Whether the certificate is still valid: a connection may outlive it or its CA. If not, the connection is closed,
    /// so that the caller reconnects with a new certificate.
    pub(crate) fn is_accepted(&self, current: &Arc<Current>) -> bool {
        let accepted = self
            .certificate
            .as_ref()
            .is_none_or(|certificate| certificate.is_accepted(current, SystemTime::now()));
        if !accepted {
            self.refused.notify_one();
        }
        accepted
    }

    /// Begins a call, which lasts as long as the returned value.
    pub(crate) fn begin(&self) -> Arc<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.active.clone()
    }

    /// Returns if there was no call before the timeout.
    pub(crate) async fn silent(&self) {
        sleep(FIRST_CALL).await;
        if self.calls.load(Ordering::Relaxed) > 0 {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when the connection must end. A certificate that is no longer accepted is noticed at the next call and,
    /// for long calls, once per `recheck`.
    pub(crate) async fn done(&self, identity: &Identity, recheck: Duration) -> Done {
        let idle = async {
            loop {
                let before = self.calls.load(Ordering::Relaxed);
                sleep(IDLE).await;
                let none_new = self.calls.load(Ordering::Relaxed) == before;
                if none_new && Arc::strong_count(&self.active) == 1 {
                    return;
                }
            }
        };
        let outlived = async {
            while self.is_accepted(&identity.current()) {
                sleep(recheck).await;
            }
        };
        tokio::select! {
            () = idle => Done::Idle,
            () = outlived => Done::Refused,
            () = self.refused.notified() => Done::Refused,
        }
    }
}

/// Reason why a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// No call for the idle timeout.
    Idle,
    /// The certificate is no longer accepted.
    Refused,
}

/// Size of a certificate that counts towards [`LARGEST_CHAIN`].
pub(crate) fn size(shown: &HeaderValue) -> usize {
    shown.len() + 32
}

/// Encodes bytes for gRPC's binary metadata.
fn encoded(der: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(BinaryMetadataValue::from_bytes(der).as_encoded_bytes()).ok()
}

/// Serial number of a certificate in metadata.
pub(crate) fn serial_of(shown: &HeaderValue) -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert(CERTIFICATE, shown.clone());
    let metadata = MetadataMap::from_headers(headers);
    let der = metadata.get_bin(CERTIFICATE)?.to_bytes().ok()?;
    corten_pki::serial(&der).ok()
}

impl Certificate {
    fn is_accepted(&self, current: &Arc<Current>, now: SystemTime) -> bool {
        if now > self.until {
            return false;
        }
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&verified, current) {
            return true;
        }
        let accepted = verified.cas == current.cas
            || corten_pki::verify_client(&self.chain, &current.cas, now).is_ok();
        if accepted {
            *verified = current.clone();
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::tests::support::{Cluster, new_ca, write_identity};

    #[test]
    fn certificate_is_accepted_until_it_expires_or_its_ca_is_removed() {
        let cluster = Cluster::new();
        let directory = tempfile::tempdir().unwrap();
        write_identity(directory.path(), &cluster.ca, "node", true);
        let identity = Identity::load(directory.path().into(), false).unwrap();
        let own = cluster.certificate(&["os:reader", "os:etcd:backup"]);
        let chain = corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        let caller = Caller::new(Some(&chain), identity.current(), here, here.ip()).unwrap();
        assert_eq!(caller.roles, [Role::Reader, Role::EtcdBackup]);
        let certificate = caller.certificate.as_ref().unwrap();
        let now = SystemTime::now();
        let second = Duration::from_secs(1);
        assert!(certificate.is_accepted(&identity.current(), certificate.until));
        assert!(!certificate.is_accepted(&identity.current(), certificate.until + second));
        // A new certificate of the node does not affect its callers; a new CA does.
        write_identity(directory.path(), &cluster.ca, "node", false);
        assert!(certificate.is_accepted(&identity.current(), now));
        write_identity(directory.path(), &new_ca(), "node", false);
        assert!(!certificate.is_accepted(&identity.current(), now));
        assert!(!caller.is_accepted(&identity.current()));
    }

    #[tokio::test]
    async fn idle_connection_ends_when_its_ca_is_removed() {
        let cluster = Cluster::new();
        let directory = tempfile::tempdir().unwrap();
        write_identity(directory.path(), &cluster.ca, "node", true);
        let identity = Identity::load(directory.path().into(), false).unwrap();
        let own = cluster.certificate(&["os:reader"]);
        let chain = corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        let caller = Caller::new(Some(&chain), identity.current(), here, here.ip()).unwrap();
        let _stream_that_goes_on = caller.begin();
        let mut done = pin!(caller.done(&identity, Duration::from_millis(1)));
        let pending = std::future::poll_fn(|context| {
            Poll::Ready(Future::poll(done.as_mut(), context).is_pending())
        });
        assert!(pending.await);
        write_identity(directory.path(), &new_ca(), "node", false);
        assert_eq!(done.await, Done::Refused);
    }
}

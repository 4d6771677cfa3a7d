//! The node's certificates: inputs (`root`), issue and renewal (`api`, `trustd`), and the files of daemons (`files`).
//!
//! `OSRootSecrets` (config), `CertSANs` (network) and the time become `ApiCertificates` in `/run/apid` and
//! `TrustdCertificates` in `/run/trustd`. A node without the CA's key asks trustd.

pub(super) mod api;
pub(super) mod files;
pub(super) mod root;
#[cfg(test)]
mod tests;
pub(super) mod trustd;

use std::time::{Duration, SystemTime};

use corten_credentials::join::{Asked, Joined};

/// Interval of checks against the wall clock, whose changes cause no event.
const LOOK: Duration = Duration::from_secs(10 * 60);

/// Interface to the clock and to control plane nodes; tests have their own.
pub(super) trait Outside: Clone + Send + Sync + 'static {
    /// Current wall clock time.
    fn now(&self) -> SystemTime;
    /// Sleeps.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
    /// Requests a certificate from trustd; see [`corten_credentials::join::ask`].
    fn ask(&self, asked: &Asked) -> impl Future<Output = Result<Joined, String>> + Send;
}

/// The real clock and network.
#[derive(Debug, Clone)]
pub(super) struct World;

impl Outside for World {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn ask(&self, asked: &Asked) -> Result<Joined, String> {
        corten_credentials::join::ask(asked, self.now()).await
    }
}

//! The node's certificates: what the config and the network want (`root`), who signs and when again (`api`,
//! `trustd`), and the files daemons read (`files`).
//!
//! ```text
//!  config ──> OSRootSecrets ─┬─> [api] ──> ApiCertificates ──> /run/apid
//!  network ─> CertSANs ──────┤    └── asks trustd on a node without the authority's key
//!  time ─────────────────────┴─> [trustd] ──> TrustdCertificates ──> /run/trustd
//! ```

pub(super) mod api;
pub(super) mod files;
pub(super) mod root;
#[cfg(test)]
mod tests;
pub(super) mod trustd;

use std::time::{Duration, SystemTime};

use crate::join::{Asked, Joined};

/// The wall clock is looked at this often, as it may be set without anybody telling.
const LOOK: Duration = Duration::from_secs(10 * 60);

/// What lies outside of the node's resources: the clock, and control plane nodes. Tests have their own.
pub(super) trait Outside: Clone + Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> SystemTime;
    /// Waits.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
    /// Asks trustd; [`crate::join::ask`].
    fn ask(&self, asked: &Asked) -> impl Future<Output = Result<Joined, String>> + Send;
}

/// The world.
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
        crate::join::ask(asked, self.now()).await
    }
}

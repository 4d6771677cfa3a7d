//! How the boot before ended, as a resource.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use tokio::sync::watch;

use crate::last_stop;
use crate::resources::runtime::LastStop;

#[derive(Debug, Clone)]
pub(super) struct LastStops {
    pub(super) last: watch::Receiver<Option<last_stop::LastStop>>,
}

impl Controller for LastStops {
    fn name(&self) -> &'static str {
        "runtime.LastStopController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<LastStop>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        let known = self.last.wait_for(Option::is_some).await;
        let Some(last) = known.ok().and_then(|last| last.clone()) else {
            return Ok(());
        };
        let last = LastStop {
            reason: last.stop.reason,
            detail: last.stop.detail,
            time: last.stop.at,
            boot_id: last.boot,
            kernel_log: last.kernel_log,
            killed: last.kills,
        };
        context.put(Draft::new(LastStop::ID, last))?;
        // It does not change any more.
        std::future::pending().await
    }
}

//! Shows how the previous boot ended.

use corten_persistence::last_stop;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::runtime::LastStop;
use tokio::sync::watch;

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
        loop {
            let last = self.last.borrow_and_update().clone();
            if let Some(last) = last {
                context.put(Draft::new(LastStop::ID, resource(last)))?;
            }
            // Drivers that load later may add information.
            if self.last.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn resource(last: last_stop::LastStop) -> LastStop {
    LastStop {
        reason: last.stop.reason,
        detail: last.stop.detail,
        time: last.stop.at,
        boot_id: last.boot,
        kernel_log: last.kernel_log,
        killed: last.kills,
        locked: last.locked,
    }
}

//! The version that was tried last, as a resource.

use std::time::{Duration, UNIX_EPOCH};

use corten_base::calendar;
use corten_installer::{Trial, Verdict};
use corten_meta::Values;
use corten_meta::tags::TRIAL;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::runtime::Upgrade;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct Upgrades {
    pub(super) meta: watch::Receiver<Values>,
}

impl Controller for Upgrades {
    fn name(&self) -> &'static str {
        "runtime.UpgradeController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Upgrade>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let value = self.meta.borrow_and_update().get(&TRIAL).cloned();
            context.start_outputs();
            // A record that cannot be read is that of a version which keeps another.
            if let Some(trial) = value.and_then(|value| Trial::parse(&value).ok()) {
                context.put(Draft::new(Upgrade::ID, resource(trial)))?;
            }
            context.remove_others::<Upgrade>()?;
            if self.meta.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn resource(trial: Trial) -> Upgrade {
    Upgrade {
        verdict: match trial.verdict {
            None => "pending",
            Some(Verdict::Good) => "good",
            Some(Verdict::Reverted) => "reverted",
        },
        started: calendar::rfc3339(UNIX_EPOCH + Duration::from_secs(trial.started)),
        from: trial.from,
        to: trial.to,
        reason: trial.reason,
        tries: trial.tries,
    }
}

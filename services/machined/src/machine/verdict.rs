//! Judges whether the running version stays. The boot loader counts starts, which covers a version that panics; a
//! deadline restarts one that hangs. A version that starts but does not do its work is found here.

use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_config::kinds::UpgradeConfig;
use corten_installer::{AtBoot, Trial, Verdict, at_boot};
use corten_server::node::{Node as _, Stage};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::{Machine, lock};
use crate::finish;
use crate::upgrade::{self, Deadline, EfiPartition, Health, is_healthy};

/// Default time for a version to become healthy, after which the node leaves it. Images may have to be pulled.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Further time for the verdict, after which machined hangs.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// Seconds that a version must be healthy before it is good.
const STEADY: u32 = 10;
const LOOK: Duration = Duration::from_secs(1);
/// Pause between two attempts to release the key that keeps other control plane nodes up.
const UNLOCK: Duration = Duration::from_secs(10);

impl Machine {
    /// Judges the running version, once in a boot, and then lets the other control plane nodes go down.
    pub(super) async fn judge_version(&self) {
        let began = Instant::now();
        // A node that reverts keeps the key while it restarts.
        if !self.stays(began).await {
            return;
        }
        // etcd may not run yet, or its failure may keep this version from being good.
        while began.elapsed() < upgrade::LOCKED && !upgrade::unlock_former(&self.node).await {
            sleep(UNLOCK).await;
        }
    }

    /// Judges the running version. Returns whether it stays.
    async fn stays(&self, began: Instant) -> bool {
        let Some(upgrade::Booted {
            entry: booted,
            is_counted,
            ..
        }) = upgrade::booted()
        else {
            return true;
        };
        let deadline = is_counted.then(|| Deadline::start(PATIENCE + MARGIN, restart));
        while !self.node.meta().is_open() {
            sleep(LOOK).await;
        }
        let at = at_boot(upgrade::recorded(self.node.meta()), Some(&booted));
        if let AtBoot::Judge(trial) = at {
            let stays = self.watch_trial(&booted, trial, began, deadline.as_ref());
            let stays = stays.await;
            deadline.inspect(Deadline::lift);
            return stays;
        }
        deadline.inspect(Deadline::lift);
        match at {
            AtBoot::Settled if is_counted => self.settle(&booted).await,
            AtBoot::Reverted(trial) => self.tell_reverted(&booted, trial).await,
            _ => {}
        }
        true
    }

    /// Marks a version without a trial good once the API answers: the first version of a disk.
    async fn settle(&self, booted: &str) {
        while self.node.stage() == Stage::Booting || !self.is_healthy("apid") {
            sleep(LOOK).await;
        }
        mark_good(booted).await;
    }

    /// Records that the boot loader has returned to the previous version by itself.
    async fn tell_reverted(&self, booted: &str, trial: Trial) {
        let trial = counted(trial).await;
        let why = format!(
            "it was started {} times and never passed its trial; `get laststops` may show why",
            trial.tries
        );
        self.end(&trial, Verdict::Reverted, &why);
        let entry = trial.entry.clone();
        change("marking the failed version as bad", move |partition| {
            let mut versions = partition.versions();
            match versions.find(&entry) {
                Ok(_) => versions.mark_bad(&entry).map_err(|fault| fault.to_string()),
                // The entry is missing: its write did not finish.
                Err(_) => Ok(()),
            }
        })
        .await;
        mark_good(booted).await;
    }

    /// Waits for the verdict. Returns whether this version goes on running.
    async fn watch_trial(
        &self,
        booted: &str,
        trial: Trial,
        began: Instant,
        deadline: Option<&Deadline>,
    ) -> bool {
        let trial = counted(trial).await;
        console::say(&format!(
            "version {} is on trial: start {}",
            trial.to, trial.tries
        ));
        if let Err(error) = upgrade::record(self.node.meta(), &trial) {
            console::warn(&format!("cannot store the number of starts: {error}"));
        }
        let mut steady = 0;
        let mut granted = PATIENCE;
        loop {
            let mut unmet = Health::of(&*self.node).lost(&trial);
            unmet.extend(lock(&self.fallback).clone());
            steady = if unmet.is_empty() { steady + 1 } else { 0 };
            if steady >= STEADY {
                if mark_good(booted).await {
                    // The key is released first: a client that reads the verdict upgrades the next node at once.
                    upgrade::unlock_former(&self.node).await;
                    self.end(
                        &trial,
                        Verdict::Good,
                        "it is as healthy as the previous version was",
                    );
                }
                return true;
            }
            // A version that cannot read the config gets the default time.
            let patience = patience(self.node.config().as_ref());
            if patience != granted {
                granted = patience;
                deadline.inspect(|deadline| deadline.extend(patience + MARGIN));
            }
            if began.elapsed() > patience && !unmet.is_empty() {
                let why = format!("after {} s: {}", patience.as_secs(), unmet.join("; "));
                return !self.revert(booted, &trial, &why).await;
            }
            sleep(LOOK).await;
        }
    }

    /// Leaves this version. Returns whether the node restarts for that.
    async fn revert(&self, booted: &str, trial: &Trial, why: &str) -> bool {
        console::warn(&format!("version {} fails its trial: {why}", trial.to));
        let entry = booted.to_owned();
        let marked = change("marking this version as bad", move |partition| {
            let mut versions = partition.versions();
            // Without another version, the boot loader would start this one again and again.
            versions.other(&entry).map_err(|fault| fault.to_string())?;
            versions.mark_bad(&entry).map_err(|fault| fault.to_string())
        });
        let is_marked = marked.await;
        if is_marked {
            self.end(trial, Verdict::Reverted, why);
            let restart = format!(
                "reverting from version {} to version {}",
                trial.to, trial.from
            );
            let _ = self.restarts.send(restart);
        }
        is_marked
    }

    fn end(&self, trial: &Trial, verdict: Verdict, why: &str) {
        let word = match verdict {
            Verdict::Good => "stays",
            Verdict::Reverted => "is reverted",
        };
        console::say(&format!("version {} {word}: {why}", trial.to));
        if let Err(error) = upgrade::record(self.node.meta(), &trial.ended(verdict, why)) {
            console::warn(&format!(
                "cannot store the verdict on version {}: {error}",
                trial.to
            ));
        }
    }

    fn is_healthy(&self, service: &str) -> bool {
        let views = self.node.services();
        views
            .iter()
            .any(|view| view.id == service && is_healthy(view))
    }
}

/// Duration of the trial.
fn patience(config: Option<&Document>) -> Duration {
    let own = config.and_then(|config| config.all::<UpgradeConfig>().next());
    own.and_then(|own| own.trial_timeout).unwrap_or(PATIENCE)
}

/// Ends a boot whose version has no verdict in time.
fn restart() {
    finish::fatal("the version on trial has no verdict in time: machined hangs");
}

/// The trial with the number of starts that the boot loader has counted.
async fn counted(trial: Trial) -> Trial {
    let Ok(partition) = EfiPartition::mount().await else {
        return trial;
    };
    let entry = trial.entry.clone();
    let tries = spawn_blocking(move || partition.versions().tries(&entry)).await;
    let tries = tries.ok().and_then(Result::ok);
    Trial {
        tries: tries.unwrap_or(trial.tries),
        ..trial
    }
}

async fn mark_good(booted: &str) -> bool {
    let entry = booted.to_owned();
    change("marking this version as good", move |partition| {
        let marked = partition.versions().mark_good(&entry);
        marked.map(drop).map_err(|fault| fault.to_string())
    })
    .await
}

/// Changes the EFI partition; returns whether that succeeded. On an error, the boot loader goes on counting starts.
async fn change(
    what: &str,
    work: impl FnOnce(&EfiPartition) -> Result<(), String> + Send + 'static,
) -> bool {
    let done = match EfiPartition::mount().await {
        Ok(partition) => spawn_blocking(move || work(&partition))
            .await
            .unwrap_or_else(|error| Err(error.to_string())),
        Err(why) => Err(why),
    };
    match done {
        Ok(()) => true,
        Err(why) => {
            console::warn(&format!("{what}: {why}"));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    #[test]
    fn config_sets_the_trial_timeout() {
        let config = |more: &str| sample::config("", more);
        assert_eq!(patience(None), PATIENCE);
        assert_eq!(patience(Some(&config(""))), PATIENCE);
        let own = "---\napiVersion: v1alpha1\nkind: UpgradeConfig\ntrialTimeout: 20m\n";
        assert_eq!(patience(Some(&config(own))), Duration::from_secs(20 * 60));
    }
}

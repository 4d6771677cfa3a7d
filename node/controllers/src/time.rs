//! Keeps the clock: queries time servers, and steps or slews the clock by their answers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_base::mode::{Ability, Mode};
use corten_clock::discipline::Discipline;
use corten_clock::floor::Floor;
use corten_clock::jumps::Jumps;
use corten_clock::servers::Servers;
use corten_config::Document;
use corten_config::kinds::TimeSyncConfig;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::clock::{NtpStatus, TimeStatus};
use corten_types::network_names::TimeServerStatus;
use corten_volumes::STATE;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

/// Keeps the clock.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    pub(super) config: watch::Receiver<Option<Document>>,
    pub(super) floor: Arc<Floor>,
}

/// Clock settings of the config.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Wishes {
    disabled: bool,
    /// Time after which the boot continues without synchronization.
    boot_timeout: Option<Duration>,
    /// Whether servers must authenticate their answers.
    proof: bool,
}

impl Wishes {
    fn of(document: Option<&Document>) -> Wishes {
        // A node that does not set its clock trusts it.
        let keeps_none = !Mode::now().can(Ability::Clock);
        let Some(document) = document else {
            return Wishes {
                disabled: keeps_none,
                ..Wishes::default()
            };
        };
        let old = &document.machine.time;
        let new = || document.all::<TimeSyncConfig>();
        let timeout = new().find_map(|config| config.boot_timeout);
        Wishes {
            disabled: keeps_none
                || old.disabled
                || new().any(|config| config.enabled == Some(false)),
            boot_timeout: timeout
                .or(old.boot_timeout)
                .filter(|timeout| !timeout.is_zero()),
            proof: new().any(|config| config.ntp.as_ref().is_some_and(|ntp| ntp.use_nts)),
        }
    }
}

impl Controller for Clock {
    fn name(&self) -> &'static str {
        "time.SyncController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<TimeServerStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<TimeStatus>(),
            Output::exclusive::<NtpStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let started = Instant::now();
        let mut clock = Discipline::default();
        let mut servers = Servers::new(self.floor.clone());
        let mut jumps = Jumps::watch();
        let mut names = Vec::new();
        let mut next = started;
        loop {
            let wishes = Wishes::of(self.config.borrow_and_update().as_ref());
            if servers.take(names.clone(), wishes.proof) {
                next = Instant::now();
            }
            let patience = wishes
                .boot_timeout
                .and_then(|timeout| started.checked_add(timeout));
            let asks = !wishes.disabled && !servers.is_empty();
            let waited = patience.filter(|_| !clock.synced);
            let status = status(&clock, wishes, waited, Instant::now());
            clock.in_use |= status.synced;
            context.put(Draft::new(TimeStatus::ID, status))?;
            context.put(Draft::new(NtpStatus::ID, belief(&clock, &servers)))?;
            tokio::select! {
                () = context.event() => {
                    let named = context.get::<TimeServerStatus>(TimeServerStatus::ID)?;
                    names = named.map(|named| named.time_servers.clone()).unwrap_or_default();
                }
                changed = self.config.changed() => if changed.is_err() {
                    return Ok(());
                },
                jump = jumps.next() => {
                    console::say(&format!(
                        "time: the clock has jumped by {} s: certificates are checked",
                        jump.as_secs()
                    ));
                    clock.epoch = clock.epoch.saturating_add(1);
                    next = Instant::now();
                }
                () = wait(waited.filter(|end| *end > Instant::now())) => {
                    console::warn("time: not synchronized yet; the boot goes on without it");
                }
                () = sleep_until(next), if asks => {
                    let pause = servers.ask(&mut clock).await;
                    jumps.forget();
                    if clock.synced {
                        self.keep().await;
                    }
                    let now = Instant::now();
                    next = now.checked_add(pause).unwrap_or(now);
                }
            }
        }
    }
}

impl Clock {
    /// Saves the time on STATE periodically.
    async fn keep(&self) {
        let floor = self.floor.clone();
        let kept = spawn_blocking(move || floor.keep(Path::new(STATE.target), false)).await;
        if let Ok(Err(error)) = kept {
            console::warn(&format!("time: cannot store the time on STATE: {error}"));
        }
    }
}

async fn wait(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// A node without synchronization, or past its boot timeout, counts as synchronized.
fn status(clock: &Discipline, wishes: Wishes, waited: Option<Instant>, now: Instant) -> TimeStatus {
    TimeStatus {
        synced: clock.synced || wishes.disabled || waited.is_some_and(|end| end <= now),
        epoch: clock.epoch,
        sync_disabled: wishes.disabled,
    }
}

fn belief(clock: &Discipline, servers: &Servers) -> NtpStatus {
    NtpStatus {
        spike_detected: clock.spikes > 0,
        consecutive_spikes: clock.spikes,
        waits_for: servers.waits_for().to_owned(),
        refused: servers.refused().clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use corten_base::sample;
    use corten_clock::sntp::Sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Spec, Store};

    use super::*;

    fn floor() -> Arc<Floor> {
        Arc::new(Floor::new(UNIX_EPOCH))
    }

    fn document(time: &str, others: &str) -> Document {
        sample::config(&format!("time: {time}"), others)
    }

    #[test]
    fn clock_settings_come_from_either_config_form() {
        let old = document("{disabled: true, bootTimeout: 2m0s}", "");
        let expected = Wishes {
            disabled: true,
            boot_timeout: Some(Duration::from_secs(120)),
            proof: false,
        };
        assert_eq!(Wishes::of(Some(&old)), expected);
        let new =
            "---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nenabled: false\nbootTimeout: 0s\n";
        let new = Wishes::of(Some(&document("{}", new)));
        assert!(new.disabled && new.boot_timeout.is_none() && !new.proof);
        let proof = "---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nntp: {useNTS: true}\n";
        assert!(Wishes::of(Some(&document("{}", proof))).proof);
        assert_eq!(Wishes::of(None), Wishes::default());
    }

    #[tokio::test]
    async fn boot_continues_without_time_after_its_timeout() {
        let clock = Discipline::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let synced = |waited| status(&clock, Wishes::default(), waited, now).synced;
        assert!(!synced(None) && !synced(Some(later)) && synced(Some(now)));
        let disabled = Wishes {
            disabled: true,
            ..Wishes::default()
        };
        let status = status(&clock, disabled, None, now);
        assert!(status.synced && status.sync_disabled);
    }

    #[tokio::test]
    async fn rejected_time_server_is_shown() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        // The config cannot change, so the controller ends after its first turn.
        let config = watch::Sender::new(None).subscribe();
        let clock = Clock {
            config,
            floor: floor(),
        };
        runtime.add(clock).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        let shown = store.get_as::<NtpStatus>(NtpStatus::ID).unwrap();
        let servers = Servers::new(floor());
        assert_eq!(*shown, belief(&Discipline::default(), &servers));
        assert_eq!(
            shown.to_yaml().unwrap(),
            "spikeDetected: false\nconsecutiveSpikes: 0\n"
        );
        let mut clock = Discipline::default();
        // In nanoseconds: first accurate, then far off.
        for offset in [0, 900_000_000] {
            let (delay, distance) = (0, 0);
            clock.take(Sample {
                offset,
                delay,
                distance,
            });
        }
        let status = belief(&clock, &servers);
        let message = status.message();
        assert!(message.spike_detected && message.consecutive_spikes == 1);
    }
}

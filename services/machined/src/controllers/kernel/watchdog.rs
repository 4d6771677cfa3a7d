//! The hardware watchdog: fed from machined's own runtime, so that a machined that hangs is a machine that
//! resets.
//!
//! It is not stopped when the node goes down: an end that hangs is a hang, too.

use std::path::Path;
use std::time::Duration;

use corten_config::Document;
use corten_config::kinds;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_sys::watchdog::Watchdog;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::console;
use crate::resources::kernel::{WatchdogTimerConfig, WatchdogTimerStatus};

/// When the config names none (the reference's number).
const TIMEOUT: Duration = Duration::from_secs(60);
/// Signs of life in a timeout: one may be late, and a second one lost.
const FEEDS: u32 = 3;

#[derive(Debug, Clone)]
pub(in crate::controllers) struct WatchdogTimer {
    pub(in crate::controllers) config: watch::Receiver<Option<Document>>,
}

impl Controller for WatchdogTimer {
    fn name(&self) -> &'static str {
        "runtime.WatchdogTimerController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<WatchdogTimerConfig>(),
            Output::exclusive::<WatchdogTimerStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let wanted = self.config.borrow_and_update().as_ref().and_then(wanted);
            context.start_outputs();
            let Some(wanted) = wanted else {
                context.remove_others::<WatchdogTimerConfig>()?;
                context.remove_others::<WatchdogTimerStatus>()?;
                if self.config.changed().await.is_err() {
                    return Ok(());
                }
                continue;
            };
            context.put(Draft::new(WatchdogTimerConfig::ID, wanted.clone()))?;
            // Nothing is fed until the next one is started.
            context.remove_others::<WatchdogTimerStatus>()?;
            // Its driver may come later; then the next run finds it.
            let (watchdog, holds) = Watchdog::start(Path::new(&wanted.device), wanted.timeout)
                .map_err(|error| format!("{}: {error}", wanted.device))?;
            let pause = holds / FEEDS;
            console::say(&format!(
                "{} resets the machine after {holds:?}",
                wanted.device
            ));
            let status = WatchdogTimerStatus {
                device: wanted.device.clone(),
                timeout: holds,
                feed_interval: pause,
            };
            context.put(Draft::new(WatchdogTimerStatus::ID, status))?;
            self.feed(&watchdog, pause, &wanted).await?;
            // Before another one is started.
            watchdog
                .stop()
                .map_err(|error| format!("{} cannot be stopped: {error}", wanted.device))?;
        }
    }
}

impl WatchdogTimer {
    /// Until the config wants something else.
    async fn feed(
        &mut self,
        watchdog: &Watchdog,
        pause: Duration,
        present: &WatchdogTimerConfig,
    ) -> Result<(), Failure> {
        let mut beat = interval(pause.max(Duration::from_secs(1)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beat.tick() => watchdog
                    .feed()
                    .map_err(|error| format!("{}: {error}", present.device))?,
                changed = self.config.changed() => {
                    let now = self.config.borrow_and_update().as_ref().and_then(wanted);
                    if changed.is_err() || now.as_ref() != Some(present) {
                        return Ok(());
                    }
                }
            }
        }
    }
}

fn wanted(config: &Document) -> Option<WatchdogTimerConfig> {
    let config = config.all::<kinds::WatchdogTimerConfig>().next()?;
    Some(WatchdogTimerConfig {
        device: config.device.to_string(),
        timeout: config.timeout.unwrap_or(TIMEOUT),
    })
}

#[cfg(test)]
mod tests {
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;
    use crate::sample;

    #[tokio::test]
    async fn what_nobody_feeds_is_not_shown() {
        let document = sample::kind("WatchdogTimerConfig\ndevice: /dev/watchdog7");
        let config = watch::Sender::new(Some(document));
        let timer = WatchdogTimer {
            config: config.subscribe(),
        };
        let (store, name) = (Store::new(), timer.name());
        let mut runtime = Runtime::new(store.clone());
        runtime.add(timer).unwrap();
        // Of the device that the config named before.
        let before = WatchdogTimerStatus {
            device: "/dev/watchdog0".to_owned(),
            timeout: TIMEOUT,
            feed_interval: TIMEOUT / FEEDS,
        };
        let draft = Draft::new(WatchdogTimerStatus::ID, before);
        store.put(draft, name).unwrap();
        tokio::spawn(runtime.run(|_| {}));
        let id = WatchdogTimerStatus::ID;
        sample::until::<WatchdogTimerStatus>(&store, id, |status| status.is_none()).await;
        let wanted = store.get_as::<WatchdogTimerConfig>(WatchdogTimerConfig::ID);
        assert_eq!(wanted.unwrap().device, "/dev/watchdog7");
    }
}

//! Feeds the hardware watchdog from machined's own runtime, and only after the supervisor has answered. So the machine
//! resets if machined hangs or can no longer start services.
//!
//! The watchdog keeps running during a shutdown, because a shutdown that hangs needs a reset as well.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_config::kinds;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_supervisor::supervisor::Supervisor;
use corten_sys::watchdog::Watchdog;
use corten_types::kernel::{WatchdogTimerConfig, WatchdogTimerStatus};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Default timeout (the reference's number).
const TIMEOUT: Duration = Duration::from_secs(60);
/// Feedings per timeout: one may be late and another lost.
const FEEDS: u32 = 3;
/// Minimum interval between feedings.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(crate) struct WatchdogTimer {
    pub(crate) config: watch::Receiver<Option<Document>>,
    /// Must answer before each feeding; `None` if only the graph is built.
    pub(crate) supervisor: Option<Supervisor>,
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
            // No watchdog is fed until the next one is started.
            context.remove_others::<WatchdogTimerStatus>()?;
            // The driver may load later; a later run then finds the device.
            let (watchdog, holds) = Watchdog::start(Path::new(&wanted.device), wanted.timeout)
                .map_err(|error| format!("{}: {error}", wanted.device))?;
            let pause = (holds / FEEDS).max(SHORTEST);
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
            // The old watchdog stops before another one starts.
            watchdog
                .stop()
                .map_err(|error| format!("{} cannot be stopped: {error}", wanted.device))?;
        }
    }
}

impl WatchdogTimer {
    /// Feeds until the config changes.
    async fn feed(
        &mut self,
        watchdog: &Watchdog,
        pause: Duration,
        present: &WatchdogTimerConfig,
    ) -> Result<(), Failure> {
        let supervisor = self.supervisor.clone();
        let alive = move || answers(supervisor.clone());
        let mut beats = pin!(beats(pause, alive, || watchdog.feed()));
        loop {
            tokio::select! {
                error = &mut beats => return Err(format!("{}: {error}", present.device).into()),
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

async fn answers(supervisor: Option<Supervisor>) {
    if let Some(supervisor) = supervisor {
        supervisor.answers().await;
    }
}

/// Feeds at every `pause` in which `alive` completes; returns the first error of feeding.
async fn beats<F: Future<Output = ()>>(
    pause: Duration,
    alive: impl Fn() -> F,
    feed: impl Fn() -> io::Result<()>,
) -> io::Error {
    let mut beat = interval(pause);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        if timeout(pause, alive()).await.is_err() {
            console::warn("the supervisor of services does not answer: the watchdog is not fed");
        } else if let Err(error) = feed() {
            return error;
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
    use std::cell::Cell;
    use std::future::pending;

    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn unfed_watchdog_has_no_status() {
        let document = sample::kind("WatchdogTimerConfig\ndevice: /dev/watchdog7");
        let config = watch::Sender::new(Some(document));
        let timer = WatchdogTimer {
            config: config.subscribe(),
            supervisor: None,
        };
        let (store, name) = (Store::new(), timer.name());
        let mut runtime = Runtime::new(store.clone());
        runtime.add(timer).unwrap();
        // The status of the previously configured device.
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

    #[tokio::test]
    async fn watchdog_is_not_fed_while_the_supervisor_is_silent() {
        let (asked, fed) = (Cell::new(0), Cell::new(0));
        let silent = Notify::new();
        let alive = || async {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 | 2 => {}
                3 => pending().await,
                _ => {
                    silent.notify_one();
                    pending::<()>().await;
                }
            }
        };
        let feed = || {
            fed.set(fed.get() + 1);
            Ok(())
        };
        tokio::select! {
            // Checked first: the timeout of the fourth answer may have passed as well.
            biased;
            () = silent.notified() => {}
            error = beats(Duration::from_millis(5), alive, feed) => panic!("{error}"),
        }
        assert_eq!((fed.get(), asked.get()), (2, 4));
        let failing = || Err(io::Error::other("gone"));
        let error = beats(Duration::from_millis(5), || async {}, failing).await;
        assert_eq!(error.to_string(), "gone");
    }
}

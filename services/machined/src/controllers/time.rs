//! The clock: asks the servers in turn, and sets or steers it by what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use corten_config::Document;
use corten_config::kinds::TimeSyncConfig;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::bulkhead::Bulkhead;
use crate::calendar::rfc3339;
use crate::console;
use crate::resources::clock::{NtpStatus, TimeStatus};
use crate::resources::network_names::TimeServerStatus;
use crate::time::ask::{AskError, PATIENCE, Resting, ask};
use crate::time::discipline::{Act, Discipline, retry};
use crate::time::floor::{Floor, TooEarly};
use crate::time::sntp::{BadAnswer, Sample};
use crate::volumes::STATE;

/// What resolves the servers' names. Who resolves one gives up some time after us, so a few may still be at it.
static NAMES: LazyLock<Bulkhead> = LazyLock::new(|| Bulkhead::new(8, PATIENCE));

/// Keeps the clock.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    pub(super) config: watch::Receiver<Option<Document>>,
    pub(super) floor: Arc<Floor>,
}

/// What the config wants of the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Wishes {
    disabled: bool,
    /// After it the boot goes on without the right time.
    boot_timeout: Option<Duration>,
}

impl Wishes {
    fn of(document: Option<&Document>) -> Wishes {
        let Some(document) = document else {
            return Wishes::default();
        };
        let old = &document.machine.time;
        let new = || document.all::<TimeSyncConfig>();
        let timeout = new().find_map(|config| config.boot_timeout);
        Wishes {
            disabled: old.disabled || new().any(|config| config.enabled == Some(false)),
            boot_timeout: timeout
                .or(old.boot_timeout)
                .filter(|timeout| !timeout.is_zero()),
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
        let mut next = started;
        loop {
            let wishes = Wishes::of(self.config.borrow_and_update().as_ref());
            let patience = wishes
                .boot_timeout
                .and_then(|timeout| started.checked_add(timeout));
            let waits = !wishes.disabled && !servers.names.is_empty();
            let waited = patience.filter(|_| !clock.synced);
            let status = status(&clock, wishes, waited, Instant::now());
            context.put(Draft::new(TimeStatus::ID, status))?;
            context.put(Draft::new(NtpStatus::ID, belief(&clock, &servers)))?;
            tokio::select! {
                () = context.event() => {
                    let named = context.get::<TimeServerStatus>(TimeServerStatus::ID)?;
                    let names = named.map(|named| named.time_servers.clone()).unwrap_or_default();
                    if servers.take(names) {
                        next = Instant::now();
                    }
                }
                changed = self.config.changed() => if changed.is_err() {
                    return Ok(());
                },
                () = wait(waited.filter(|end| *end > Instant::now())) => {
                    console::warn("time: still not known; going on without it");
                }
                () = sleep_until(next), if waits => {
                    let pause = servers.ask(&mut clock).await;
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
    /// Keeps the time on STATE from time to time.
    async fn keep(&self) {
        let floor = self.floor.clone();
        let kept = spawn_blocking(move || floor.keep(Path::new(STATE.target), false)).await;
        if let Ok(Err(error)) = kept {
            console::warn(&format!("time: not kept on STATE: {error}"));
        }
    }
}

async fn wait(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// A node that keeps no time, or has waited long enough, takes its clock for right.
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
        refused: servers.refused.clone(),
    }
}

/// Who is asked.
#[derive(Debug)]
struct Servers {
    /// What nobody is believed below.
    floor: Arc<Floor>,
    /// The best first.
    names: Vec<String>,
    /// Whose addresses want to be left alone.
    resting: Resting,
    /// Who is not to be complained of again.
    complained: BTreeSet<String>,
    /// Who said a time that cannot be, and why it cannot.
    refused: BTreeMap<String, String>,
    /// How often in a row nobody answered.
    failures: u32,
    /// Who answered last.
    source: Option<String>,
}

impl Servers {
    fn new(floor: Arc<Floor>) -> Servers {
        Servers {
            floor,
            names: Vec::new(),
            resting: Resting::default(),
            complained: BTreeSet::new(),
            refused: BTreeMap::new(),
            failures: 0,
            source: None,
        }
    }

    /// Takes a new list; returns whether it is one. Whose addresses want to be left alone may stand in it again.
    fn take(&mut self, names: Vec<String>) -> bool {
        if self.names == names {
            return false;
        }
        *self = Servers {
            names,
            resting: mem::take(&mut self.resting),
            source: self.source.take(),
            ..Servers::new(self.floor.clone())
        };
        true
    }

    /// Asks one after the other until one answers, and does what it says. Returns when to ask again.
    async fn ask(&mut self, clock: &mut Discipline) -> Duration {
        match self.first_answer(clock).await {
            Some((name, sample)) => self.follow(&name, sample, clock),
            None => {
                let pause = retry(self.failures);
                self.failures = self.failures.saturating_add(1);
                pause
            }
        }
    }

    /// The first answer, and whose it is.
    async fn first_answer(&mut self, clock: &mut Discipline) -> Option<(String, Sample)> {
        for name in self.names.clone() {
            match ask(&name, &NAMES, &mut self.resting).await {
                Ok(sample) => match self.judge(&name, sample) {
                    Ok(()) => {
                        self.failures = 0;
                        self.complained.clear();
                        self.refused.clear();
                        return Some((name, sample));
                    }
                    Err(early) => {
                        self.complain(&name, &early.to_string());
                        self.refused.insert(name, early.to_string());
                    }
                },
                Err(error) => {
                    if matches!(error, AskError::Bad(BadAnswer::Rate)) {
                        clock.ask_less();
                    }
                    self.complain(&name, &error.to_string());
                }
            }
        }
        None
    }

    /// Once, until all is well again.
    fn complain(&mut self, name: &str, error: &str) {
        if self.complained.insert(name.to_owned()) {
            console::warn(&format!("time: {name}: {error}"));
        }
    }

    fn judge(&self, name: &str, sample: Sample) -> Result<(), TooEarly> {
        let Some(said) = moved(SystemTime::now(), sample.offset) else {
            // Setting the clock to it fails, with a reason.
            return Ok(());
        };
        if let Some(known) = self.floor.judge(said, Instant::now())? {
            console::warn(&format!(
                "time: {name} has said {} for an hour; the last time this node knew ({}) was wrong",
                rfc3339(said),
                rfc3339(known)
            ));
        }
        Ok(())
    }

    fn follow(&mut self, name: &str, sample: Sample, clock: &mut Discipline) -> Duration {
        let was_synced = clock.synced;
        let (act, pause) = clock.take(sample);
        if let Err(error) = perform(act, sample, clock) {
            console::warn(&format!("time: cannot adjust the clock: {error}"));
            clock.synced = was_synced;
            return pause;
        }
        if act != Act::Wait {
            self.floor.learn(SystemTime::now());
        }
        let milliseconds = sample.offset / 1_000_000;
        match act {
            Act::Step(_) => {
                console::say(&format!("time: set by {milliseconds} ms, as {name} says"));
            }
            Act::Steer(_) if self.source.as_deref() != Some(name) => {
                console::say(&format!(
                    "time: {milliseconds} ms off from {name}; steering"
                ));
            }
            Act::Steer(_) | Act::Wait => {}
        }
        self.source = Some(name.to_owned());
        pause
    }
}

fn perform(act: Act, sample: Sample, clock: &Discipline) -> std::io::Result<()> {
    let error = Duration::from_nanos(sample.delay.unsigned_abs() / 2);
    let rest = match act {
        Act::Wait => return Ok(()),
        Act::Steer(offset) => offset,
        Act::Step(offset) => {
            let to = moved(SystemTime::now(), offset);
            corten_sys::clock::set(to.ok_or(std::io::ErrorKind::InvalidInput)?)?;
            0
        }
    };
    corten_sys::clock::steer(rest, clock.time_constant(), error)
}

/// A time and so many nanoseconds.
fn moved(time: SystemTime, offset: i64) -> Option<SystemTime> {
    let span = Duration::from_nanos(offset.unsigned_abs());
    if offset < 0 {
        time.checked_sub(span)
    } else {
        time.checked_add(span)
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Spec, Store};

    use super::*;
    use crate::sample;
    use crate::time::ask::tests::serve;

    fn floor() -> Arc<Floor> {
        Arc::new(Floor::new(SystemTime::UNIX_EPOCH))
    }

    fn document(time: &str, others: &str) -> Document {
        sample::config(&format!("time: {time}"), others)
    }

    #[test]
    fn wishes_come_from_either_form() {
        let old = document("{disabled: true, bootTimeout: 2m0s}", "");
        let expected = Wishes {
            disabled: true,
            boot_timeout: Some(Duration::from_secs(120)),
        };
        assert_eq!(Wishes::of(Some(&old)), expected);
        let new =
            "---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nenabled: false\nbootTimeout: 0s\n";
        let new = Wishes::of(Some(&document("{}", new)));
        assert!(new.disabled && new.boot_timeout.is_none());
        assert_eq!(Wishes::of(None), Wishes::default());
    }

    #[tokio::test]
    async fn who_waited_long_enough_goes_on() {
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
    async fn who_is_not_believed_is_shown() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        // Nobody can change it any more: the controller ends once it has said what it knows.
        let config = watch::Sender::new(None).subscribe();
        let floor = floor();
        runtime.add(Clock { config, floor }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        let shown = store.get_as::<NtpStatus>(NtpStatus::ID).unwrap();
        let mut servers = Servers::new(floor());
        assert_eq!(*shown, belief(&Discipline::default(), &servers));
        assert_eq!(
            shown.to_yaml().unwrap(),
            "spikeDetected: false\nconsecutiveSpikes: 0\n"
        );
        let mut clock = Discipline::default();
        // Right, then far off, in nanoseconds.
        for offset in [0, 900_000_000] {
            clock.take(Sample { offset, delay: 0 });
        }
        let refused = "refused: it says 1970-01-01T00:00:00Z".to_owned();
        servers.refused.insert("a".to_owned(), refused);
        let status = belief(&clock, &servers);
        let message = status.message();
        assert!(message.spike_detected && message.consecutive_spikes == 1);
        assert_eq!(
            status.to_yaml().unwrap(),
            "spikeDetected: true\nconsecutiveSpikes: 1\nrefused:\n  a: 'refused: it says 1970-01-01T00:00:00Z'\n"
        );
    }

    #[tokio::test]
    async fn a_server_that_says_a_time_before_the_image_is_refused_by_name_and_another_is_asked() {
        // The servers of these tests say 2030.
        let year_2026 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        let year_2031 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_924_992_000);
        let (early, good) = (serve(None).await.to_string(), serve(None).await.to_string());
        let mut servers = Servers::new(Arc::new(Floor::new(year_2031)));
        servers.take(vec![early.clone()]);
        let mut clock = Discipline::default();
        assert!(servers.first_answer(&mut clock).await.is_none());
        let why = servers.refused.get(&early).unwrap();
        assert!(
            why.contains("before the date of this image (2031-"),
            "{why}"
        );
        // Without a date the known time counts as well.
        let known = Arc::new(Floor::new(year_2026));
        known.learn(year_2031);
        let mut servers = Servers::new(known);
        servers.take(vec![good.clone()]);
        assert!(servers.first_answer(&mut clock).await.is_none());
        let why = servers.refused.get(&good).unwrap();
        assert!(why.contains("before the last time this node knew"), "{why}");
        let mut servers = Servers::new(Arc::new(Floor::new(year_2026)));
        let (bad, good) = ("192.0.2.1:bad", serve(None).await.to_string());
        servers.take(vec![bad.to_owned(), good.clone()]);
        let (whose, _) = servers.first_answer(&mut clock).await.unwrap();
        assert!(whose == good && servers.refused.is_empty());
    }

    #[test]
    fn a_new_list_is_a_new_chance() {
        let mut servers = Servers::new(floor());
        let list = vec!["a".to_owned()];
        assert!(servers.take(list.clone()));
        servers.complained.insert("a".to_owned());
        assert!(!servers.take(list));
        assert!(servers.complained.contains("a"));
        assert!(servers.take(vec!["b".to_owned()]));
        assert!(servers.complained.is_empty());
    }

    #[tokio::test]
    async fn who_wants_to_be_left_alone_is_so_by_a_new_list_too() {
        let mut servers = Servers::new(floor());
        let rate = serve(Some(b"RATE")).await.to_string();
        servers.take(vec![rate.clone()]);
        let mut clock = Discipline::default();
        assert!(servers.first_answer(&mut clock).await.is_none());
        assert!(servers.take(vec![rate.clone(), "b".to_owned()]));
        let again = ask(&rate, &NAMES, &mut servers.resting).await;
        assert!(matches!(again, Err(AskError::Rests)), "{again:?}");
    }

    #[tokio::test]
    async fn one_servers_refusal_is_not_the_others() {
        let mut servers = Servers::new(floor());
        let rate = serve(Some(b"RATE")).await;
        let good = serve(None).await;
        servers.take(vec![rate.to_string(), good.to_string()]);
        let mut clock = Discipline::default();
        let poll = clock.poll;
        let (whose, _) = servers.first_answer(&mut clock).await.unwrap();
        assert_eq!(whose, good.to_string());
        assert_eq!((clock.poll, servers.failures), (poll + 1, 0));
    }
}

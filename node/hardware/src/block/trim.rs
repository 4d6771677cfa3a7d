//! Trims the mounted volumes at the interval of the config, which tells disks about unused blocks.
//!
//! Each volume of each node has its own fixed offset in the interval, as in the reference. So nodes do not all trim a
//! shared disk at once, and a node that restarts every day still trims.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_base::console;
use corten_config::Document;
use corten_config::kinds::FilesystemTrimConfig;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_sys::trim::trim;
use corten_types::names::{FILE_SYSTEMS, number};
use corten_types::trim::VolumeTrimSchedule;
use corten_types::volume::VolumeStatus;
use rustix::io::Errno;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use uuid::Uuid;

use super::device::pretty_binary;

/// Maximum sleep: the clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(10 * 60);
const MACHINE_ID: &str = "/run/machine-id";
/// Errors of devices that do not support trimming.
const CANNOT: [Errno; 3] = [Errno::OPNOTSUPP, Errno::NOTTY, Errno::ROFS];

/// Interface to the kernel; tests record the calls.
pub(crate) trait Trimmer: Clone + Send + Sync + 'static {
    /// Trims the file system mounted there; returns the number of free bytes.
    fn trim(&self, target: &str) -> io::Result<u64>;
}

/// The kernel of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Kernel;

impl Trimmer for Kernel {
    fn trim(&self, target: &str) -> io::Result<u64> {
        trim(&File::open(target)?)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Trims<T> {
    pub(crate) config: watch::Receiver<Option<Document>>,
    pub(crate) trimmer: T,
}

impl<T: Trimmer> Controller for Trims<T> {
    fn name(&self) -> &'static str {
        "block.VolumeTrimController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<VolumeStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<VolumeTrimSchedule>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut turns = Turns::default();
        loop {
            let pause = turns.pause(now());
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                () = sleep(pause) => {}
            }
            let interval = self.config.borrow_and_update().as_ref().and_then(interval);
            let node = fs::read_to_string(MACHINE_ID).unwrap_or_default();
            let volumes = context.list::<VolumeStatus>()?;
            let mounted = volumes.iter().filter_map(|volume| {
                let target = &volume.mount_spec.as_ref()?.target_path;
                let has_own = volume.phase == "ready" && volume.kind != "directory";
                has_own.then(|| (volume.id().to_owned(), target.clone()))
            });
            let due = turns.take(mounted, interval, &node, now());
            context.start_outputs();
            for (id, (at, interval)) in &turns.0 {
                let volume = volumes.iter().find(|volume| volume.id() == id);
                let schedule = VolumeTrimSchedule {
                    filesystem: volume
                        .map_or("none", |volume| known(&volume.filesystem))
                        .to_owned(),
                    interval: *interval,
                    next_trim: UNIX_EPOCH.checked_add(*at).unwrap_or(UNIX_EPOCH),
                };
                context.put(Draft::new(id, schedule))?;
            }
            context.remove_others::<VolumeTrimSchedule>()?;
            for (volume, target) in due {
                let trimmer = self.trimmer.clone();
                let trimmed = spawn_blocking(move || trimmer.trim(&target)).await?;
                tell(&volume, trimmed);
            }
        }
    }
}

/// The file system's name if clients know it, otherwise `none`.
fn known(filesystem: &str) -> &str {
    number(filesystem, FILE_SYSTEMS).map_or("none", |_| filesystem)
}

/// The trim interval; `None` without the document, or if it is 0.
fn interval(config: &Document) -> Option<Duration> {
    let config = config.all::<FilesystemTrimConfig>().next()?;
    Some(config.interval).filter(|interval| !interval.is_zero())
}

fn tell(volume: &str, trimmed: io::Result<u64>) {
    match trimmed {
        Ok(bytes) => console::say(&format!(
            "volume {volume}: trimmed {} of free space",
            pretty_binary(bytes)
        )),
        Err(error) if CANNOT.iter().any(|one| is(*one, &error)) => {}
        Err(error) => console::warn(&format!(
            "volume {volume}: cannot trim its free space: {error}"
        )),
    }
}

fn is(errno: Errno, error: &io::Error) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// Time since 1970.
fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Next time of each volume since 1970, and the interval it was computed for.
#[derive(Debug, Default)]
struct Turns(BTreeMap<String, (Duration, Duration)>);

impl Turns {
    /// Returns the due volumes with their mount points, and schedules the next time of all mounted volumes.
    fn take(
        &mut self,
        mounted: impl Iterator<Item = (String, String)>,
        interval: Option<Duration>,
        node: &str,
        now: Duration,
    ) -> Vec<(String, String)> {
        let before = std::mem::take(&mut self.0);
        let Some(interval) = interval else {
            return Vec::new();
        };
        let mut due = Vec::new();
        for (volume, target) in mounted {
            let next = next_turn(node, &volume, interval, now);
            // A time long past or far ahead means that the clock was set, so it is recomputed.
            let known = before.get(&volume).filter(|(at, of)| {
                *of == interval
                    && *at <= now.saturating_add(interval)
                    && now.saturating_sub(*at) <= 2 * LOOK
            });
            let at = match known {
                Some((at, _)) if *at <= now => {
                    due.push((volume.clone(), target));
                    next
                }
                Some((at, _)) => *at,
                None => next,
            };
            self.0.insert(volume, (at, interval));
        }
        due
    }

    /// Time until the next volume is due, at most [`LOOK`].
    fn pause(&self, now: Duration) -> Duration {
        let turns = self.0.values().map(|(at, _)| at.saturating_sub(now));
        turns.min().map_or(LOOK, |pause| pause.min(LOOK))
    }
}

/// The first time after `now` with this volume's offset in the interval.
fn next_turn(node: &str, volume: &str, interval: Duration, now: Duration) -> Duration {
    let name = format!("{}/{volume}", node.trim());
    let place = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).as_u128();
    let (now, interval) = (now.as_nanos(), interval.as_nanos().max(1));
    let place = place % interval;
    let begun = now - now % interval + place;
    let next = if begun > now { begun } else { begun + interval };
    Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;
    use corten_types::volume::MountSpec;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

    fn mounted(volumes: &[&str]) -> impl Iterator<Item = (String, String)> {
        let all: Vec<_> = volumes
            .iter()
            .map(|volume| ((*volume).to_owned(), format!("/{volume}")))
            .collect();
        all.into_iter()
    }

    #[test]
    fn trim_times_are_spread_by_node_and_volume() {
        let now = 3000 * WEEK + HOUR;
        let at = next_turn("node", "u-data", WEEK, now);
        assert!(at > now && at <= now + WEEK);
        assert_eq!(next_turn("node\n", "u-data", WEEK, at - HOUR), at);
        assert_eq!(next_turn("node", "u-data", WEEK, at), at + WEEK);
        assert_ne!(next_turn("node", "EPHEMERAL", WEEK, now), at);
        assert_ne!(next_turn("other", "u-data", WEEK, now), at);
    }

    #[test]
    fn volume_is_trimmed_once_per_interval_despite_clock_changes() {
        let (mut turns, now) = (Turns::default(), 3000 * WEEK);
        let take = |turns: &mut Turns, now| {
            let due = turns.take(mounted(&["u-data"]), Some(WEEK), "node", now);
            due.len()
        };
        assert_eq!(take(&mut turns, now), 0);
        let at = next_turn("node", "u-data", WEEK, now);
        assert_eq!(take(&mut turns, at - LOOK), 0);
        assert_eq!(turns.pause(at - LOOK / 2), LOOK / 2);
        assert_eq!(take(&mut turns, at), 1);
        assert_eq!(take(&mut turns, at), 0);
        assert_eq!(turns.pause(at), LOOK);
        // The clock starts in 1970 and is then set from the network.
        for now in [HOUR, 4000 * WEEK] {
            assert_eq!(take(&mut turns, now), 0);
            let at = next_turn("node", "u-data", WEEK, now);
            assert_eq!(take(&mut turns, at), 1);
        }
        let gone = turns.take(mounted(&["u-data"]), None, "node", at);
        assert!(gone.is_empty() && turns.0.is_empty());
    }

    #[derive(Debug, Clone)]
    struct Fake(Arc<Mutex<mpsc::UnboundedSender<String>>>);

    impl Trimmer for Fake {
        fn trim(&self, target: &str) -> io::Result<u64> {
            self.0.lock().unwrap().send(target.to_owned()).unwrap();
            Err(Errno::OPNOTSUPP.into())
        }
    }

    #[tokio::test]
    async fn trim_schedule_of_each_volume_is_shown() {
        let config = watch::Sender::new(Some(sample::kind("FilesystemTrimConfig\ninterval: 168h")));
        let (sender, _) = mpsc::unbounded_channel();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let trims = Trims {
            config: config.subscribe(),
            trimmer: Fake(Arc::new(Mutex::new(sender))),
        };
        runtime.add(trims).unwrap();
        let status = VolumeStatus {
            phase: "ready",
            kind: "partition",
            filesystem: "xfs".to_owned(),
            mount_spec: Some(MountSpec::default()),
            ..VolumeStatus::default()
        };
        store.put(Draft::new("EPHEMERAL", status), "").unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let schedule = async |is_there: bool| {
            sample::until::<VolumeTrimSchedule>(&store, "EPHEMERAL", |schedule| {
                schedule.is_some() == is_there
            })
            .await
        };
        let shown = schedule(true).await.unwrap();
        assert_eq!((&*shown.filesystem, shown.interval), ("xfs", WEEK));
        let next = shown.next_trim.duration_since(UNIX_EPOCH).unwrap();
        let node = fs::read_to_string(MACHINE_ID).unwrap_or_default();
        assert_eq!(next, next_turn(&node, "EPHEMERAL", WEEK, next - HOUR));
        config.send_replace(None);
        schedule(false).await;
        assert_eq!((known("luks"), known("ext4")), ("none", "ext4"));
    }

    #[tokio::test]
    async fn mounted_volumes_are_trimmed_at_every_interval() {
        let (sender, mut trimmed) = mpsc::unbounded_channel();
        let config = sample::kind("FilesystemTrimConfig\ninterval: 1ms");
        let config = watch::Sender::new(Some(config));
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let trims = Trims {
            config: config.subscribe(),
            trimmer: Fake(Arc::new(Mutex::new(sender))),
        };
        runtime.add(trims).unwrap();
        for (id, phase, kind) in [
            ("EPHEMERAL", "ready", "partition"),
            ("u-gone", "missing", "partition"),
            ("u-scratch", "ready", "directory"),
        ] {
            let status = VolumeStatus {
                phase,
                kind,
                mount_spec: Some(MountSpec {
                    target_path: format!("/{id}"),
                    ..MountSpec::default()
                }),
                ..VolumeStatus::default()
            };
            store.put(Draft::new(id, status), "").unwrap();
        }
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        for _ in 0..3 {
            let next = timeout(Duration::from_secs(20), trimmed.recv()).await;
            assert_eq!(next.unwrap().unwrap(), "/EPHEMERAL");
        }
    }
}

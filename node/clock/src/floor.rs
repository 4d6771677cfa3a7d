//! Lower bounds of the clock: the date of the image, and the latest time that servers confirmed (the known time).
//!
//! The image's date is absolute. The known time is kept on STATE and may come from a wrong server. Servers that insist
//! on an earlier time for an hour therefore overrule it: a wrong server costs an hour, not the node.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_base::calendar::rfc3339;
use corten_base::durable;
use tokio::time::Instant;

/// Environment variable with the image's date, set by init.
const VARIABLE: &str = "CORTEN_IMAGE_DATE";
/// File on STATE: seconds since 1970.
const FILE: &str = "clock";
/// Tolerance below the known time, because servers differ.
const SLACK: Duration = Duration::from_secs(60);
/// Time for which servers must insist on an earlier time.
const PROBATION: Duration = Duration::from_secs(3600);
/// Minimum time between two writes to STATE.
const PAUSE: Duration = Duration::from_secs(3600);
/// Limit ahead of the image's date for the stored time. A later time would invalidate the node's certificates for
/// years.
const FARTHEST: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Reason to refuse a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooEarly {
    /// Earlier than the build of the running image.
    #[error("refused: its time {} is before the date of this image ({})", rfc3339(*.said), rfc3339(*.image))]
    Image {
        /// Time of the server.
        said: SystemTime,
        /// Date of the image.
        image: SystemTime,
    },
    /// Earlier than the known time.
    #[error(
        "refused: its time {} is before the last time this node knew ({}); the node accepts it if the server repeats \
         it for {} more minutes",
        rfc3339(*.said), rfc3339(*.known), .left.as_secs().div_ceil(60)
    )]
    Known {
        /// Time of the server.
        said: SystemTime,
        /// Known time of the node.
        known: SystemTime,
        /// Remaining time until the known time is given up.
        left: Duration,
    },
}

/// Reason to ignore a stored time.
#[derive(Debug, thiserror::Error)]
pub enum NotKept {
    /// The volume cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file has other contents.
    #[error("the file does not contain a time")]
    NoTime,
    /// Too far in the future to be right.
    #[error("{} is more than ten years after the date of this image", rfc3339(*.0))]
    TooFar(SystemTime),
}

/// The bounds, and the state of their storage.
#[derive(Debug)]
pub struct Floor {
    image: SystemTime,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Latest time that servers confirmed.
    time: Option<SystemTime>,
    /// Earlier time that servers insist on, and the start of that.
    early: Option<(Instant, SystemTime)>,
    /// Time of the last write.
    written: Option<Instant>,
}

impl Floor {
    /// Bounds of an image with that date.
    #[must_use]
    pub fn new(image: SystemTime) -> Floor {
        Floor {
            image,
            known: Mutex::default(),
        }
    }

    /// Bounds of the running image, whose date comes from init. Without a date only the known time counts.
    #[must_use]
    pub fn of_image() -> Floor {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        Floor::new(time(&text).unwrap_or(UNIX_EPOCH))
    }

    /// Date of the image: a lower bound that needs no server.
    #[must_use]
    pub fn image(&self) -> SystemTime {
        self.image
    }

    /// Whether the time is possible for this image.
    ///
    /// # Errors
    /// The time is earlier than the image.
    pub fn check_image(&self, said: SystemTime) -> Result<(), TooEarly> {
        let image = self.image;
        if said < image {
            return Err(TooEarly::Image { said, image });
        }
        Ok(())
    }

    /// Whether the clock may be set to a time that servers report. `Some` is the known time that this overrules.
    ///
    /// # Errors
    /// The time is below a bound.
    pub fn judge(&self, said: SystemTime, now: Instant) -> Result<Option<SystemTime>, TooEarly> {
        self.check_image(said)?;
        let mut known = self.lock();
        let is_early = |known: &SystemTime| said.checked_add(SLACK).is_some_and(|at| at < *known);
        let Some(before) = known.time.filter(is_early) else {
            known.early = None;
            return Ok(None);
        };
        let same = |(since, first): &(Instant, SystemTime)| {
            let passed = now.saturating_duration_since(*since);
            first
                .checked_add(passed)
                .is_some_and(|expected| distance(expected, said) <= SLACK)
        };
        let (since, first) = known.early.filter(same).unwrap_or((now, said));
        known.early = Some((since, first));
        let left = PROBATION.saturating_sub(now.saturating_duration_since(since));
        if left.is_zero() {
            known.early = None;
            known.time = Some(said);
            known.written = None;
            return Ok(Some(before));
        }
        Err(TooEarly::Known {
            said,
            known: before,
            left,
        })
    }

    /// Records a time that the clock was set to.
    pub fn learn(&self, told: SystemTime) {
        if self.check_kept(told).is_ok() {
            let mut known = self.lock();
            known.time = known.time.max(Some(told));
        }
    }

    /// Loads the time that an earlier boot stored in the directory of STATE. Returns the resulting known time, if any.
    ///
    /// # Errors
    /// The stored time is ignored.
    pub fn load(&self, state: &Path) -> Result<Option<SystemTime>, NotKept> {
        let kept = match fs::read_to_string(state.join(FILE)) {
            Ok(text) => time(&text).ok_or(NotKept::NoTime)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self.lock().time),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(NotKept::NoTime);
            }
            Err(error) => return Err(error.into()),
        };
        self.check_kept(kept)?;
        let mut known = self.lock();
        known.time = known.time.max(Some(kept));
        Ok(known.time)
    }

    /// Stores the known time in the directory of STATE, if a volume is mounted there. It writes at most once an hour,
    /// unless `always` is set.
    ///
    /// # Errors
    /// The volume cannot be written; the former contents stay.
    pub fn keep(&self, state: &Path, always: bool) -> io::Result<()> {
        if !durable::is_volume(state) {
            return Ok(());
        }
        self.write(state, Instant::now(), always)
    }

    fn write(&self, state: &Path, now: Instant, always: bool) -> io::Result<()> {
        let time = {
            let mut known = self.lock();
            let since = |at: Instant| now.saturating_duration_since(at);
            let is_due = known.written.is_none_or(|at| since(at) >= PAUSE);
            if !is_due && !always {
                return Ok(());
            }
            let Some(time) = known.time else {
                return Ok(());
            };
            known.written = Some(now);
            time
        };
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        durable::replace(state, FILE, format!("{seconds}\n").as_bytes())
    }

    fn check_kept(&self, at: SystemTime) -> Result<(), NotKept> {
        // Without an image date there is no reference for "too far".
        let last = self.image.checked_add(FARTHEST);
        if self.image > UNIX_EPOCH && last.is_some_and(|last| at > last) {
            return Err(NotKept::TooFar(at));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses seconds since 1970 that fall into the calendar's range.
fn time(text: &str) -> Option<SystemTime> {
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(text.trim().parse().ok()?))?;
    (!rfc3339(at).is_empty()).then_some(at)
}

fn distance(one: SystemTime, other: SystemTime) -> Duration {
    let forward = one.duration_since(other);
    forward.unwrap_or_else(|error| error.duration())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const MINUTE: Duration = Duration::from_secs(60);

    /// 2026-01-01 plus this many days.
    fn day(number: u32) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_767_225_600) + DAY * number
    }

    #[test]
    fn time_before_the_image_date_is_always_refused() {
        let floor = Floor::new(day(10));
        let start = Instant::now();
        for hours in 0..100 {
            let now = start + Duration::from_secs(3600) * hours;
            let refused = floor.judge(day(9), now).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "refused: its time 2026-01-10T00:00:00Z is before the date of this image (2026-01-11T00:00:00Z)"
            );
        }
        assert_eq!(floor.judge(day(10), start), Ok(None));
    }

    #[test]
    fn time_before_the_known_time_is_accepted_after_a_constant_hour() {
        let floor = Floor::new(day(0));
        floor.learn(day(30));
        let start = Instant::now();
        // Servers may differ a little.
        assert_eq!(floor.judge(day(30) - MINUTE, start), Ok(None));
        let said = |minutes: u32| floor.judge(day(10) + MINUTE * minutes, start + MINUTE * minutes);
        for minutes in [0, 1, 30, 59] {
            let refused = said(minutes).unwrap_err();
            let left = MINUTE * (60 - minutes);
            assert!(
                matches!(refused, TooEarly::Known { left: found, .. } if found == left),
                "{refused}"
            );
        }
        assert_eq!(said(60), Ok(Some(day(30))));
        // The earlier time is now the known time.
        assert_eq!(said(61), Ok(None));
        floor.judge(day(9), start + MINUTE * 62).unwrap_err();
    }

    #[test]
    fn good_answer_or_a_different_early_time_restarts_the_hour() {
        let floor = Floor::new(day(0));
        floor.learn(day(30));
        let start = Instant::now();
        for other in [day(30), day(20)] {
            floor.judge(day(10), start).unwrap_err();
            let _ = floor.judge(other, start + MINUTE);
            let again = floor.judge(day(10) + MINUTE * 60, start + MINUTE * 60);
            assert!(
                matches!(again, Err(TooEarly::Known { left, .. }) if left == PROBATION),
                "{again:?}"
            );
            floor.judge(day(30), start).unwrap();
        }
    }

    #[test]
    fn known_time_survives_a_restart_and_never_decreases() {
        let directory = tempfile::tempdir().unwrap();
        let (state, now) = (directory.path(), Instant::now());
        let floor = Floor::new(day(0));
        assert_eq!(floor.load(state).unwrap(), None);
        floor.write(state, now, true).unwrap();
        assert!(!state.join(FILE).exists(), "nothing is known yet");
        floor.learn(day(5));
        floor.learn(day(3));
        floor.write(state, now, false).unwrap();
        let next = Floor::new(day(0));
        assert_eq!(next.load(state).unwrap(), Some(day(5)));
        // This boot may already know a later time.
        next.learn(day(6));
        assert_eq!(next.load(state).unwrap(), Some(day(6)));
        // A directory without a mounted volume would be lost at a restart.
        next.keep(state, true).unwrap();
        assert_eq!(Floor::new(day(0)).load(state).unwrap(), Some(day(5)));
    }

    #[test]
    fn the_known_time_is_written_once_an_hour_and_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let (state, now) = (directory.path(), Instant::now());
        let floor = Floor::new(day(0));
        let kept = || Floor::new(day(0)).load(state).unwrap();
        for (number, after, always, expected) in [
            (1, MINUTE, false, 1),
            (2, MINUTE * 59, false, 1),
            (3, MINUTE * 59, true, 3),
            (4, MINUTE * 118, false, 3),
            (5, MINUTE * 119, false, 5),
        ] {
            floor.learn(day(number));
            floor.write(state, now + after, always).unwrap();
            assert_eq!(kept(), Some(day(expected)), "{number}");
        }
    }

    #[test]
    fn hostile_stored_times_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let load = |content: &[u8]| {
            fs::write(state.join(FILE), content).unwrap();
            let floor = Floor::new(day(0));
            let loaded = floor.load(state);
            (loaded.map_err(|error| error.to_string()), floor.lock().time)
        };
        for content in [
            &b""[..],
            b"soon",
            b"-5",
            b"1e9",
            b"99999999999999999999",
            b"253402300800",
            b"\xff\xfe",
        ] {
            assert_eq!(
                load(content),
                (Err("the file does not contain a time".to_owned()), None)
            );
        }
        // 2100: all certificates of the node and its clients would have expired.
        let (loaded, known) = load(b"4102444800");
        assert!(loaded.unwrap_err().starts_with("2100-01-01"));
        assert_eq!(known, None);
        // Such a time of a server is not stored either.
        let floor = Floor::new(day(0));
        floor.learn(UNIX_EPOCH + Duration::from_secs(4_102_444_800));
        assert_eq!(floor.judge(day(1), Instant::now()), Ok(None));
    }
}

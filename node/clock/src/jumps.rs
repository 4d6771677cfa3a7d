//! Notices jumps of the wall clock that this node has not made. Another program set the clock, or the machine was
//! suspended or restored from a snapshot. Timers do not see them, since they follow the steady clock.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use corten_base::console;
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Least jump that counts: certificates are valid for a while before the time of their issue.
const LEAST: Duration = Duration::from_secs(15 * 60);
/// Time at which the timer would fire, in seconds since 1970: in the year 2255.
const NEVER: i64 = 9_000_000_000;

/// Watches the wall clock.
#[derive(Debug)]
pub struct Jumps {
    /// A timer that the kernel cancels when the clock is set (timerfd_create(2), `TFD_TIMER_CANCEL_ON_SET`); `None` if
    /// the kernel refuses one.
    timer: Option<AsyncFd<OwnedFd>>,
    last: Moment,
}

/// A time by both clocks.
#[derive(Debug, Clone, Copy)]
struct Moment {
    wall: SystemTime,
    steady: Instant,
}

impl Moment {
    fn now() -> Moment {
        Moment {
            wall: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// How far the wall clock has moved against the steady one, in either direction.
    fn jump(self, later: Moment) -> Duration {
        let steady = later.steady.saturating_duration_since(self.steady);
        match later.wall.duration_since(self.wall) {
            Ok(wall) => wall.abs_diff(steady),
            Err(back) => back.duration().saturating_add(steady),
        }
    }
}

impl Jumps {
    /// Begins to watch. Must be called within a tokio runtime.
    #[must_use]
    pub fn watch() -> Jumps {
        let timer = timer().inspect_err(|error| {
            console::warn(&format!(
                "time: cannot watch the clock for jumps: {error}; certificates are checked every ten minutes"
            ));
        });
        Jumps {
            timer: timer.ok(),
            last: Moment::now(),
        }
    }

    /// Waits for a jump of at least 15 minutes, and returns its size. Safe to cancel.
    pub async fn next(&mut self) -> Duration {
        loop {
            match &self.timer {
                Some(timer) => changed(timer).await,
                None => std::future::pending().await,
            }
            let now = Moment::now();
            let jump = self.last.jump(now);
            self.last = now;
            if jump >= LEAST {
                return jump;
            }
        }
    }

    /// The node itself has set the clock: no jump of others.
    pub fn forget(&mut self) {
        self.last = Moment::now();
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; a descriptor stays the same as long as it lives"
)]
fn timer() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
    let at = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    let never = Itimerspec {
        it_interval: at(0),
        it_value: at(NEVER),
    };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(&timer, flags, &never)?;
    AsyncFd::with_interest(timer, Interest::READABLE)
}

/// Waits until the clock has been set.
async fn changed(timer: &AsyncFd<OwnedFd>) {
    loop {
        let Ok(mut ready) = timer.readable().await else {
            return std::future::pending().await;
        };
        let mut expirations = [0; 8];
        let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
        match read {
            Ok(Err(error)) if error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()) => {
                return;
            }
            // A wrong wakeup, or the end of time.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_is_the_difference_of_both_clocks() {
        let hour = Duration::from_secs(3600);
        let start = Moment::now();
        let after = |wall: SystemTime| Moment {
            wall,
            steady: start.steady + hour,
        };
        assert_eq!(start.jump(after(start.wall + hour)), Duration::ZERO);
        assert_eq!(start.jump(after(start.wall + hour * 25)), hour * 24);
        assert_eq!(start.jump(after(start.wall)), hour);
        assert_eq!(start.jump(after(start.wall - hour)), hour * 2);
    }

    #[tokio::test]
    async fn undisturbed_clock_reports_no_jump() {
        let mut jumps = Jumps::watch();
        assert!(jumps.timer.is_some(), "Linux has such timers");
        let soon = Duration::from_millis(20);
        let waited = tokio::time::timeout(soon, jumps.next()).await;
        assert!(waited.is_err(), "{waited:?}");
    }
}

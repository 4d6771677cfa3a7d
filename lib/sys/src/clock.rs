//! Reads, sets and steers the system clock, and reads the clocks of devices (`/dev/ptp*`).
#![expect(
    unsafe_code,
    reason = "clock_adjtime(2), that neither rustix nor nix has"
)]

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use rustix::time::{ClockId, DynamicClockId, Timespec};

/// Largest offset that the kernel corrects in one step (`linux/timex.h`, MAXPHASE), in nanoseconds.
pub const MAX_SLEW: i64 = 500_000_000;

/// Sets the system clock.
///
/// # Errors
/// `EPERM` without CAP_SYS_TIME; `EINVAL` for a time before 1970 or beyond the kernel's range.
pub fn set(to: SystemTime) -> io::Result<()> {
    let since = to
        .duration_since(UNIX_EPOCH)
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let seconds =
        i64::try_from(since.as_secs()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: since.subsec_nanos().into(),
    };
    Ok(rustix::time::clock_settime(ClockId::Realtime, time)?)
}

/// Sets the system clock to a time if the clock shows an earlier one. Returns whether it did.
///
/// # Errors
/// Those of [`set`].
pub fn raise(to: SystemTime) -> io::Result<bool> {
    if SystemTime::now() >= to {
        return Ok(false);
    }
    set(to).map(|()| true)
}

/// Corrects the clock by an offset in nanoseconds, bounded by [`MAX_SLEW`], without a step.
///
/// The kernel's phase-locked loop does it (RFC 5905, section 12). The kernel then regards the clock as synchronized,
/// with the maximum error `error`. `time_constant` is that of the loop: log2 of the poll interval in seconds, minus 4.
///
/// # Errors
/// `EPERM` without CAP_SYS_TIME.
pub fn steer(offset: i64, time_constant: u8, error: Duration) -> io::Result<()> {
    // SAFETY: a `timex` consists of integers, for which zero is valid.
    let mut change: libc::timex = unsafe { zeroed() };
    let microseconds = libc::c_long::try_from(error.as_micros()).unwrap_or(libc::c_long::MAX);
    change.modes = libc::ADJ_OFFSET
        | libc::ADJ_NANO
        | libc::ADJ_STATUS
        | libc::ADJ_TIMECONST
        | libc::ADJ_MAXERROR
        | libc::ADJ_ESTERROR;
    change.offset = offset.clamp(-MAX_SLEW, MAX_SLEW);
    change.status = libc::STA_PLL;
    change.constant = time_constant.into();
    change.maxerror = microseconds;
    change.esterror = microseconds;
    // SAFETY: the pointer is to a whole `timex` of ours, which the kernel reads and fills.
    let state = unsafe { libc::clock_adjtime(libc::CLOCK_REALTIME, &raw mut change) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// State of the kernel's clock discipline (adjtimex(2), `struct timex`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// Remaining offset in nanoseconds.
    pub offset: i64,
    /// Frequency correction in 2^-16 parts per million; positive runs the clock faster.
    pub frequency: i64,
    /// Maximum error in microseconds.
    pub max_error: i64,
    /// Estimated error in microseconds.
    pub estimated_error: i64,
    /// Status bits: `STA_*`.
    pub status: u32,
    /// Time constant of the loop.
    pub constant: i64,
    /// Clock state: `TIME_*`.
    pub state: i32,
}

/// `STA_NANO`: the offset is in nanoseconds, not microseconds.
const IN_NANOSECONDS: u32 = 0x2000;

/// `STA_UNSYNC`: the clock is not synchronized.
pub const UNSYNCHRONIZED: u32 = 0x40;

/// Reads the state of the clock discipline.
///
/// # Errors
/// The kernel's error.
pub fn steering() -> io::Result<Steering> {
    // SAFETY: a `timex` consists of integers, for which zero is valid; no mode is set, so nothing changes.
    let mut now: libc::timex = unsafe { zeroed() };
    // SAFETY: the pointer is to a whole `timex` of ours, which the kernel fills.
    let state = unsafe { libc::clock_adjtime(libc::CLOCK_REALTIME, &raw mut now) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let status = now.status.cast_unsigned();
    let scale = if status & IN_NANOSECONDS == 0 {
        1000
    } else {
        1
    };
    Ok(Steering {
        offset: now.offset.saturating_mul(scale),
        frequency: now.freq,
        max_error: now.maxerror,
        estimated_error: now.esterror,
        status,
        constant: now.constant,
        state,
    })
}

/// Time since the kernel started, without sleep (`CLOCK_MONOTONIC`).
#[must_use]
pub fn monotonic() -> Duration {
    shown(nix::time::ClockId::CLOCK_MONOTONIC)
}

/// Time that a clock of the kernel shows. rustix asserts that the kernel has a vDSO with certain functions, which a
/// user-mode kernel lacks; the C library then makes the system call.
pub(crate) fn shown(clock: nix::time::ClockId) -> Duration {
    // Every supported kernel has the clocks that this crate reads.
    nix::time::clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

/// Reads the time of a device's clock.
///
/// # Errors
/// The device cannot be opened, or has no clock.
pub fn of_device(path: &Path) -> io::Result<SystemTime> {
    let device = File::open(path)?;
    let clock = DynamicClockId::Dynamic(device.as_fd());
    let now = rustix::time::clock_gettime_dynamic(clock)?;
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Ok(UNIX_EPOCH + Duration::new(seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_state_of_the_machine_is_readable() {
        let now = steering().unwrap();
        assert!(now.max_error >= 0 && now.estimated_error >= 0);
        // State 5 is TIME_ERROR.
        assert!(now.status & UNSYNCHRONIZED == 0 || now.state == 5);
    }

    #[test]
    fn impossible_times_and_devices_are_errors() {
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(set(before).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        of_device(Path::new("/dev/null")).unwrap_err();
        // A clock ahead of the time is left alone, even by a program with the right to set it.
        assert!(!raise(UNIX_EPOCH).unwrap());
    }
}

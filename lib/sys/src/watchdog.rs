//! Hardware watchdogs: Documentation/watchdog/watchdog-api.rst.
#![expect(unsafe_code, reason = "WDIOC_SETTIMEOUT has no safe wrapper")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use rustix::ioctl::{self, Updater, opcode};

/// Where the kernel lists them (Documentation/ABI/testing/sysfs-class-watchdog).
pub const CLASS: &str = "/sys/class/watchdog";

/// linux/watchdog.h: sets the timeout in seconds and returns the one that holds.
const SET_TIMEOUT: ioctl::Opcode = opcode::read_write::<i32>(b'W', 6);

/// A watchdog that runs. When this is dropped without [`Watchdog::stop`], it goes on running and resets the
/// machine.
#[derive(Debug)]
pub struct Watchdog {
    device: File,
}

impl Watchdog {
    /// Starts the watchdog; the second value is the timeout that holds, which the hardware may have rounded.
    ///
    /// # Errors
    /// No such device, one that another process has, or a timeout it does not support; then it does not run,
    /// where the driver lets it be stopped.
    pub fn start(device: &Path, timeout: Duration) -> io::Result<(Watchdog, Duration)> {
        let device = OpenOptions::new().write(true).open(device)?;
        let mut seconds = i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX);
        // SAFETY: WDIOC_SETTIMEOUT reads and writes one int, which `seconds` is.
        let request = unsafe { Updater::<SET_TIMEOUT, i32>::new(&mut seconds) };
        // SAFETY: the descriptor is open, and `seconds` outlives the call.
        let set = unsafe { ioctl::ioctl(&device, request) };
        let watchdog = Watchdog { device };
        if let Err(error) = set {
            // Opening has started it, and nobody will feed it.
            let _ = watchdog.stop();
            return Err(error.into());
        }
        let holds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        Ok((watchdog, holds))
    }

    /// Goes on with one that runs, by the timeout it has; opening it is a sign of life.
    ///
    /// # Errors
    /// No such device, or one that another process has.
    pub fn go_on(device: &Path) -> io::Result<Watchdog> {
        let device = OpenOptions::new().write(true).open(device)?;
        Ok(Watchdog { device })
    }

    /// Gives a sign of life.
    ///
    /// # Errors
    /// The driver's.
    pub fn feed(&self) -> io::Result<()> {
        (&self.device).write_all(b"\0")
    }

    /// Stops it, where the driver lets it be stopped.
    ///
    /// # Errors
    /// The driver's.
    pub fn stop(self) -> io::Result<()> {
        // The "magic close": a driver with that feature stops at a close after this letter only.
        (&self.device).write_all(b"V")
    }
}

/// The watchdogs that run and that nobody has open, by `class` ([`CLASS`]), with their devices in `devices`.
#[must_use]
pub fn running(class: &Path, devices: &Path) -> Vec<Watchdog> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let state = fs::read_to_string(entry.path().join("state"));
            state.is_ok_and(|state| state.trim_end() == "active")
        })
        .filter_map(|entry| Watchdog::go_on(&devices.join(entry.file_name())).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_watchdogs_are_fed() {
        let (class, devices) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, state) in [("watchdog0", "inactive\n"), ("watchdog1", "active\n")] {
            fs::create_dir(class.path().join(name)).unwrap();
            fs::write(class.path().join(name).join("state"), state).unwrap();
            fs::write(devices.path().join(name), "").unwrap();
        }
        let found = running(class.path(), devices.path());
        assert_eq!(found.len(), 1);
        found[0].feed().unwrap();
        let written = |name| fs::read(devices.path().join(name)).unwrap();
        assert_eq!(
            (written("watchdog0"), written("watchdog1")),
            (vec![], vec![0])
        );
        assert!(running(Path::new("/no/such/class"), devices.path()).is_empty());
    }

    #[test]
    fn device_that_is_no_watchdog_is_refused() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let error = Watchdog::start(plain.path(), Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENOTTY));
        // Had opening it started something, that is stopped.
        assert_eq!(fs::read(plain.path()).unwrap(), b"V");
        Watchdog::start(Path::new("/no/such/device"), Duration::from_secs(60)).unwrap_err();
    }
}

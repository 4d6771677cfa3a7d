//! Hardware watchdogs: Documentation/watchdog/watchdog-api.rst.
#![expect(unsafe_code, reason = "WDIOC_SETTIMEOUT has no safe wrapper")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use rustix::ioctl::{self, Updater, opcode};

/// Directory where the kernel lists watchdogs (Documentation/ABI/testing/sysfs-class-watchdog).
pub const CLASS: &str = "/sys/class/watchdog";

/// linux/watchdog.h: sets the timeout in seconds and returns the effective one.
const SET_TIMEOUT: ioctl::Opcode = opcode::read_write::<i32>(b'W', 6);

/// A running watchdog. Dropping it without [`Watchdog::stop`] keeps it running, so it resets the machine.
#[derive(Debug)]
pub struct Watchdog {
    device: File,
}

impl Watchdog {
    /// Starts the watchdog; the second value is the effective timeout, which the hardware may have rounded.
    ///
    /// # Errors
    /// The device does not exist, another process has it open, or it refuses the timeout. The watchdog is then stopped,
    /// if its driver allows that.
    pub fn start(device: &Path, timeout: Duration) -> io::Result<(Watchdog, Duration)> {
        let device = OpenOptions::new().write(true).open(device)?;
        let mut seconds = i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX);
        // SAFETY: WDIOC_SETTIMEOUT reads and writes one int, which `seconds` is.
        let request = unsafe { Updater::<SET_TIMEOUT, i32>::new(&mut seconds) };
        // SAFETY: the descriptor is open, and `seconds` outlives the call.
        let set = unsafe { ioctl::ioctl(&device, request) };
        let watchdog = Watchdog { device };
        if let Err(error) = set {
            // Opening has started the watchdog, and no code would feed it.
            let _ = watchdog.stop();
            return Err(error.into());
        }
        let holds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        Ok((watchdog, holds))
    }

    /// Takes over a running watchdog with its present timeout; opening it feeds it.
    ///
    /// # Errors
    /// The device does not exist, or another process has it open.
    pub fn go_on(device: &Path) -> io::Result<Watchdog> {
        let device = OpenOptions::new().write(true).open(device)?;
        Ok(Watchdog { device })
    }

    /// Feeds the watchdog.
    ///
    /// # Errors
    /// The driver's error.
    pub fn feed(&self) -> io::Result<()> {
        (&self.device).write_all(b"\0")
    }

    /// Stops it, if its driver allows that.
    ///
    /// # Errors
    /// The driver's error.
    pub fn stop(self) -> io::Result<()> {
        // The "magic close": some drivers stop only if this letter precedes the close.
        (&self.device).write_all(b"V")
    }
}

/// The running watchdogs that no process has open. `class` is [`CLASS`]; `devices` is the directory of their devices.
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
        // A watchdog that the open started is stopped again.
        assert_eq!(fs::read(plain.path()).unwrap(), b"V");
        Watchdog::start(Path::new("/no/such/device"), Duration::from_secs(60)).unwrap_err();
    }
}

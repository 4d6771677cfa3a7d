//! Hardware watchdogs: Documentation/watchdog/watchdog-api.rst.
#![expect(unsafe_code, reason = "WDIOC_SETTIMEOUT has no safe wrapper")]

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use rustix::ioctl::{self, Updater, opcode};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_watchdog_is_refused() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let error = Watchdog::start(plain.path(), Duration::from_secs(60)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENOTTY));
        // Had opening it started something, that is stopped.
        assert_eq!(std::fs::read(plain.path()).unwrap(), b"V");
        Watchdog::start(Path::new("/no/such/device"), Duration::from_secs(60)).unwrap_err();
    }
}

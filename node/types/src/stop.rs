//! How a boot ended.

use std::time::SystemTime;

use corten_base::calendar::rfc3339;
use serde::{Deserialize, Serialize};

/// Reason for the end of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A requested reboot.
    Reboot,
    /// A requested shutdown.
    Shutdown,
    /// A fatal error of machined.
    Fatal,
    /// A kernel panic, including soft and hard lockups and unknown NMIs.
    Panic,
    /// A kernel panic for lack of memory with no process left to kill.
    OutOfMemory,
    /// A reset by the watchdog, which machined had stopped feeding.
    Watchdog,
    /// A loss of power, or an external reset.
    CutOff,
}

/// The end of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Reason for the end.
    pub reason: Reason,
    /// The requester of the stop, or the failure that caused it.
    pub detail: String,
    /// Time of the stop (RFC 3339); empty if the node could not record it.
    pub at: String,
}

impl Stop {
    /// A stop at the current time.
    #[must_use]
    pub fn now(reason: Reason, detail: &str) -> Stop {
        Stop {
            reason,
            detail: detail.to_owned(),
            at: rfc3339(SystemTime::now()),
        }
    }

    /// A stop whose time the node could not record.
    #[must_use]
    pub fn untimed(reason: Reason, detail: &str) -> Stop {
        Stop {
            reason,
            detail: detail.to_owned(),
            at: String::new(),
        }
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = match self.reason {
            Reason::Reboot => "a reboot",
            Reason::Shutdown => "a shutdown",
            Reason::Fatal => "a failure of machined",
            Reason::Panic => "a panic of the kernel",
            Reason::OutOfMemory => "a panic of the kernel for lack of memory",
            Reason::Watchdog => "a reset by the watchdog",
            Reason::CutOff => "the loss of power, or a reset from outside",
        };
        f.write_str(reason)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// A process that the kernel killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// Id of its service.
    pub service: String,
    /// Name of the process; the kernel keeps at most 15 bytes of it.
    pub process: String,
    /// Time of the kill (RFC 3339).
    pub time: String,
}

impl std::fmt::Display for Kill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Kill {
            service,
            process,
            time,
        } = self;
        write!(
            f,
            "{process} of service {service} was killed at {time}, as memory ran out"
        )
    }
}

//! How a boot ended.

use std::time::SystemTime;

use corten_base::calendar::rfc3339;
use serde::{Deserialize, Serialize};

/// What kind of end it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Asked for.
    Reboot,
    /// Asked for.
    Shutdown,
    /// machined could not go on.
    Fatal,
    /// The kernel's own end; also soft and hard lockups and unknown NMIs.
    Panic,
    /// The kernel's own end, because memory ran out and there was nothing to kill for it.
    OutOfMemory,
    /// The machine was reset because nobody fed its watchdog.
    Watchdog,
    /// Loss of power, or a reset from outside.
    CutOff,
}

/// The end of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// What kind of end it was.
    pub reason: Reason,
    /// Who asked for it, or what went wrong.
    pub detail: String,
    /// When (RFC 3339); empty when nobody could write it down.
    pub at: String,
}

impl Stop {
    /// An end that happens now.
    #[must_use]
    pub fn now(reason: Reason, detail: &str) -> Stop {
        Stop {
            reason,
            detail: detail.to_owned(),
            at: rfc3339(SystemTime::now()),
        }
    }

    /// One whose moment nobody could write down.
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
            Reason::OutOfMemory => "a panic of the kernel without memory",
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
    /// The id of its service.
    pub service: String,
    /// Its name; the kernel knows 15 bytes of it.
    pub process: String,
    /// When (RFC 3339).
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

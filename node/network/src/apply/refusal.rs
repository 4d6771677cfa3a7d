//! Refusals of the kernel, and the back-off before a retry.

use std::fmt;
use std::io;
use std::time::Duration;

use rtnetlink::Error;
use rustix::io::Errno;

use crate::generic::NoAnswer;

/// Transient errors: a resource is exhausted or busy.
const PASSING: [Errno; 8] = [
    Errno::AGAIN,
    Errno::BUSY,
    Errno::INTR,
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOBUFS,
    Errno::NOMEM,
    Errno::TIMEDOUT,
];

/// Pause after the first refusal, and the limit of the exponential back-off.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The kernel's refusal of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason, as text for the operator.
    pub why: String,
    /// Whether the refusal is transient.
    pub passes: bool,
}

impl Refusal {
    fn by_number(why: String, number: i32) -> Refusal {
        let passes = PASSING.iter().any(|errno| errno.raw_os_error() == number);
        Refusal { why, passes }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// A permanent refusal.
impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal { why, passes: false }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::NetlinkError(message) => {
                let why = message.to_io().to_string();
                Refusal::by_number(why, message.raw_code().saturating_neg())
            }
            other => Refusal::from(other.to_string()),
        }
    }
}

impl From<NoAnswer> for Refusal {
    fn from(error: NoAnswer) -> Refusal {
        let why = error.to_string();
        let (NoAnswer::Lost(reason) | NoAnswer::Refused(reason)) = &error;
        Refusal::by_number(why, number(reason))
    }
}

fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_default()
}

/// Pause after this many consecutive refusals.
pub fn pause(refusals: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(refusals.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroI32;

    use rtnetlink::packet_core::ErrorMessage;

    use super::*;

    #[test]
    fn resource_errors_are_temporary_and_invalid_requests_are_not() {
        let by_rtnetlink = |errno: Errno| {
            let mut message = ErrorMessage::default();
            message.code = NonZeroI32::new(-errno.raw_os_error());
            Refusal::from(Error::NetlinkError(message))
        };
        let by_wireguard = |errno: Errno| Refusal::from(NoAnswer::Refused(errno.into()));
        for errno in PASSING {
            assert!(by_rtnetlink(errno).passes && by_wireguard(errno).passes);
        }
        for errno in [Errno::INVAL, Errno::NETUNREACH, Errno::EXIST, Errno::PERM] {
            assert!(!by_rtnetlink(errno).passes && !by_wireguard(errno).passes);
        }
        assert!(!Refusal::from(Error::RequestFailed).passes);
        let busy = by_rtnetlink(Errno::BUSY).to_string();
        assert!(busy.contains("busy"), "{busy}");
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses = [1, 2, 3, 6, 7, 1000].map(|refusals| pause(refusals).as_secs());
        assert_eq!(pauses, [5, 10, 20, 160, 300, 300]);
    }
}

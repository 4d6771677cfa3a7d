//! The node's clock.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_api::talos::resource::definitions::time as wire;
use corten_resources::{Definition, Spec};
use corten_sys::clock::{Steering, UNSYNCHRONIZED};
use serde::{Serialize, Serializer};

use super::names::{CLOCK_STATUSES, flags};
use super::{column, duration, open};

const NAMESPACE: &str = "runtime";

/// Whether the clock is synchronized; id [`TimeStatus::ID`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeStatus {
    /// Whether the clock took over a server's time, or no synchronization is wanted.
    pub synced: bool,
    /// Number of clock jumps of more than 15 minutes, whoever caused them, except the first synchronization.
    pub epoch: u64,
    /// Whether time synchronization is off.
    pub sync_disabled: bool,
}

impl TimeStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "node";
}

impl Spec for TimeStatus {
    const DEFINITION: Definition = open(
        "TimeStatuses.v1alpha1.talos.dev",
        NAMESPACE,
        &[],
        &[column("Synced", ".synced")],
    );

    type Message = wire::StatusSpec;

    fn message(&self) -> wire::StatusSpec {
        wire::StatusSpec {
            synced: self.synced,
            epoch: self.epoch.try_into().unwrap_or(i64::MAX),
            sync_disabled: self.sync_disabled,
        }
    }
}

/// Trust in the time servers; id [`NtpStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NtpStatus {
    /// Whether the last answer was discarded as a possible error.
    pub spike_detected: bool,
    /// Number of consecutive discarded answers.
    pub consecutive_spikes: u32,
    /// Condition the clock waits for before it follows a server; empty if none. The message lacks it: its fields are
    /// fixed by the reference.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
    /// Rejected servers with the reason for each. The message lacks it as well.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
}

impl NtpStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "node";
}

impl Spec for NtpStatus {
    const DEFINITION: Definition = open(
        "NTPStatuses.v1alpha1.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Spike Detected", ".spikeDetected"),
            column("Consecutive Spikes", ".consecutiveSpikes"),
        ],
    );

    type Message = wire::NtpStatusSpec;

    fn message(&self) -> wire::NtpStatusSpec {
        wire::NtpStatusSpec {
            spike_detected: self.spike_detected,
            consecutive_spikes: self.consecutive_spikes.into(),
        }
    }
}

/// How the kernel disciplines the clock; id [`AdjtimeStatus::ID`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdjtimeStatus {
    /// Remaining offset to correct, in nanoseconds.
    #[serde(serialize_with = "as_text")]
    pub offset: i64,
    /// Ratio of the disciplined to the nominal frequency.
    pub frequency_adjustment_ratio: f64,
    /// Maximum error in nanoseconds.
    #[serde(serialize_with = "as_text")]
    pub max_error: i64,
    /// Estimated error in nanoseconds.
    #[serde(serialize_with = "as_text")]
    pub est_error: i64,
    /// The kernel's names of the status bits, joined by `|`.
    pub status: String,
    /// Time constant of the phase-locked loop.
    pub constant: i64,
    /// Whether a program has told the kernel that the clock is synchronized.
    pub sync_status: bool,
    /// The kernel's name of the clock state.
    pub state: &'static str,
}

impl AdjtimeStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "node";
}

impl From<Steering> for AdjtimeStatus {
    fn from(now: Steering) -> AdjtimeStatus {
        AdjtimeStatus {
            offset: now.offset,
            // The unit is 2^-16 parts per million.
            frequency_adjustment_ratio: 1.0 + now.frequency as f64 / 65536.0 / 1_000_000.0,
            max_error: now.max_error.saturating_mul(1000),
            est_error: now.estimated_error.saturating_mul(1000),
            status: flags(now.status, CLOCK_STATUSES).replace(',', " | "),
            constant: now.constant,
            sync_status: now.status & UNSYNCHRONIZED == 0,
            // Return value of adjtimex(2).
            state: match now.state {
                0 => "TIME_OK",
                1 => "TIME_INS",
                2 => "TIME_DEL",
                3 => "TIME_OOP",
                4 => "TIME_WAIT",
                5 => "TIME_ERROR",
                _ => "TIME_UNKNOWN",
            },
        }
    }
}

impl Spec for AdjtimeStatus {
    const DEFINITION: Definition = open(
        "AdjtimeStatuses.v1alpha1.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Offset", ".offset"),
            column("EstError", ".estError"),
            column("MaxError", ".maxError"),
            column("Status", ".status"),
            column("Sync", ".syncStatus"),
        ],
    );

    type Message = wire::AdjtimeStatusSpec;

    fn message(&self) -> wire::AdjtimeStatusSpec {
        wire::AdjtimeStatusSpec {
            offset: Some(span(self.offset)),
            frequency_adjustment_ratio: self.frequency_adjustment_ratio,
            max_error: Some(span(self.max_error)),
            est_error: Some(span(self.est_error)),
            status: self.status.clone(),
            constant: self.constant,
            sync_status: self.sync_status,
            state: self.state.to_owned(),
        }
    }
}

/// Seconds and nanoseconds have the same sign.
fn span(nanoseconds: i64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: nanoseconds / 1_000_000_000,
        nanos: (nanoseconds % 1_000_000_000).try_into().unwrap_or_default(),
    }
}

fn as_text<S: Serializer>(nanoseconds: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    let sign = if *nanoseconds < 0 { "-" } else { "" };
    let size = duration(Duration::from_nanos(nanoseconds.unsigned_abs()));
    serializer.serialize_str(&format!("{sign}{size}"))
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;

    #[test]
    fn clock_status_lists_the_awaited_event_and_refused_servers_when_present() {
        let mut status = NtpStatus {
            spike_detected: false,
            consecutive_spikes: 0,
            waits_for: String::new(),
            refused: BTreeMap::new(),
        };
        let before = "spikeDetected: false\nconsecutiveSpikes: 0\n";
        assert_eq!(status.to_yaml().unwrap(), before);
        status.waits_for = "an answer".to_owned();
        status.refused.insert("a".to_owned(), "it lies".to_owned());
        let more = "waitsFor: an answer\nrefused:\n  a: it lies\n";
        assert_eq!(status.to_yaml().unwrap(), format!("{before}{more}"));
    }

    #[test]
    fn kernel_clock_state_is_converted_to_readable_units() {
        let status = AdjtimeStatus::from(Steering {
            offset: -1_500_000_000,
            frequency: 65536 * 500,
            max_error: 16_000_000,
            estimated_error: i64::MAX,
            status: 0x2041,
            constant: 7,
            state: 5,
        });
        assert_eq!(status.status, "STA_PLL | STA_UNSYNC | STA_NANO");
        assert!((status.frequency_adjustment_ratio - 1.0005).abs() < 1e-12);
        assert!(!status.sync_status && status.state == "TIME_ERROR");
        let yaml = serde_json::to_value(&status).unwrap();
        assert_eq!(
            (&yaml["offset"], &yaml["maxError"]),
            (&"-1.5s".into(), &"16s".into())
        );
        let offset = status.message().offset.unwrap();
        assert_eq!((offset.seconds, offset.nanos), (-1, -500_000_000));
    }
}

//! Schedule on which volumes tell disks about free space (TRIM).

use std::time::{Duration, SystemTime};

use corten_api::talos::resource::definitions::block as wire;
use corten_base::calendar;
use corten_resources::{Definition, Spec};
use serde::{Serialize, Serializer};

use super::names::{FILE_SYSTEMS, number};
use super::{column, duration_text, open};

/// Trim schedule of a volume; its id is the volume's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeTrimSchedule {
    /// File system; `none` if clients have no number for it.
    pub filesystem: String,
    /// Interval between trims.
    #[serde(serialize_with = "duration_text")]
    pub interval: Duration,
    /// Time of the next trim.
    #[serde(serialize_with = "rfc3339")]
    pub next_trim: SystemTime,
}

impl Spec for VolumeTrimSchedule {
    const DEFINITION: Definition = open(
        "VolumeTrimSchedules.block.talos.dev",
        "runtime",
        &[],
        &[
            column("Filesystem", ".filesystem"),
            column("Interval", ".interval"),
            column("Next Trim", ".nextTrim"),
        ],
    );

    type Message = wire::VolumeTrimScheduleSpec;

    fn message(&self) -> wire::VolumeTrimScheduleSpec {
        wire::VolumeTrimScheduleSpec {
            filesystem: number(&self.filesystem, FILE_SYSTEMS).unwrap_or_default(),
            interval: self.interval.try_into().ok(),
            next_trim: Some(self.next_trim.into()),
        }
    }
}

fn rfc3339<S: Serializer>(value: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&calendar::rfc3339(*value))
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;

    #[test]
    fn next_trim_is_encoded_as_a_timestamp() {
        let schedule = VolumeTrimSchedule {
            filesystem: "xfs".to_owned(),
            interval: Duration::from_secs(7 * 24 * 3600),
            next_trim: SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_000_500),
        };
        let yaml = schedule.to_yaml().unwrap();
        assert!(yaml.contains("interval: 168h0m0s\n"), "{yaml}");
        assert!(yaml.contains("2001-09-09T01:46:40.5Z"), "{yaml}");
        let message = schedule.message();
        assert_eq!(message.filesystem, 1);
        assert_eq!(message.interval.unwrap().seconds, 604_800);
        let next = message.next_trim.unwrap();
        assert_eq!((next.seconds, next.nanos), (1_000_000_000, 500_000_000));
    }
}

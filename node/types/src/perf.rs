//! Processor and memory usage.

use corten_api::machine as api;
use corten_api::talos::resource::definitions::perf as wire;
use corten_resources::{Definition, Spec};
use prost::{DecodeError, Message as _};
use serde::Serialize;

use super::{column, open};

const NAMESPACE: &str = "perf";

/// Processor statistics since boot: times in seconds, and counters; id [`CpuStat::ID`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuStat(wire::CpuSpec);

impl CpuStat {
    /// Id of the only resource of this type.
    pub const ID: &str = "latest";
}

impl From<api::SystemStat> for CpuStat {
    fn from(stat: api::SystemStat) -> CpuStat {
        CpuStat(wire::CpuSpec {
            cpu: stat.cpu,
            cpu_total: stat.cpu_total,
            irq_total: stat.irq_total,
            context_switches: stat.context_switches,
            process_created: stat.process_created,
            process_running: stat.process_running,
            process_blocked: stat.process_blocked,
            soft_irq_total: stat.soft_irq_total,
        })
    }
}

impl Spec for CpuStat {
    const DEFINITION: Definition = open(
        "CPUStats.perf.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("User", ".cpuTotal.user"),
            column("System", ".cpuTotal.system"),
        ],
    );

    type Message = wire::CpuSpec;

    fn message(&self) -> wire::CpuSpec {
        self.0.clone()
    }
}

/// Memory usage in kB; id [`MemoryStat::ID`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryStat(wire::MemorySpec);

impl MemoryStat {
    /// Id of the only resource of this type.
    pub const ID: &str = "latest";
}

impl TryFrom<api::MemInfo> for MemoryStat {
    type Error = DecodeError;

    /// Converts through the wire form: both messages number their fields alike.
    fn try_from(info: api::MemInfo) -> Result<MemoryStat, DecodeError> {
        let mut memory = wire::MemorySpec::decode(info.encode_to_vec().as_slice())?;
        memory.used = info.memtotal.saturating_sub(info.memfree);
        Ok(MemoryStat(memory))
    }
}

impl Spec for MemoryStat {
    const DEFINITION: Definition = open(
        "MemoryStats.perf.talos.dev",
        NAMESPACE,
        &[],
        &[column("Used", ".used"), column("Total", ".total")],
    );

    type Message = wire::MemorySpec;

    fn message(&self) -> wire::MemorySpec {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;

    #[test]
    fn used_memory_is_total_minus_free() {
        let info = api::MemInfo {
            memtotal: 100,
            memfree: 40,
            memavailable: 70,
            swapcached: 1,
            writebacktmp: 2,
            committedas: 3,
            hugepagesize: 2048,
            directmap1g: 4,
            ..api::MemInfo::default()
        };
        let memory = MemoryStat::try_from(info).unwrap();
        let message = memory.message();
        assert_eq!(message, memory.0);
        let yaml = memory.to_yaml().unwrap();
        for line in [
            "total: 100",
            "used: 60",
            "available: 70",
            "swapCached: 1",
            "writeBacktmp: 2",
            "commitTedas: 3",
            "hugepagesize: 2048",
            "directMap4k: 0",
            "directMap1g: 4",
        ] {
            assert!(yaml.lines().any(|found| found == line), "{line}: {yaml}");
        }
        assert_eq!(yaml.lines().count(), 48);
    }

    #[test]
    fn cpu_statistics_list_every_processor() {
        let times = api::CpuStat {
            soft_irq: 0.5,
            ..api::CpuStat::default()
        };
        let stat = CpuStat::from(api::SystemStat {
            cpu_total: Some(times),
            cpu: vec![times],
            context_switches: 7,
            ..api::SystemStat::default()
        });
        let message = stat.message();
        assert_eq!((&message, message.context_switches), (&stat.0, 7));
        let yaml = stat.to_yaml().unwrap();
        assert_eq!(yaml.matches("softIrq: 0.5").count(), 2, "{yaml}");
        assert!(yaml.contains("cpuTotal:") && yaml.contains("contextSwitches: 7"));
    }
}

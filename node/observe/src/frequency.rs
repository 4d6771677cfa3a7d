//! Frequencies of processors: `/sys/devices/system/cpu/cpu*/cpufreq`, in kHz (kernel:
//! Documentation/admin-guide/pm/cpufreq.rst).

use std::fs;
use std::path::Path;

use corten_api::machine as api;

use crate::Paths;

/// One entry per processor with frequency scaling, in the order of their numbers; a virtual machine usually has none.
/// Frequencies are kHz. An unreadable value is 0.
pub fn frequencies(paths: &Paths) -> api::CpuFreqStatsResponse {
    let directory = paths.sys.join("devices/system/cpu");
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix("cpu")?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    let stats = numbers
        .iter()
        .filter_map(|number| read(&directory.join(format!("cpu{number}/cpufreq"))))
        .collect();
    api::CpuFreqStatsResponse {
        messages: vec![api::CpUsFreqStats {
            metadata: None,
            cpu_freq_stats: stats,
        }],
    }
}

fn read(policy: &Path) -> Option<api::CpuFreqStats> {
    let text = |name| {
        let text = fs::read_to_string(policy.join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    let number = |name| text(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    // The hardware's measurement if there is one, else the last value that the kernel set.
    let measured = text("cpuinfo_cur_freq").and_then(|text| text.parse().ok());
    Some(api::CpuFreqStats {
        governor: text("scaling_governor")?,
        current_frequency: measured.unwrap_or_else(|| number("scaling_cur_freq")),
        minimum_frequency: number("cpuinfo_min_freq"),
        maximum_frequency: number("cpuinfo_max_freq"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_in_order_without_those_lacking_a_frequency() {
        let sys = tempfile::tempdir().unwrap();
        for (cpu, current) in [("cpu10", "cpuinfo_cur_freq"), ("cpu2", "scaling_cur_freq")] {
            let policy = sys
                .path()
                .join("devices/system/cpu")
                .join(cpu)
                .join("cpufreq");
            fs::create_dir_all(&policy).unwrap();
            for (name, text) in [
                (current, "1800000\n"),
                ("cpuinfo_min_freq", "800000\n"),
                ("cpuinfo_max_freq", "3600000\n"),
                ("scaling_governor", &format!("{cpu}-governor\n")),
            ] {
                fs::write(policy.join(name), text).unwrap();
            }
        }
        fs::create_dir_all(sys.path().join("devices/system/cpu/cpu0")).unwrap();
        let paths = Paths {
            sys: sys.path().to_owned(),
            ..Paths::default()
        };
        let stats = &frequencies(&paths).messages[0].cpu_freq_stats;
        let governors: Vec<&str> = stats.iter().map(|stats| &*stats.governor).collect();
        assert_eq!(governors, ["cpu2-governor", "cpu10-governor"]);
        for stats in stats {
            let numbers = (
                stats.minimum_frequency,
                stats.current_frequency,
                stats.maximum_frequency,
            );
            assert_eq!(numbers, (800_000, 1_800_000, 3_600_000));
        }
    }
}

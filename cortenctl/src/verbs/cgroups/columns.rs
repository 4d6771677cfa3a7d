//! The columns of each preset, and the computation of their cells from a group's files. Files and
//! units are those of the kernel's `admin-guide/cgroup-v2`.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_client::units::size;

use super::tree::{Group, Tree};
use crate::cli::Preset;

/// Names of processes by pid.
pub(super) type Processes = BTreeMap<String, String>;
type Cell = fn(&Group, &Tree, &Processes) -> String;
type Column = (&'static str, Cell);

/// The cell of a missing file: the root has no limits.
const UNSET: &str = "unset";

pub(super) fn columns(preset: Preset) -> &'static [Column] {
    match preset {
        Preset::Cpu => CPU,
        Preset::Cpuset => CPUSET,
        Preset::Io => IO,
        Preset::Memory => MEMORY,
        Preset::Process => PROCESS,
        Preset::Psi => PSI,
        Preset::Swap => SWAP,
    }
}

const CPU: &[Column] = &[
    ("CpuWeight", |g, _, _| word(g, "cpu.weight")),
    ("CpuNice", |g, _, _| word(g, "cpu.weight.nice")),
    ("CpuMax", |g, _, _| word(g, "cpu.max")),
    ("CpuUser", |g, _, _| time(g, "cpu.stat", "user_usec")),
    ("User/%", |g, t, _| share(g, t, "user_usec")),
    ("CpuSystem", |g, _, _| time(g, "cpu.stat", "system_usec")),
    ("System/%", |g, t, _| share(g, t, "system_usec")),
    ("Throttled", |g, _, _| time(g, "cpu.stat", "throttled_usec")),
];

const CPUSET: &[Column] = &[
    ("CpuSet", |g, _, _| word(g, "cpuset.cpus")),
    ("CpuSet(Eff)", |g, _, _| word(g, "cpuset.cpus.effective")),
    ("Mems", |g, _, _| word(g, "cpuset.mems")),
    ("Mems(Eff)", |g, _, _| word(g, "cpuset.mems.effective")),
];

const IO: &[Column] = &[
    ("Bytes Read/Written", |g, _, _| {
        let pair = [sum(g, "rbytes"), sum(g, "wbytes")];
        pair.map(size).join("/")
    }),
    ("ios Read/Write", |g, _, _| {
        format!("{}/{}", sum(g, "rios"), sum(g, "wios"))
    }),
    ("PressAvg10", |g, _, _| {
        pressure(g, "io.pressure", "some", "avg10")
    }),
    ("PressAvg60", |g, _, _| {
        pressure(g, "io.pressure", "some", "avg60")
    }),
    ("PressTotal", |g, _, _| {
        pressure(g, "io.pressure", "some", "total")
    }),
];

const MEMORY: &[Column] = &[
    ("MemCurrent", |g, _, _| bytes(g, "memory.current")),
    ("MemPeak", |g, _, _| bytes(g, "memory.peak")),
    ("MemLow", |g, _, _| bytes(g, "memory.low")),
    ("Peak/Low", |g, _, _| ratio(g, "memory.peak", "memory.low")),
    ("MemHigh", |g, _, _| bytes(g, "memory.high")),
    ("MemMin", |g, _, _| bytes(g, "memory.min")),
    ("Current/Min", |g, _, _| {
        ratio(g, "memory.current", "memory.min")
    }),
    ("MemMax", |g, _, _| bytes(g, "memory.max")),
];

const PROCESS: &[Column] = &[
    ("PidsCurrent", |g, _, _| word(g, "pids.current")),
    ("PidsPeak", |g, _, _| word(g, "pids.peak")),
    ("PidsMax", |g, _, _| word(g, "pids.max")),
    ("Procs", |g, _, _| count(g, "cgroup.procs")),
    ("Threads", |g, _, _| count(g, "cgroup.threads")),
    ("Processes", |g, _, p| names(g, p)),
];

const PSI: &[Column] = &[
    ("MemCurrent", |g, _, _| bytes(g, "memory.current")),
    ("MemPsiSome10", |g, _, _| {
        pressure(g, "memory.pressure", "some", "avg10")
    }),
    ("MemPsi10", |g, _, _| {
        pressure(g, "memory.pressure", "full", "avg10")
    }),
    ("CpuPsi10", |g, _, _| {
        pressure(g, "cpu.pressure", "some", "avg10")
    }),
    ("IoPsi10", |g, _, _| {
        pressure(g, "io.pressure", "full", "avg10")
    }),
];

const SWAP: &[Column] = &[
    ("SwapCurrent", |g, _, _| bytes(g, "memory.swap.current")),
    ("SwapPeak", |g, _, _| bytes(g, "memory.swap.peak")),
    ("SwapHigh", |g, _, _| bytes(g, "memory.swap.high")),
    ("SwapMax", |g, _, _| bytes(g, "memory.swap.max")),
    ("ZswapCurrent", |g, _, _| bytes(g, "memory.zswap.current")),
    ("ZswapMax", |g, _, _| bytes(g, "memory.zswap.max")),
    ("ZswapWriteback", |g, _, _| {
        word(g, "memory.zswap.writeback")
    }),
];

fn word(group: &Group, file: &str) -> String {
    match group.get(file).map(|text| text.trim()) {
        None => UNSET.to_owned(),
        Some(text) => text.to_owned(),
    }
}

/// A size, or the kernel's `max`.
fn bytes(group: &Group, file: &str) -> String {
    let text = word(group, file);
    text.parse().map_or(text, size)
}

fn number(group: &Group, file: &str) -> Option<u64> {
    group.get(file)?.trim().parse().ok()
}

/// The ratio of two files' values.
fn ratio(group: &Group, one: &str, other: &str) -> String {
    percent(number(group, one), number(group, other))
}

fn percent(part: Option<u64>, whole: Option<u64>) -> String {
    match (part, whole) {
        (Some(part), Some(whole)) if whole > 0 => {
            format!("{:.2}%", 100.0 * (part as f64 / whole as f64))
        }
        _ => "-".to_owned(),
    }
}

/// A value of a file with lines of a name and a number.
fn field(group: &Group, file: &str, name: &str) -> Option<u64> {
    let lines = group.get(file)?.lines();
    let mut pairs = lines.filter_map(|line| line.split_once(' '));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}

fn time(group: &Group, file: &str, name: &str) -> String {
    field(group, file, name).map_or_else(
        || "-".to_owned(),
        |micros| format!("{:.2}s", Duration::from_micros(micros).as_secs_f64()),
    )
}

/// A group's share of the usage of all groups.
fn share(group: &Group, tree: &Tree, name: &str) -> String {
    let all = tree.root().and_then(|root| field(root, "cpu.stat", name));
    percent(field(group, "cpu.stat", name), all)
}

/// The sum of a value of `io.stat` over all devices.
fn sum(group: &Group, name: &str) -> u64 {
    let text = group.get("io.stat").map_or("", String::as_str);
    text.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter(|(key, _)| *key == name)
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// A value of a pressure file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn pressure(group: &Group, file: &str, kind: &str, name: &str) -> String {
    let text = group.get(file).map_or("", String::as_str);
    let line = text.lines().find_map(|line| line.strip_prefix(kind));
    let mut words = line.unwrap_or("").split_whitespace();
    let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or("-").to_owned()
}

fn count(group: &Group, file: &str) -> String {
    let lines = group.get(file).map(|text| text.lines().count());
    lines.map_or_else(|| "-".to_owned(), |lines| lines.to_string())
}

/// The processes, each with its name if it is known.
fn names(group: &Group, processes: &Processes) -> String {
    let text = group.get("cgroup.procs").map_or("", String::as_str);
    let named = text.lines().map(|number| match processes.get(number) {
        Some(name) => format!("{number} {name}"),
        None => number.to_owned(),
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(preset: Preset, files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter();
        let group: Group = files
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let processes = Processes::from([("7".to_owned(), "apid".to_owned())]);
        let cells = columns(preset).iter();
        cells
            .map(|(_, cell)| cell(&group, &Tree::default(), &processes))
            .collect()
    }

    #[test]
    fn presets_show_their_columns() {
        let memory = row(
            Preset::Memory,
            &[
                ("memory.current", "50000000\n"),
                ("memory.peak", "80000000\n"),
                ("memory.low", "160000000\n"),
                ("memory.min", "0\n"),
                ("memory.max", "max\n"),
            ],
        );
        let expected = [
            "50 MB", "80 MB", "160 MB", "50.00%", "unset", "0 B", "-", "max",
        ];
        assert_eq!(memory, expected);
        let io = row(
            Preset::Io,
            &[
                (
                    "io.stat",
                    "8:0 rbytes=1000 wbytes=2000 rios=3 wios=4\n8:16 rbytes=500 wbytes=0 rios=1 wios=0\n",
                ),
                (
                    "io.pressure",
                    "some avg10=1.50 avg60=0.20 avg300=0.00 total=99\nfull avg10=0.00\n",
                ),
            ],
        );
        assert_eq!(io, ["1.5 kB/2.0 kB", "4/4", "1.50", "0.20", "99"]);
        let process = row(
            Preset::Process,
            &[("cgroup.procs", "7\n9\n"), ("pids.max", "max\n")],
        );
        assert_eq!(process, ["unset", "unset", "max", "2", "-", "7 apid, 9"]);
    }

    #[test]
    fn malformed_cgroup_files_are_shown_raw_or_left_out() {
        let cpu = row(
            Preset::Cpu,
            &[
                ("cpu.stat", "user_usec 1500000\nsystem_usec -1\n"),
                ("cpu.max", "max 100000\n"),
            ],
        );
        let expected = ["unset", "unset", "max 100000", "1.50s", "-", "-", "-", "-"];
        assert_eq!(cpu, expected);
        for preset in [Preset::Cpuset, Preset::Psi, Preset::Swap] {
            assert_eq!(row(preset, &[]).len(), columns(preset).len());
        }
        let huge = [("io.stat", "8:0 rbytes=18446744073709551615\n8:1 rbytes=9\n")];
        assert!(row(Preset::Io, &huge)[0].starts_with("18 EB"));
    }
}

//! Processors: `/proc/stat` and `/proc/cpuinfo`, proc(5).

use std::path::Path;

use corten_api::machine as api;

use super::{Unreadable, at, numbers, text};

/// The kernel's clock ticks per second in user space (USER_HZ); 100 on every supported architecture.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Processor statistics since boot; `proc` is the mount point of procfs.
pub fn stat(proc: &Path) -> Result<api::SystemStat, Unreadable> {
    text(proc, "stat").map(|text| parse_stat(&text))
}

fn parse_stat(text: &str) -> api::SystemStat {
    let mut stat = api::SystemStat::default();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let Some(name) = fields.next() else { continue };
        let values = numbers(fields);
        match name {
            "cpu" => stat.cpu_total = Some(times(&values)),
            "intr" => {
                stat.irq_total = at(&values, 0);
                stat.irq = values.into_iter().skip(1).collect();
            }
            "ctxt" => stat.context_switches = at(&values, 0),
            "btime" => stat.boot_time = at(&values, 0),
            "processes" => stat.process_created = at(&values, 0),
            "procs_running" => stat.process_running = at(&values, 0),
            "procs_blocked" => stat.process_blocked = at(&values, 0),
            "softirq" => {
                stat.soft_irq_total = at(&values, 0);
                stat.soft_irq = Some(soft_irqs(&values));
            }
            _ if name.starts_with("cpu") => stat.cpu.push(times(&values)),
            _ => {}
        }
    }
    stat
}

/// Converts ticks to seconds.
fn times(values: &[u64]) -> api::CpuStat {
    #[expect(
        clippy::cast_precision_loss,
        reason = "2^53 ticks are three million years"
    )]
    let seconds = |index| at(values, index) as f64 / TICKS_PER_SECOND;
    api::CpuStat {
        user: seconds(0),
        nice: seconds(1),
        system: seconds(2),
        idle: seconds(3),
        iowait: seconds(4),
        irq: seconds(5),
        soft_irq: seconds(6),
        steal: seconds(7),
        guest: seconds(8),
        guest_nice: seconds(9),
    }
}

fn soft_irqs(values: &[u64]) -> api::SoftIrqStat {
    api::SoftIrqStat {
        hi: at(values, 1),
        timer: at(values, 2),
        net_tx: at(values, 3),
        net_rx: at(values, 4),
        block: at(values, 5),
        block_io_poll: at(values, 6),
        tasklet: at(values, 7),
        sched: at(values, 8),
        hrtimer: at(values, 9),
        rcu: at(values, 10),
    }
}

/// All logical processors; `proc` is the mount point of procfs.
pub fn processors(proc: &Path) -> Result<Vec<api::CpuInfo>, Unreadable> {
    text(proc, "cpuinfo").map(|text| parse_info(&text))
}

fn parse_info(text: &str) -> Vec<api::CpuInfo> {
    let mut all: Vec<api::CpuInfo> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        if name == "processor" {
            all.push(api::CpuInfo {
                processor: parsed(value),
                ..Default::default()
            });
        } else if let Some(cpu) = all.last_mut() {
            set(cpu, name, value);
        }
    }
    all
}

fn parsed<T: std::str::FromStr + Default>(value: &str) -> T {
    value.parse().unwrap_or_default()
}

fn set(cpu: &mut api::CpuInfo, name: &str, value: &str) {
    let words = || value.split_whitespace().map(str::to_owned).collect();
    match name {
        "vendor_id" | "CPU implementer" => cpu.vendor_id = value.to_owned(),
        "cpu family" | "CPU architecture" => cpu.cpu_family = value.to_owned(),
        "model" | "CPU part" => cpu.model = value.to_owned(),
        "model name" => cpu.model_name = value.to_owned(),
        "stepping" | "CPU revision" => cpu.stepping = value.to_owned(),
        "microcode" => cpu.microcode = value.to_owned(),
        "cpu MHz" => cpu.cpu_mhz = parsed(value),
        "cache size" => cpu.cache_size = value.to_owned(),
        "physical id" => cpu.physical_id = value.to_owned(),
        "siblings" => cpu.siblings = parsed(value),
        "core id" => cpu.core_id = value.to_owned(),
        "cpu cores" => cpu.cpu_cores = parsed(value),
        "apicid" => cpu.apic_id = value.to_owned(),
        "initial apicid" => cpu.initial_apic_id = value.to_owned(),
        "fpu" => cpu.fpu = value.to_owned(),
        "fpu_exception" => cpu.fpu_exception = value.to_owned(),
        "cpuid level" => cpu.cpu_id_level = parsed(value),
        "wp" => cpu.wp = value.to_owned(),
        "flags" | "Features" => cpu.flags = words(),
        "bugs" => cpu.bugs = words(),
        "bogomips" | "BogoMIPS" => cpu.bogo_mips = parsed(value),
        "clflush size" => cpu.cl_flush_size = parsed(value),
        "cache_alignment" => cpu.cache_alignment = parsed(value),
        "address sizes" => cpu.address_sizes = value.to_owned(),
        "power management" => cpu.power_management = value.to_owned(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_ticks_are_converted_to_seconds() {
        let stat = parse_stat(
            "cpu  250 0 100 9000 1 2 3 4 5 6\ncpu0 250 0 100 9000\nintr 30 10 20\nctxt 77\nbtime 1700000000\nprocesses 9\nprocs_running 2\nprocs_blocked 1\nsoftirq 10 1 2 3 4 5 6 7 8 9 11\n",
        );
        let total = stat.cpu_total.unwrap();
        assert!((total.user - 2.5).abs() < 1e-9 && (total.guest_nice - 0.06).abs() < 1e-9);
        assert_eq!(stat.cpu.len(), 1);
        assert_eq!((stat.irq_total, stat.irq), (30, vec![10, 20]));
        assert_eq!((stat.context_switches, stat.boot_time), (77, 1_700_000_000));
        assert_eq!(stat.soft_irq.unwrap().rcu, 11);
    }

    #[test]
    fn every_processor_is_listed() {
        let cpus = parse_info(
            "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: 2000.5\nflags\t\t: a b\n\nprocessor\t: 1\n",
        );
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0].flags, ["a", "b"]);
        assert_eq!(cpus[1].processor, 1);
    }
}

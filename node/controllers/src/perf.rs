//! Shows processor and memory usage. The kernel sends no notification of changes, so it is polled.

use std::path::PathBuf;
use std::time::Duration;

use corten_base::proc::{cpu, memory};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::perf::{CpuStat, MemoryStat};
use tokio::time::sleep;

/// Poll interval (the reference's number).
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct Stats {
    /// `/proc`, except in tests.
    pub(super) proc: PathBuf,
}

impl Controller for Stats {
    fn name(&self) -> &'static str {
        "perf.StatsController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<CpuStat>(),
            Output::exclusive::<MemoryStat>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let cpu = CpuStat::from(cpu::stat(&self.proc)?);
            let memory = MemoryStat::try_from(memory::info(&self.proc)?)?;
            context.put(Draft::new(CpuStat::ID, cpu))?;
            context.put(Draft::new(MemoryStat::ID, memory))?;
            sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Store};

    use super::*;

    #[tokio::test]
    async fn processors_and_memory_are_shown() {
        let proc = tempfile::tempdir().unwrap();
        fs::write(proc.path().join("stat"), "cpu 250 0 100\ncpu0 250 0 100\n").unwrap();
        let meminfo = "MemTotal: 100 kB\nMemFree: 40 kB\n";
        fs::write(proc.path().join("meminfo"), meminfo).unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let stats = Stats {
            proc: proc.path().to_owned(),
        };
        runtime.add(stats).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let id = MemoryStat::ID;
        let memory = sample::until::<MemoryStat>(&store, id, |memory| memory.is_some()).await;
        let memory = memory.unwrap();
        assert!(memory.to_yaml().unwrap().contains("used: 60\n"));
        let cpu = store.get_as::<CpuStat>(CpuStat::ID).unwrap();
        assert_eq!(cpu.to_yaml().unwrap().matches("user: 2.5\n").count(), 2);
    }
}

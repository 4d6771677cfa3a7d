//! Shows the processor cores as the kernel reports them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use corten_api::machine as api;
use corten_base::proc::cpu;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::hardware::CpuCore;
use tokio::sync::watch;

use crate::uevents::Told;

#[derive(Debug, Clone)]
pub(crate) struct Cores {
    /// `/proc`, except in tests.
    pub(crate) proc: PathBuf,
    /// Signals that processors were added, removed, or switched on or off.
    pub(crate) changes: watch::Receiver<Told>,
}

impl Controller for Cores {
    fn name(&self) -> &'static str {
        "hardware.CPUInfoController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<CpuCore>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            self.changes.mark_unchanged();
            context.start_outputs();
            for (id, core) in cores(cpu::processors(&self.proc)?) {
                context.put(Draft::new(&id, core))?;
            }
            context.remove_others::<CpuCore>()?;
            if self.changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Merges logical processors into cores; shared properties come from a core's first processor.
fn cores(processors: Vec<api::CpuInfo>) -> BTreeMap<String, CpuCore> {
    let mut cores: BTreeMap<String, CpuCore> = BTreeMap::new();
    for processor in processors {
        let id = match (&*processor.physical_id, &*processor.core_id) {
            ("", _) | (_, "") => processor.processor.to_string(),
            (socket, core) => format!("{socket}-{core}"),
        };
        let number = processor.processor;
        if let Some(core) = cores.get_mut(&id) {
            core.logical_cpus.push(number);
            core.logical_cpus.sort_unstable();
        } else {
            cores.insert(id, CpuCore::from(processor));
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_base::sample::until;
    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Spec, Store};

    use super::*;

    fn threads(numbers: &[(u32, u32)]) -> String {
        let one = |(number, core): &(u32, u32)| {
            format!(
                "processor\t: {number}\nvendor_id\t: AuthenticAMD\nmodel name\t: X\nphysical id\t: 0\n\
                 siblings\t: 4\ncore id\t\t: {core}\ncpu cores\t: 2\nflags\t\t: fpu vme\nbogomips\t: 5600.5\n\n"
            )
        };
        numbers.iter().map(one).collect()
    }

    #[tokio::test]
    async fn threads_belong_to_their_core_until_it_goes_offline() {
        let proc = tempfile::tempdir().unwrap();
        let file = proc.path().join("cpuinfo");
        fs::write(&file, threads(&[(2, 0), (3, 1), (0, 0), (1, 1)])).unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let changes = watch::Sender::new(Told::default());
        let cores = Cores {
            proc: proc.path().to_owned(),
            changes: changes.subscribe(),
        };
        runtime.add(cores).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        until::<CpuCore>(&store, "0-1", |core| core.is_some()).await;
        let core = store.get_as::<CpuCore>("0-0").unwrap();
        assert_eq!(core.logical_cpus, [0, 2]);
        let yaml = core.to_yaml().unwrap();
        for line in [
            "coreID: \"0\"",
            "vendorID: AuthenticAMD",
            "threadsPerSocket: 4",
        ] {
            assert!(yaml.lines().any(|found| found == line), "{line}: {yaml}");
        }
        assert!(!yaml.contains("microcode"), "{yaml}");
        let message = core.message();
        assert_eq!(message.logical_cp_us, [0, 2]);
        assert_eq!(
            (&*message.flags, message.cores_per_socket),
            (&["fpu".to_owned(), "vme".to_owned()][..], 2)
        );
        fs::write(&file, threads(&[(0, 0)])).unwrap();
        changes.send_replace(Told::default());
        until::<CpuCore>(&store, "0-1", |core| core.is_none()).await;
        until::<CpuCore>(&store, "0-0", |core| {
            core.is_some_and(|core| core.logical_cpus == [0])
        })
        .await;
    }

    #[test]
    fn each_processor_is_a_core_where_the_kernel_reports_none() {
        let processor = |processor, core_id: &str| api::CpuInfo {
            processor,
            core_id: core_id.to_owned(),
            ..api::CpuInfo::default()
        };
        let found = cores(vec![processor(0, ""), processor(10, "3")]);
        let ids: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(ids, ["0", "10"]);
    }
}

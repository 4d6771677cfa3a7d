//! Shows the machine as its firmware describes it, read once.

use std::path::PathBuf;

use corten_base::sysfs;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::hardware::{MemoryModule, Processor, SystemInformation};

use super::smbios::Table;

/// The reference's name for memory that the firmware does not describe.
const UNKNOWN: &str = "UNKNOWN";

#[derive(Debug, Clone)]
pub(crate) struct SystemInfo {
    /// `/`, except in tests.
    pub(crate) root: PathBuf,
}

impl Controller for SystemInfo {
    fn name(&self) -> &'static str {
        "hardware.SystemInfoController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<SystemInformation>(),
            Output::exclusive::<Processor>(),
            Output::exclusive::<MemoryModule>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let table = Table::read(&self.root.join("sys/firmware/dmi/tables/DMI"));
        let system = self.system(table.wake_up_type());
        context.put(Draft::new(SystemInformation::ID, system))?;
        for (id, processor) in table.processors() {
            context.put(Draft::new(&id, processor))?;
        }
        let mut modules = table.memory_modules();
        if modules.is_empty() {
            modules.push((UNKNOWN.to_owned(), self.all_memory()));
        }
        for (id, module) in modules {
            context.put(Draft::new(&id, module))?;
        }
        Ok(())
    }
}

impl SystemInfo {
    /// The values the kernel has already extracted; boards without SMBIOS have none.
    fn system(&self, wake_up_type: &'static str) -> SystemInformation {
        let dmi = |name: &str| sysfs::read(&self.root.join("sys/class/dmi/id").join(name));
        SystemInformation {
            manufacturer: dmi("sys_vendor"),
            product_name: dmi("product_name"),
            version: dmi("product_version"),
            bios_version: dmi("bios_version"),
            serialnumber: dmi("product_serial"),
            uuid: dmi("product_uuid"),
            wake_up_type,
            sku_number: dmi("product_sku"),
        }
    }

    /// Total memory as the kernel counts it.
    fn all_memory(&self) -> MemoryModule {
        let text = sysfs::read(&self.root.join("proc/meminfo"));
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|total| total.trim().strip_suffix("kB")?.trim().parse().ok());
        MemoryModule {
            size_mib: kib.map_or(0, |kib: u64| (kib / 1024).try_into().unwrap_or(u32::MAX)),
            manufacturer: UNKNOWN.to_owned(),
            ..MemoryModule::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    async fn shown(files: &[(&str, &[u8])]) -> Store {
        let root = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let root = root.path().to_owned();
        runtime.add(SystemInfo { root }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        store
    }

    #[tokio::test]
    async fn values_missing_in_the_firmware_are_empty() {
        let store = shown(&[
            ("sys/class/dmi/id/sys_vendor", b"QEMU\n"),
            (
                "proc/meminfo",
                b"MemTotal:        8128692 kB\nMemFree: 1 kB\n",
            ),
        ])
        .await;
        let information = store.get_as::<SystemInformation>(SystemInformation::ID);
        let information = information.unwrap();
        assert_eq!(information.manufacturer, "QEMU");
        assert_eq!(
            (&*information.serialnumber, information.wake_up_type),
            ("", "")
        );
        let memory = store.get_as::<MemoryModule>(UNKNOWN).unwrap();
        assert_eq!((memory.size_mib, &*memory.manufacturer), (7938, "UNKNOWN"));
        let hostile = shown(&[
            ("proc/meminfo", b"MemTotal: -1 kB"),
            ("sys/firmware/dmi/tables/DMI", &[4; 99]),
        ])
        .await;
        assert_eq!(hostile.get_as::<MemoryModule>(UNKNOWN).unwrap().size_mib, 0);
    }

    #[tokio::test]
    async fn each_socket_of_the_table_is_shown() {
        // A processor and a memory device of the shortest form, each with one name.
        let mut table = vec![4, 0x1a, 0, 4, 1];
        table.extend([0; 0x15]);
        table[0x18] = 0x41;
        table.extend(b"CPU 1\0\0");
        table.extend([
            17, 0x15, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0,
        ]);
        table.extend(b"DIMM 1\0\0");
        let store = shown(&[("sys/firmware/dmi/tables/DMI", &table)]).await;
        let processor = store.get_as::<Processor>("CPU-1").unwrap();
        assert_eq!((&*processor.socket, processor.status), ("CPU 1", 0x41));
        let memory = store.get_as::<MemoryModule>("DIMM-1").unwrap();
        assert_eq!((memory.size_mib, &*memory.device_locator), (512, "DIMM 1"));
        assert!(store.get_as::<MemoryModule>(UNKNOWN).is_none());
    }
}

//! Counters and names of this machine.

use crate::file_systems::Meter;
use crate::mounts::{self, Mounts};
use crate::{Paths, cpu, devices, memory, version};

#[tokio::test]
async fn the_system_is_read_from_this_machine() {
    let paths = Paths::default();
    let version = version::version(&paths, false).unwrap().messages.remove(0);
    let own = corten_base::os_release::image_version();
    let tag = corten_api::version_tag(&own);
    assert_eq!(version.version.unwrap().tag, tag);
    let memory = memory::memory(&paths).unwrap().messages.remove(0);
    let memory = memory.meminfo.unwrap();
    assert!(memory.memtotal > memory.memfree && memory.memfree > 0);
    assert_eq!(cpu::load(&paths).unwrap().messages.len(), 1);
    let stat = cpu::system_stat(&paths).unwrap().messages.remove(0);
    assert!(stat.boot_time > 0 && !stat.cpu.is_empty());
    let cpus = cpu::info(&paths).unwrap().messages.remove(0).cpu_info;
    assert_eq!(cpus.len(), stat.cpu.len());
    devices::disks(&paths).unwrap();
    let devices = devices::network(&paths).unwrap().messages.remove(0).devices;
    assert!(devices.iter().any(|device| device.name == "lo"));
    let table = mounts::table(&paths).unwrap();
    let measured = Mounts::new(&Meter::of_the_kernel()).measured(table).await;
    let stats = &measured.messages[0].stats;
    assert!(stats.iter().any(|mount| mount.mounted_on == "/"));
    let hostname = version::hostname(&paths).unwrap().messages.remove(0);
    assert!(!hostname.hostname.is_empty());
}

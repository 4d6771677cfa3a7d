//! Devices on PCI buses (Documentation/ABI/testing/sysfs-bus-pci).

use std::fs;
use std::path::{Path, PathBuf};

use corten_base::sysfs;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::hardware::PciDevice;
use tokio::sync::watch;

use crate::uevents::Told;

#[derive(Debug, Clone)]
pub(crate) struct PciDevices {
    /// `/sys`, except in tests.
    pub(crate) sysfs: PathBuf,
    /// Signals that devices were added or removed, or their driver changed.
    pub(crate) changes: watch::Receiver<Told>,
}

impl Controller for PciDevices {
    fn name(&self) -> &'static str {
        "hardware.PCIDevicesController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<PciDevice>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            self.changes.mark_unchanged();
            context.start_outputs();
            let entries = fs::read_dir(self.sysfs.join("bus/pci/devices"));
            for entry in entries.into_iter().flatten().flatten() {
                let Ok(address) = entry.file_name().into_string() else {
                    continue;
                };
                if let Some(device) = device(&entry.path()) {
                    context.put(Draft::new(&address, device))?;
                }
            }
            context.remove_others::<PciDevice>()?;
            if self.changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Reads a device; `None` if it is being removed.
fn device(directory: &Path) -> Option<PciDevice> {
    let number = |name: &str| {
        let text = sysfs::read(&directory.join(name));
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    // One byte each for class, subclass and interface.
    let [_, class, subclass, _] = number("class")?.to_be_bytes();
    let (vendor, product) = (number("vendor")?, number("device")?);
    let driver = fs::read_link(directory.join("driver")).unwrap_or_default();
    let driver = driver.file_name().unwrap_or_default();
    Some(PciDevice {
        class: class_name(class),
        class_id: format!("0x{class:02x}"),
        subclass_id: format!("0x{subclass:02x}"),
        vendor_id: format!("0x{vendor:04x}"),
        product_id: format!("0x{product:04x}"),
        driver: driver.to_string_lossy().into_owned(),
    })
}

/// Class names of the PCI Code and ID Assignment Specification 1.16, section 1, in the form of lspci.
fn class_name(class: u8) -> &'static str {
    match class {
        0x00 => "Unclassified device",
        0x01 => "Mass storage controller",
        0x02 => "Network controller",
        0x03 => "Display controller",
        0x04 => "Multimedia controller",
        0x05 => "Memory controller",
        0x06 => "Bridge",
        0x07 => "Communication controller",
        0x08 => "Generic system peripheral",
        0x09 => "Input device controller",
        0x0a => "Docking station",
        0x0b => "Processor",
        0x0c => "Serial bus controller",
        0x0d => "Wireless controller",
        0x0e => "Intelligent controller",
        0x0f => "Satellite communications controller",
        0x10 => "Encryption controller",
        0x11 => "Signal processing controller",
        0x12 => "Processing accelerators",
        0x13 => "Non-Essential Instrumentation",
        0x40 => "Coprocessor",
        0xff => "Unassigned class",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use corten_base::sample::until;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    const FIRST: &str = "0000:00:1f.2";

    fn write(sysfs: &Path, address: &str, files: &[(&str, &str)]) -> PathBuf {
        let directory = sysfs.join("bus/pci/devices").join(address);
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        directory
    }

    #[tokio::test]
    async fn pci_device_appears_gets_a_driver_and_disappears() {
        let sysfs = tempfile::tempdir().unwrap();
        let files = [
            ("class", "0x010601\n"),
            ("vendor", "0x8086\n"),
            ("device", "0x2922\n"),
        ];
        let directory = write(sysfs.path(), FIRST, &files);
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let changes = watch::Sender::new(Told::default());
        let devices = PciDevices {
            sysfs: sysfs.path().to_owned(),
            changes: changes.subscribe(),
        };
        runtime.add(devices).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let device = until::<PciDevice>(&store, FIRST, |device| {
            device.is_some_and(|device| device.driver.is_empty())
        })
        .await;
        let device = device.unwrap();
        assert_eq!(device.class, "Mass storage controller");
        assert_eq!((&*device.class_id, &*device.subclass_id), ("0x01", "0x06"));
        assert_eq!(
            (&*device.vendor_id, &*device.product_id),
            ("0x8086", "0x2922")
        );
        symlink("../../../bus/pci/drivers/ahci", directory.join("driver")).unwrap();
        changes.send_replace(Told::default());
        until::<PciDevice>(&store, FIRST, |device| {
            device.is_some_and(|device| device.driver == "ahci")
        })
        .await;
        fs::remove_dir_all(&directory).unwrap();
        changes.send_replace(Told::default());
        until::<PciDevice>(&store, FIRST, |device| device.is_none()).await;
    }

    #[test]
    fn pci_device_with_malformed_ids_is_ignored() {
        let sysfs = tempfile::tempdir().unwrap();
        for files in [
            &[][..],
            &[("class", "0x010601"), ("vendor", "8086"), ("device", "0x1")],
            &[
                ("class", "0xfffffffff"),
                ("vendor", "0x1"),
                ("device", "0x1"),
            ],
            &[("class", "0x\u{e9}"), ("vendor", "0x1"), ("device", "0x1")],
        ] {
            let directory = write(sysfs.path(), "a", files);
            assert_eq!(device(&directory), None, "{files:?}");
        }
        let odd = [
            ("class", "0xffffffff"),
            ("vendor", "0xffffffff"),
            ("device", "0x0"),
        ];
        let odd = device(&write(sysfs.path(), "b", &odd)).unwrap();
        assert_eq!(
            (odd.class, &*odd.vendor_id),
            ("Unassigned class", "0xffffffff")
        );
    }
}

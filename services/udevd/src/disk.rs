//! Identity of a disk: the names its firmware reports, read from sysfs.

use crate::encode::{hex, identifier};
use crate::event::{Event, Properties};
use crate::sysfs::Sysfs;

/// Identity properties of the disk at `devpath`, or of the partition's disk: `ID_BUS`, `ID_SERIAL`, `ID_SERIAL_SHORT`,
/// `ID_MODEL`, `ID_VENDOR`, `ID_REVISION`, `ID_WWN`, `ID_TYPE`. Empty when the disk reports none.
pub fn identity(sysfs: &Sysfs, event: &Event) -> Properties {
    let disk = match event.is_partition() {
        true => event.devpath.rsplit_once('/').map_or("", |(disk, _)| disk),
        false => &event.devpath,
    };
    let name = disk.rsplit('/').next().unwrap_or_default();
    let chain = sysfs.chain(disk);
    let parent = |kind: &str| {
        chain
            .iter()
            .find(|a| a.subsystem == kind && a.devpath != disk)
    };
    if name.starts_with("nvme") {
        let controller = parent("nvme").map_or(disk, |a| &a.devpath);
        return nvme(sysfs, disk, controller);
    }
    if let Some(device) = parent("scsi") {
        let usb = parent("usb").map(|_| chain.iter().filter(|a| a.subsystem == "usb"));
        let usb = usb.and_then(|mut a| a.find(|a| sysfs.text(&a.devpath, "idVendor").is_some()));
        return scsi(sysfs, &device.devpath, usb.map(|a| a.devpath.as_str()));
    }
    if let Some(card) = parent("mmc") {
        return mmc(sysfs, &card.devpath);
    }
    if parent("virtio").is_some() {
        let mut found = Properties::new();
        if let Some(serial) = sysfs.text(disk, "serial") {
            set(&mut found, "ID_BUS", "virtio");
            set(&mut found, "ID_SERIAL", &identifier(&serial));
        }
        return found;
    }
    Properties::new()
}

fn nvme(sysfs: &Sysfs, disk: &str, controller: &str) -> Properties {
    let mut found = Properties::new();
    set(&mut found, "ID_BUS", "nvme");
    if let Some(wwid) = sysfs.text(disk, "wwid") {
        set(&mut found, "ID_WWN", &identifier(&wwid));
    }
    if let Some(nsid) = sysfs.text(disk, "nsid") {
        set(&mut found, "ID_NSID", &nsid);
    }
    let text = |name| sysfs.text(controller, name).map(|value| identifier(&value));
    if let Some(revision) = text("firmware_rev") {
        set(&mut found, "ID_REVISION", &revision);
    }
    let (model, serial) = (text("model"), text("serial"));
    model_and_serial(&mut found, model, serial);
    found
}

fn mmc(sysfs: &Sysfs, card: &str) -> Properties {
    let mut found = Properties::new();
    set(&mut found, "ID_BUS", "mmc");
    let text = |name| sysfs.text(card, name).map(|value| identifier(&value));
    model_and_serial(&mut found, text("name"), text("serial"));
    found
}

fn scsi(sysfs: &Sysfs, device: &str, usb: Option<&str>) -> Properties {
    let mut found = Properties::new();
    let text = |name| sysfs.text(device, name).map(|value| identifier(&value));
    let (vendor, model) = (text("vendor"), text("model"));
    set(
        &mut found,
        "ID_TYPE",
        scsi_type(sysfs.text(device, "type").as_deref()),
    );
    if let Some(revision) = text("rev") {
        set(&mut found, "ID_REVISION", &revision);
    }
    if let Some(usb) = usb {
        set(&mut found, "ID_BUS", "usb");
        let serial = sysfs.text(usb, "serial").map(|value| identifier(&value));
        let address = device.rsplit('/').next().unwrap_or_default();
        let mut numbers = address.split(':').skip(2);
        let instance = format!(
            "{}:{}",
            numbers.next().unwrap_or("0"),
            numbers.next().unwrap_or("0")
        );
        let names: Vec<String> = [&vendor, &model, &serial]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        set(
            &mut found,
            "ID_SERIAL",
            &format!("{}-{instance}", names.join("_")),
        );
        set_some(&mut found, "ID_SERIAL_SHORT", serial);
        set_some(&mut found, "ID_VENDOR", vendor);
        set_some(&mut found, "ID_MODEL", model);
        set(&mut found, "ID_INSTANCE", &instance);
        return found;
    }
    let page83 = sysfs.bytes(device, "vpd_pg83").unwrap_or_default();
    let designators = designators(&page83);
    if let Some(naa) = designators.iter().find(|d| d.kind == 3) {
        set(&mut found, "ID_WWN", &format!("0x{}", hex(naa.bytes)));
    }
    if vendor.as_deref() == Some("ATA") {
        set(&mut found, "ID_BUS", "ata");
        let identify = sysfs.bytes(device, "vpd_pg89").unwrap_or_default();
        let full = ata_text(&identify, 27, 20);
        let serial = ata_text(&identify, 10, 10).or_else(|| page80(sysfs, device));
        model_and_serial(&mut found, full.or(model), serial);
        return found;
    }
    set(&mut found, "ID_BUS", "scsi");
    let named = |d: &Designator<'_>| match d.kind {
        3 | 2 => format!("{}{}", d.kind, hex(d.bytes)),
        1 => format!("1{}", identifier(&String::from_utf8_lossy(d.bytes))),
        kind => {
            let own = identifier(&String::from_utf8_lossy(d.bytes));
            let (vendor, model) = (vendor.as_deref(), model.as_deref());
            format!(
                "{kind}{}_{}_{own}",
                vendor.unwrap_or_default(),
                model.unwrap_or_default()
            )
        }
    };
    // World-wide names before vendor-specific ones.
    let best = [3, 2, 1, 0]
        .iter()
        .find_map(|k| designators.iter().find(|d| d.kind == *k));
    let serial = page80(sysfs, device);
    let by_page80 = || {
        let (vendor, model) = (vendor.as_deref()?, model.as_deref()?);
        Some(format!("S{vendor}_{model}_{}", serial.as_deref()?))
    };
    set_some(&mut found, "ID_SERIAL", best.map(named).or_else(by_page80));
    set_some(&mut found, "ID_SERIAL_SHORT", best.map(|d| hex_or_text(d)));
    set_some(&mut found, "ID_SCSI_SERIAL", serial);
    set_some(&mut found, "ID_VENDOR", vendor);
    set_some(&mut found, "ID_MODEL", model);
    found
}

fn hex_or_text(designator: &Designator<'_>) -> String {
    match designator.kind {
        2 | 3 => hex(designator.bytes),
        _ => identifier(&String::from_utf8_lossy(designator.bytes)),
    }
}

/// One entry of the device identification page (SPC-4 §7.8.6).
struct Designator<'a> {
    kind: u8,
    bytes: &'a [u8],
}

/// The designators of the logical unit, of kinds 0 to 3, in the order of the page.
fn designators(page: &[u8]) -> Vec<Designator<'_>> {
    let mut found = Vec::new();
    let mut rest = page.get(4..).unwrap_or_default();
    while let [_, flags, _, length, after @ ..] = rest {
        let Some((bytes, next)) = after.split_at_checked(usize::from(*length)) else {
            break;
        };
        let (kind, unit) = (flags & 0xf, flags & 0x30 == 0);
        if unit && kind <= 3 && !bytes.is_empty() {
            found.push(Designator { kind, bytes });
        }
        rest = next;
    }
    found
}

/// The unit serial number page: text after a four-byte header.
fn page80(sysfs: &Sysfs, device: &str) -> Option<String> {
    let page = sysfs.bytes(device, "vpd_pg80")?;
    let serial = identifier(&String::from_utf8_lossy(page.get(4..)?));
    (!serial.is_empty()).then_some(serial)
}

/// Text of `words` words from word `first` of the IDENTIFY data, which starts at byte 60 of the ATA information page
/// (SAT-3 §12.4.2). The bytes of each word are swapped.
fn ata_text(page: &[u8], first: usize, words: usize) -> Option<String> {
    let start = 60 + first * 2;
    let bytes = page.get(start..start + words * 2)?;
    let swapped: Vec<u8> = bytes
        .chunks_exact(2)
        .flat_map(|pair| pair.iter().rev().copied())
        .collect();
    let text = identifier(&String::from_utf8_lossy(&swapped));
    (!text.is_empty()).then_some(text)
}

fn scsi_type(number: Option<&str>) -> &'static str {
    match number {
        Some("0" | "14") => "disk",
        Some("1") => "tape",
        Some("5") => "cd",
        Some("7") => "optical",
        _ => "generic",
    }
}

fn model_and_serial(found: &mut Properties, model: Option<String>, serial: Option<String>) {
    let both: Vec<&str> = [&model, &serial]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if !both.is_empty() {
        set(found, "ID_SERIAL", &both.join("_"));
    }
    set_some(found, "ID_MODEL", model);
    set_some(found, "ID_SERIAL_SHORT", serial);
}

fn set_some(found: &mut Properties, key: &str, value: Option<String>) {
    if let Some(value) = value {
        found.insert(key.to_owned(), value);
    }
}

fn set(found: &mut Properties, key: &str, value: &str) {
    found.insert(key.to_owned(), value.to_owned());
}

#[cfg(test)]
mod tests {
    use super::{designators, identity};
    use crate::event::{Event, Properties};
    use crate::sysfs::Sysfs;
    use crate::testing::Tree;
    use proptest::prelude::proptest;

    fn of(tree: &Tree, devpath: &str, kind: &str) -> Properties {
        let text = format!("ACTION=add\nDEVPATH={devpath}\nSUBSYSTEM=block\nDEVTYPE={kind}");
        identity(
            &Sysfs::new(tree.path()),
            &Event::parse(text.as_bytes()).unwrap(),
        )
    }

    fn get<'a>(found: &'a Properties, key: &str) -> &'a str {
        found.get(key).map_or("", String::as_str)
    }

    #[test]
    fn nvme_disk_and_partition_have_identities() {
        let tree = Tree::new();
        let (nvme, disk) = (
            "/devices/pci0/nvme/nvme0",
            "/devices/pci0/nvme/nvme0/nvme0n1",
        );
        tree.device(nvme, "nvme")
            .device(disk, "block")
            .device(&format!("{disk}/nvme0n1p1"), "block");
        tree.attribute(nvme, "model", "QEMU NVMe Ctrl      ")
            .attribute(nvme, "serial", "abc 1 ");
        tree.attribute(disk, "wwid", "nvme.1b36-61\n")
            .attribute(disk, "nsid", "1");
        for found in [
            of(&tree, disk, "disk"),
            of(&tree, &format!("{disk}/nvme0n1p1"), "partition"),
        ] {
            assert_eq!(get(&found, "ID_SERIAL"), "QEMU_NVMe_Ctrl_abc_1");
            assert_eq!(get(&found, "ID_WWN"), "nvme.1b36-61");
            assert_eq!(get(&found, "ID_SERIAL_SHORT"), "abc_1");
        }
    }

    #[test]
    fn virtio_scsi_and_ata_disks_have_identities() {
        let tree = Tree::new();
        tree.device("/devices/virtio1", "virtio")
            .device("/devices/virtio1/block/vda", "block");
        assert_eq!(
            of(&tree, "/devices/virtio1/block/vda", "disk"),
            Properties::new()
        );
        tree.attribute("/devices/virtio1/block/vda", "serial", "s-1");
        assert_eq!(
            get(
                &of(&tree, "/devices/virtio1/block/vda", "disk"),
                "ID_SERIAL"
            ),
            "s-1"
        );

        let (unit, disk) = ("/devices/h/0:0:0:1", "/devices/h/0:0:0:1/block/sda");
        tree.device(unit, "scsi").device(disk, "block");
        tree.attribute(unit, "vendor", "QEMU    ")
            .attribute(unit, "model", "QEMU HARDDISK   ");
        tree.attribute(unit, "type", "0")
            .attribute(unit, "vpd_pg80", b"\0\x80\0\x04ser1");
        assert_eq!(
            get(&of(&tree, disk, "disk"), "ID_SERIAL"),
            "SQEMU_QEMU_HARDDISK_ser1"
        );
        let mut page =
            b"\0\x83\0\0\x02\0\0\x04ser1\x01\x03\0\x08\x50\x01\x40\x5f\0\0\0\x01".to_vec();
        tree.attribute(unit, "vpd_pg83", &page);
        let found = of(&tree, disk, "disk");
        assert_eq!(get(&found, "ID_SERIAL"), "35001405f00000001");
        assert_eq!(get(&found, "ID_WWN"), "0x5001405f00000001");
        page.truncate(12);
        tree.attribute(unit, "vpd_pg83", &page);
        assert_eq!(
            get(&of(&tree, disk, "disk"), "ID_SERIAL"),
            "0QEMU_QEMU_HARDDISK_ser1"
        );

        let mut identify = vec![b' '; 572];
        identify[60 + 54..60 + 64].copy_from_slice(b"EQUMD SI K");
        identify[60 + 20..60 + 28].copy_from_slice(b"MQ000010");
        tree.attribute(unit, "vendor", "ATA     ")
            .attribute(unit, "vpd_pg89", &identify);
        let found = of(&tree, disk, "disk");
        assert_eq!(
            (get(&found, "ID_BUS"), get(&found, "ID_SERIAL")),
            ("ata", "QEMU_DISK_QM000001")
        );
    }

    #[test]
    fn usb_stick_has_an_identity() {
        let tree = Tree::new();
        let usb = "/devices/usb1/1-2";
        let unit = format!("{usb}/1-2:1.0/host3/target3:0:0/3:0:0:0");
        let disk = format!("{unit}/block/sdb");
        tree.device(usb, "usb")
            .device(&format!("{usb}/1-2:1.0"), "usb");
        tree.attribute(usb, "idVendor", "46f4")
            .attribute(usb, "serial", "1-0000");
        tree.device(&unit, "scsi").device(&disk, "block");
        tree.attribute(&unit, "vendor", "QEMU")
            .attribute(&unit, "model", "QEMU HARDDISK");
        let found = of(&tree, &disk, "disk");
        assert_eq!(get(&found, "ID_SERIAL"), "QEMU_QEMU_HARDDISK_1-0000-0:0");
        assert_eq!(get(&found, "ID_BUS"), "usb");
    }

    proptest! {
        #[test]
        fn hostile_pages_never_panic(page: Vec<u8>) {
            let _ = designators(&page);
            let _ = super::ata_text(&page, 27, 20);
        }
    }
}

//! Selection of the installation's target disk by a config.

use corten_values::DiskFacts;

use super::{bare, doc, document, good};
use crate::installation::Installation;

fn disk(name: &str, size: u64, transport: &str) -> DiskFacts {
    DiskFacts {
        dev_path: format!("/dev/{name}"),
        size,
        transport: transport.to_owned(),
        model: format!("Model {name}"),
        serial: format!("S-{name}"),
        bus_path: format!("/pci0000:00/{name}"),
        symlinks: vec![format!("/dev/disk/by-id/{name}")],
        ..DiskFacts::default()
    }
}

fn disks() -> Vec<DiskFacts> {
    const GB: u64 = 1_000_000_000;
    vec![
        DiskFacts {
            cdrom: true,
            ..disk("sr0", GB, "sata")
        },
        DiskFacts {
            rotational: true,
            ..disk("sda", 4000 * GB, "sata")
        },
        disk("sdb", 500 * GB, "sata"),
        disk("nvme0n1", 500 * GB, "nvme"),
        disk("mmcblk0", 32 * GB, "mmc"),
    ]
}

fn install(fields: &str) -> Installation {
    let text = good().replace("disk: /dev/vda", fields);
    document(&text).installation().unwrap()
}

#[test]
fn support_of_old_bios_is_a_part_of_the_installation() {
    assert!(!install("disk: /dev/sdb").is_active);
    let fields = "disk: /dev/sdb\n        legacyBIOSSupport: true";
    assert!(install(fields).is_active);
}

#[test]
fn installation_disk_is_chosen_by_device_link_or_selector() {
    for (fields, chosen) in [
        ("disk: /dev/sdb", "sdb"),
        ("disk: /dev/disk/by-id/nvme0n1", "nvme0n1"),
        ("diskSelector: {type: nvme}", "nvme0n1"),
        ("diskSelector: {type: hdd}", "sda"),
        ("diskSelector: {type: ssd}", "sdb"),
        ("diskSelector: {type: sd}", "mmcblk0"),
        ("diskSelector: {size: '<= 1TB'}", "sdb"),
        ("diskSelector: {size: '> 500GB'}", "sda"),
        ("diskSelector: {size: 32GB}", "mmcblk0"),
        (
            "diskSelector: {model: '*nvme*', size: '>= 100 GB'}",
            "nvme0n1",
        ),
        ("diskSelector: {serial: S-mmcblk0}", "mmcblk0"),
        ("diskSelector: {busPath: /pci0000:00/*}", "sda"),
    ] {
        let target = install(fields).disk;
        assert_eq!(
            target.choose(&disks()),
            Ok(format!("/dev/{chosen}")),
            "{fields}"
        );
    }
}

#[test]
fn missing_installation_disk_is_an_error_with_field_and_existing_disks() {
    for (fields, field) in [
        (
            "disk: /dev/vdz",
            "machine.install.disk: there is no disk /dev/vdz",
        ),
        (
            "diskSelector: {model: none}",
            "machine.install.diskSelector matches no disk",
        ),
        // A CD is chosen only by its device; the installer then refuses to write to it.
        (
            "diskSelector: {serial: S-sr0}",
            "machine.install.diskSelector matches no disk",
        ),
    ] {
        let why = install(fields).disk.choose(&disks()).unwrap_err();
        let all = "this machine has /dev/sda, /dev/sdb, /dev/nvme0n1, /dev/mmcblk0";
        assert_eq!(why, format!("{field}; {all}"));
    }
    let why = install("disk: /dev/vda").disk.choose(&[]).unwrap_err();
    assert!(why.ends_with("this machine has no writable disk"), "{why}");
}

#[test]
fn install_document_equals_the_old_form_and_an_empty_disk_requests_nothing() {
    let fields = "installer: {image: registry.example.org/installer:1}\n\
                  provisioning: {diskSelector: {match: 'disk.transport == \"nvme\"'}}";
    let cluster = "cluster: {controlPlane: {endpoint: 'https://10.0.0.1:6443'}}\n";
    let text = format!("{}{cluster}", bare("controlplane"));
    let with = format!("{text}{}", doc("UnattendedInstallConfig", fields));
    let found = document(&with).installation().unwrap();
    assert_eq!(found.disk.choose(&disks()).as_deref(), Ok("/dev/nvme0n1"));
    assert_eq!(
        found.image.as_deref(),
        Some("registry.example.org/installer:1")
    );
    assert!(found.wipe, "as the reference");
    assert!(found.restarts, "without reboot");
    let waits = with.replace("installer: {", "reboot: false\ninstaller: {");
    assert!(!document(&waits).installation().unwrap().restarts);
    assert_eq!(document(&text).installation(), None);
    let empty = good().replace("disk: /dev/vda", "disk: ''");
    assert_eq!(document(&empty).installation(), None);
    assert!(install("wipe: true\n        disk: /dev/vda").wipe);
    assert!(!install("disk: /dev/vda").wipe);
}

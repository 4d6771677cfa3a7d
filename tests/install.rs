//! Promises: one machine config installs a machine that was started from the ISO; the machine then starts from its disk
//! with that config, and is not installed again. A disk with content is left alone. An unattended machine installs itself.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::{fs, thread};

use qemu::{Bus, Disk, DiskMode, Firmware, Machine};
use serde_json::json;
use tests::client::generate_config_with;
use tests::disk::NodeDisk;
use tests::images;
use tests::metadata::Script;
use tests::node::{BOOT, Node, ORDERLY, SOON};
use tests::registry::Registry;

/// Size of a disk in GiB.
const DISK: u32 = 5;
/// Size of an SD card in GiB, a power of two. QEMU erases a larger one for minutes.
const CARD: u32 = 4;
/// Memory in MiB: the unpacked image is in memory during the installation.
const MEMORY: u32 = 1024;

fn from_iso(disk: &NodeDisk, firmware: Firmware) -> Node {
    let iso = images::image(".iso");
    disk.start(|machine: Machine| machine.firmware(firmware).memory_mib(MEMORY).cdrom(iso))
}

fn from_disk(disk: &NodeDisk, firmware: Firmware) -> Node {
    disk.start(|machine: Machine| machine.firmware(firmware).memory_mib(MEMORY))
}

fn switch_off(node: Node) {
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
}

/// Generates the configs of a cluster whose nodes are installed to this disk. Returns the config of its first node.
fn config(node: &Node, disk: &str) -> String {
    let more = ["--install-disk", disk, "--force"];
    generate_config_with(node.configs(), "https://127.0.0.1:6443", &more);
    let file = node.configs().join("controlplane.yaml");
    file.to_string_lossy().into_owned()
}

#[test]
#[ignore = "make test-vm"]
fn machine_is_installed_by_its_config_and_starts_from_its_disk() {
    is_installed("install", Bus::Virtio, "/dev/vda", Firmware::Uefi);
}

#[test]
#[ignore = "make test-vm"]
fn machine_is_installed_by_its_config_and_starts_from_its_disk_by_bios() {
    is_installed("install-bios", Bus::Virtio, "/dev/vda", Firmware::Bios);
}

#[test]
#[ignore = "make test-vm"]
fn nvme_disk_is_installed_and_started() {
    is_installed("install-nvme", Bus::Nvme, "/dev/nvme0n1", Firmware::Uefi);
}

#[test]
#[ignore = "make test-vm"]
fn sata_disk_is_installed_and_started() {
    is_installed("install-sata", Bus::Sata, "/dev/sda", Firmware::Uefi);
}

#[test]
#[ignore = "make test-vm"]
fn usb_disk_is_installed_and_started() {
    is_installed("install-usb", Bus::Usb, "/dev/sda", Firmware::Uefi);
}

#[test]
#[ignore = "make test-vm"]
fn sd_card_is_installed_and_started() {
    is_installed("install-sd", Bus::Sd, "/dev/mmcblk0", Firmware::Bios);
}

fn is_installed(name: &str, bus: Bus, device: &str, firmware: Firmware) {
    let size = if bus == Bus::Sd { CARD } else { DISK };
    let disk = NodeDisk::blank(name, size).on(bus);
    let node = from_iso(&disk, firmware);
    node.wait_maintenance();
    let missing = config(&node, "/dev/vdz");
    let refused = node.insecure().call(&["apply-config", "-f", &missing]);
    let refused = refused.expect_err("there is no such disk");
    assert!(refused.contains("machine.install.disk"), "{refused}");
    assert!(refused.contains(device), "{refused}");
    let file = config(&node, device);
    node.expect_reset(BOOT, || {
        node.insecure().must(&["apply-config", "-f", &file]);
    });
    // Firmware that starts the ISO again: the node finds its owner on the disk.
    node.ask(&node.admin(), &["version"], BOOT);
    let (partition, _) = node.mount("/system/state");
    assert!(partition.starts_with(device), "STATE is on {partition}");
    let before = node.ask(&node.admin(), &["get", "machineconfig", "-o", "yaml"], SOON);
    switch_off(node);

    let node = from_disk(&disk, firmware);
    node.ask(&node.admin(), &["version"], BOOT);
    let after = node.ask(&node.admin(), &["get", "machineconfig", "-o", "yaml"], SOON);
    let install = |text: &str| text.contains(&format!("disk: {device}"));
    assert!(install(&before) && install(&after), "{before}\n{after}");
    let system = node.ask(&node.admin(), &["get", "systemdisk", "system-disk"], SOON);
    let name = device.trim_start_matches("/dev/");
    assert!(system.contains(name), "{system}");
    // The boot loader counts the starts of the installed version, so the version can be upgraded.
    node.until("the verdict on the version of the disk", SOON, || {
        let refused = node.admin().call(&["rollback"]);
        let refused = refused.expect_err("there is no other version");
        let is_good = refused.contains("no other version");
        is_good.then_some(()).ok_or(refused)
    });
    switch_off(node);
}

#[test]
#[ignore = "make test-vm"]
fn disk_with_content_is_left_alone_without_wipe() {
    let disk = NodeDisk::blank("install-over", DISK);
    // The first superblock of an ext4, and some data of it.
    disk.fill(0xa5, 1024, 4096);
    let node = from_iso(&disk, Firmware::Uefi);
    node.wait_maintenance();
    let file = config(&node, "/dev/vda");
    let refused = node.insecure().call(&["apply-config", "-f", &file]);
    let refused = refused.expect_err("the disk is not empty");
    assert!(refused.contains("wipe: true"), "{refused}");
    let install = ["install", "--disk", "/dev/vda"];
    let refused = node.insecure().call(&install);
    let refused = refused.expect_err("the disk is not empty");
    assert!(refused.contains("is not empty"), "{refused}");
    node.wait_maintenance();
    // Without a config, the node waits for one, from its disk.
    node.expect_reset(BOOT, || {
        let wipe = [&install[..], &["--wipe"]].concat();
        let installed = node.insecure().call_within(BOOT, &wipe);
        assert!(installed.is_ok(), "{installed:?}");
    });
    node.wait_maintenance();
    node.insecure().must(&["apply-config", "-f", &file]);
    node.ask(&node.admin(), &["version"], SOON);
    switch_off(node);
    let node = from_disk(&disk, Firmware::Uefi);
    node.ask(&node.admin(), &["version"], BOOT);
    switch_off(node);
}

/// The rest of a config without an installation: the first disk in place of one by name, whatever is on it. The config
/// itself gives the registry's mirror its name.
const UNATTENDED: &str = "
machine: {install: {$patch: delete}}
---
apiVersion: v1alpha1
kind: StaticHostConfig
name: 10.0.2.2
hostnames: [mirror.corten.test]
---
apiVersion: v1alpha1
kind: UnattendedInstallConfig
reboot: false
installer: {image: IMAGE}
provisioning: {diskSelector: {match: 'disk.size > 1u * GiB'}}
---
";

#[test]
#[ignore = "make test-vm"]
fn unattended_install_over_the_network_takes_the_image_of_a_registry() {
    let disk = NodeDisk::blank("install-unattended", DISK);
    disk.fill(0xa5, 1024, 4096);
    let files = tempfile::tempdir().expect("a directory");
    let archive = images::image("-installer.tar");
    let (registry, image) = Registry::of_installer(files.path(), &archive, &images::version());
    let mirror = registry.mirror().replace("10.0.2.2", "mirror.corten.test");
    let patch = UNATTENDED.replace("IMAGE", &image) + &mirror;
    let more = ["--config-patch", &patch];
    generate_config_with(&disk.configs(), "https://127.0.0.1:6443", &more);
    let config = fs::read(disk.configs().join("controlplane.yaml")).expect("a config");
    let server = Script::new().answer("GET /config", config).serve();
    let mut boot = images::direct();
    let parameter = format!(" corten.config=http://10.0.2.2:{}/config", server.port());
    boot.append.push_str(&parameter);
    let node = disk.start(|machine| machine.memory_mib(MEMORY).direct(boot));
    let waits = "runs after the next start of this machine";
    node.vm.wait_console(waits, BOOT).expect("an installation");
    node.vm.qmp().reset().expect("a reset");
    node.ask(&node.admin(), &["version"], BOOT);
    let get = ["get", "unattendedinstallstatus", "-o", "yaml"];
    let status = node.ask(&node.admin(), &get, SOON);
    assert!(status.contains("phase: installed"), "{status}");
    let (partition, _) = node.mount("/system/state");
    assert!(partition.starts_with("/dev/vda"), "STATE is on {partition}");
    switch_off(node);
    let node = from_disk(&disk, Firmware::Uefi);
    node.ask(&node.admin(), &["version"], BOOT);
    switch_off(node);
}

/// Write speed in bytes per second at which an installation takes about a minute.
const SLOW: u64 = 1 << 20;
/// Bytes of an installation after which its disk is unplugged.
const SOME: u64 = 8 << 20;

#[test]
#[ignore = "make test-vm"]
fn disk_that_disappears_ends_its_installation_and_another_disk_is_installed() {
    let disk = NodeDisk::blank("install-unplugged", DISK).on(Bus::Usb);
    let other = NodeDisk::blank("install-other", DISK);
    let iso = images::image(".iso");
    let node = disk.start(|machine| {
        let machine = machine.firmware(Firmware::Uefi).memory_mib(MEMORY);
        let other = Disk::qcow2(other.path()).mode(DiskMode::Direct);
        machine.disk(other).cdrom(iso)
    });
    node.wait_maintenance();
    let qmp = node.vm.qmp();
    let limit = json!({"device": "disk0", "bps": 0, "bps_rd": 0, "bps_wr": SLOW, "iops": 0, "iops_rd": 0, "iops_wr": 0});
    qmp.execute("block_set_io_throttle", &limit)
        .expect("a slow disk");
    let refused = thread::scope(|scope| {
        let install = || {
            let install = ["install", "--disk", "/dev/sda"];
            node.insecure().call_within(BOOT, &install)
        };
        let install = scope.spawn(install);
        node.until("a part of the installation", BOOT, || {
            let statistics = qmp.execute("query-blockstats", &json!({}));
            let statistics = statistics.map_err(|error| error.to_string())?;
            let drives = statistics.as_array().into_iter().flatten();
            let mut of_disk = drives.filter(|drive| drive["device"] == "disk0");
            let written = of_disk.find_map(|drive| drive["stats"]["wr_bytes"].as_u64());
            let written = written.ok_or(format!("no such drive: {statistics}"))?;
            (written >= SOME).then_some(()).ok_or(format!("{written}"))
        });
        qmp.device_del("device-disk0", SOON).expect("no disk");
        install.join().expect("the call of the installation")
    });
    let refused = refused.expect_err("the disk is gone");
    assert!(refused.contains("/dev/sda"), "{refused}");
    node.expect_reset(BOOT, || {
        let install = ["install", "--disk", "/dev/vda"];
        let installed = node.insecure().call_within(BOOT, &install);
        assert!(installed.is_ok(), "{installed:?}");
    });
    node.wait_maintenance();
}

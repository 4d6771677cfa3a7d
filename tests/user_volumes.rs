//! Promise: user volumes are made on the disks that their selectors choose, and found again at
//! every boot. All other data on the disks stays untouched.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use qemu::{Disk, DiskMode, Machine};
use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, ORDERLY, SOON};
use tests::workspace;

const GIB: u64 = 1 << 30;

/// A partition, an encrypted partition, one without a file system, a swap partition, a directory;
/// two whole disks, one of them encrypted; and a partition and a whole disk on a disk that is not
/// empty.
const VOLUMES: &str = "\
apiVersion: v1alpha1
kind: UserVolumeConfig
name: data
provisioning: {diskSelector: {match: disk.serial == 'corten-disk1'}, maxSize: 1GiB}
mount: {disableAccessTime: true}
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: vault
provisioning: {diskSelector: {match: disk.serial == 'corten-disk1'}, maxSize: 400MiB}
encryption:
  provider: luks2
  keys: [{slot: 0, static: {passphrase: correct horse}}]
---
apiVersion: v1alpha1
kind: RawVolumeConfig
name: osd
provisioning: {diskSelector: {match: disk.serial == 'corten-disk1'}, maxSize: 100MiB}
---
apiVersion: v1alpha1
kind: SwapVolumeConfig
name: pages
provisioning: {diskSelector: {match: disk.serial == 'corten-disk1'}, maxSize: 64MiB}
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: scratch
volumeType: directory
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: foreign
provisioning: {diskSelector: {match: disk.serial == 'corten-disk2'}}
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: whole
volumeType: disk
provisioning: {diskSelector: {match: disk.serial == 'corten-disk3'}}
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: whole-and-encrypted
volumeType: disk
provisioning: {diskSelector: {match: disk.serial == 'corten-disk4'}}
encryption:
  provider: luks2
  keys: [{slot: 0, static: {passphrase: correct horse}}]
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: others
volumeType: disk
provisioning: {diskSelector: {match: 'disk.serial in [\"corten-disk0\", \"corten-disk2\"]'}}
";

/// A sparse disk of this length for the machine, with these bytes at this offset.
fn disk(name: &str, length: u64, at: u64, bytes: &[u8]) -> PathBuf {
    let path = workspace::target().join("vm").join(name);
    let file = File::create(&path).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(bytes, at).unwrap();
    path
}

fn with_disks(machine: Machine, disks: &[&Path]) -> Machine {
    disks.iter().fold(machine, |machine, path| {
        machine.disk(Disk::raw(*path).mode(DiskMode::Direct))
    })
}

/// The status of a volume once it contains all of these texts.
fn status(node: &Node, volume: &str, wanted: &[&str]) -> String {
    let admin = node.admin();
    node.until(&format!("{volume}: {wanted:?}"), SOON, || {
        let text = admin.call(&["get", "volumestatus", volume, "-o", "yaml"])?;
        match wanted.iter().find(|part| !text.contains(**part)) {
            Some(part) => Err(format!("no {part} in {text}")),
            None => Ok(text),
        }
    })
}

/// The line with the id of the file system.
fn uuid(status: &str) -> String {
    let lines = status.lines().map(str::trim);
    let mut found = lines.filter(|line| line.starts_with("uuid: "));
    found.next().unwrap().to_owned()
}

/// The status of a volume that is ready on the whole disk with this serial number.
fn whole_disk(node: &Node, volume: &str, serial: &str) -> String {
    let status = status(node, volume, &["phase: ready", "type: disk", "uuid: "]);
    let disk = node.ask(
        &node.admin(),
        &["get", "disks", &disk_of(&status), "-o", "yaml"],
        SOON,
    );
    assert!(disk.contains(serial), "{status}{disk}");
    status
}

/// The kernel's name of the disk of a whole-disk volume.
fn disk_of(status: &str) -> String {
    let mut lines = status.lines().map(str::trim);
    let found = lines.find_map(|line| line.strip_prefix("location: /dev/"));
    found.unwrap().to_owned()
}

/// A file system and its LUKS header have different labels, and each link by label leads to one
/// device.
fn labels_are_of_one_device(node: &Node) {
    let admin = node.admin();
    let wanted = [
        "u-data",
        "u-vault",
        "luks2-u-vault",
        "u-whole",
        "luks2-u-whole-and-encrypted",
    ];
    // udevd gets an event when a written device is closed.
    node.until("links by label", SOON, || {
        let text = admin.call(&["get", "blocksymlinks", "-o", "yaml"])?;
        let links = text.lines().map(str::trim);
        let links = links.filter_map(|line| line.strip_prefix("- /dev/disk/by-label/"));
        let links: Vec<&str> = links.filter(|label| label.contains("u-")).collect();
        let times = |label: &str| links.iter().filter(|link| **link == label).count();
        // The label of a long name is derived from it.
        let is_one_each = links.iter().all(|link| times(link) == 1) && links.len() == 6;
        if is_one_each && wanted.iter().all(|label| times(label) == 1) {
            Ok(())
        } else {
            Err(format!("{links:?}"))
        }
    });
}

/// Checks that all of [`VOLUMES`] are ready, two of them on the disks with these serial numbers;
/// returns the ids of the file systems.
fn all_are_there(node: &Node, whole: &str, encrypted: &str) -> [String; 4] {
    let data = status(
        node,
        "u-data",
        &["phase: ready", "filesystem: xfs", "uuid: "],
    );
    let (device, size) = node.mount("/var/mnt/data");
    assert!(
        device.starts_with("/dev/vd") && device.ends_with('1'),
        "{device}"
    );
    assert!((0.9..1.1).contains(&size), "{size} GB");
    let vault = status(
        node,
        "u-vault",
        &[
            "phase: ready",
            "encryptionProvider: luks2",
            "filesystem: xfs",
            "uuid: ",
        ],
    );
    let (device, _) = node.mount("/var/mnt/vault");
    assert_eq!(device, "/dev/mapper/luks2-u-vault");
    status(node, "r-osd", &["phase: ready"]);
    status(node, "s-pages", &["phase: ready", "filesystem: swap"]);
    status(node, "u-scratch", &["phase: ready", "type: directory"]);
    let why = "it is not empty";
    status(node, "u-foreign", &["phase: failed", why]);
    let console = node.vm.console().text();
    assert!(
        console.contains("volume u-foreign: "),
        "the console is silent"
    );
    let others = status(node, "u-others", &["phase: failed", "type: disk"]);
    let others: Vec<&str> = others.split_whitespace().collect();
    let others = others.join(" ");
    for why in ["it carries the node", "it is not empty"] {
        assert!(others.contains(why), "{others}");
    }
    let on_whole = whole_disk(node, "u-whole", whole);
    let (device, _) = node.mount("/var/mnt/whole");
    assert_eq!(device, format!("/dev/{}", disk_of(&on_whole)));
    let on_encrypted = whole_disk(node, "u-whole-and-encrypted", encrypted);
    assert!(on_encrypted.contains("encryptionProvider: luks2"));
    let (device, _) = node.mount("/var/mnt/whole-and-encrypted");
    assert_eq!(device, "/dev/mapper/luks2-u-whole-and-encrypted");
    labels_are_of_one_device(node);
    [&data, &vault, &on_whole, &on_encrypted].map(|status| uuid(status))
}

/// A wipe of the disk with this serial number is refused while the disk is in use. After its volume
/// is removed, the disk is wiped and the volume made anew.
fn a_whole_disk_is_wiped_and_made_anew(node: &Node, serial: &str) {
    let admin = node.admin();
    let before = whole_disk(node, "u-whole", serial);
    let name = disk_of(&before);
    let refused = admin.call(&["wipe", "disk", &name]).unwrap_err();
    assert!(refused.contains("volume u-whole"), "{refused}");
    node.apply_patch("machine: {}\n");
    node.until("u-whole gone", SOON, || {
        let text = admin.call(&["get", "volumestatus"])?;
        if text.contains("u-whole") {
            Err(text)
        } else {
            Ok(())
        }
    });
    node.ask(&admin, &["wipe", "disk", &name], SOON);
    node.apply_patch(&VOLUMES.replace("corten-disk3", serial));
    let made = whole_disk(node, "u-whole", serial);
    assert_ne!(uuid(&made), uuid(&before));
}

#[test]
#[ignore = "make test-vm"]
fn user_volumes_are_created_found_again_and_foreign_disks_untouched() {
    let node_disk = NodeDisk::new("user-volumes", 4);
    let data = disk("user-volumes-data.raw", 3 * GIB, 0, &[]);
    // Offset of ext4's magic number in the superblock.
    let foreign = disk("user-volumes-foreign.raw", GIB, 1080, &[0x53, 0xef]);
    let whole = disk("user-volumes-whole.raw", GIB, 0, &[]);
    let encrypted = disk("user-volumes-encrypted.raw", 2 * GIB, 0, &[]);
    let disks = [&*data, &foreign, &whole, &encrypted];
    let node = node_disk.start(|machine| with_disks(machine, &disks));
    node.configure();
    node.apply_patch(VOLUMES);
    let all = || all_are_there(&node, "corten-disk3", "corten-disk4");
    let before = all();

    // A volume that the config no longer has is unmounted; its data is still there when the config
    // has it again.
    node.apply_patch("machine: {}\n");
    let admin = node.admin();
    node.until("u-data gone", SOON, || {
        let text = admin.call(&["get", "volumestatus"])?;
        let mounts = admin.call(&["mounts"])?;
        if text.contains("u-data") || mounts.contains("/var/mnt/") {
            Err(format!("{text}{mounts}"))
        } else {
            Ok(())
        }
    });
    let found = node.ask(&admin, &["get", "discoveredvolumes"], SOON);
    assert!(found.contains("u-data"), "{found}");
    node.apply_patch(VOLUMES);
    assert_eq!(all(), before);

    node.expect_reset(ORDERLY, || {
        let _maybe_answered = admin.call(&["reboot", "--wait=false"]);
    });
    node.ask(&admin, &["version"], BOOT);
    assert_eq!(all(), before);
    node.ask(&admin, &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);

    // The two whole disks swap names and numbers, and they are larger.
    for grown in [&whole, &encrypted] {
        let file = File::options().write(true).open(grown).unwrap();
        file.set_len(4 * GIB).unwrap();
    }
    let disks = [&*data, &foreign, &encrypted, &whole];
    let node = node_disk.start(|machine| with_disks(machine, &disks));
    let admin = node.admin();
    node.ask(&admin, &["version"], BOOT);
    assert_eq!(all_are_there(&node, "corten-disk4", "corten-disk3"), before);
    for target in ["/var/mnt/whole", "/var/mnt/whole-and-encrypted"] {
        node.until("a grown file system", SOON, || {
            let (_, size) = node.mount(target);
            if (4.0..4.4).contains(&size) {
                Ok(())
            } else {
                Err(format!("{target}: {size} GB"))
            }
        });
    }
    a_whole_disk_is_wiped_and_made_anew(&node, "corten-disk4");
    node.ask(&admin, &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);

    // The foreign disk is unchanged to the byte.
    let mut expected = vec![0; usize::try_from(GIB).unwrap()];
    expected[1080..1082].copy_from_slice(&[0x53, 0xef]);
    assert!(std::fs::read(&foreign).unwrap() == expected);
}

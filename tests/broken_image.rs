//! Promise: a damaged image reports its damage and reboots; it never hangs and never runs in part.
//! The API is not available here: the tests read the console and QEMU's report of the reset.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::time::Duration;

use qemu::DirectBoot;
use tests::initramfs::{self, Entry};
use tests::node::{BOOT, Node};
use tests::{images, workspace};

/// The prefix of every failure of `init`.
const COMPLAINT: &str = "cannot boot: ";
/// The countdown is ten seconds; the rest is for a slow host.
const COUNTDOWN: Duration = Duration::from_secs(60);

/// Boots the image with a changed initramfs; returns init's error message.
fn boot(name: &str, change: impl FnOnce(&mut Vec<Entry>)) -> String {
    let image = images::direct();
    let mut entries = initramfs::read(image.initrd.as_deref().unwrap());
    change(&mut entries);
    let dir = workspace::target()
        .join("vm")
        .join(format!("{name}-initramfs"));
    std::fs::create_dir_all(&dir).unwrap();
    let initrd = dir.join("initramfs");
    initramfs::write(&initrd, &entries);
    let node = Node::start(name, |m| {
        m.direct(DirectBoot {
            initrd: Some(initrd),
            ..image
        })
    });
    node.expect_reset(BOOT + COUNTDOWN, || {
        node.vm.wait_console(COMPLAINT, BOOT).unwrap();
    });
    let console = node.vm.console().text();
    let (_, complaint) = console.split_once(COMPLAINT).unwrap();
    complaint.lines().next().unwrap_or_default().to_owned()
}

fn rootfs(entries: &mut [Entry]) -> &mut Entry {
    entries
        .iter_mut()
        .find(|entry| entry.name == "rootfs.squashfs")
        .unwrap()
}

#[test]
#[ignore = "make test-vm"]
fn missing_rootfs_is_named_and_reboots() {
    let complaint = boot("broken-missing", |entries| {
        entries.retain(|e| e.name != "rootfs.squashfs");
    });
    assert!(
        complaint.contains("/rootfs.squashfs is missing"),
        "{complaint}"
    );
    assert!(complaint.contains("SHA256SUMS"), "no remedy: {complaint}");
}

#[test]
#[ignore = "make test-vm"]
fn truncated_rootfs_is_named_and_reboots() {
    let complaint = boot("broken-truncated", |entries| {
        let data = &mut rootfs(entries).data;
        data.truncate(data.len() / 2);
    });
    assert!(complaint.contains("/rootfs.squashfs"), "{complaint}");
}

#[test]
#[ignore = "make test-vm"]
fn overwritten_rootfs_is_named_and_reboots() {
    let complaint = boot("broken-overwritten", |entries| {
        // The superblock is intact, so that only a check of the content finds the damage.
        let data = &mut rootfs(entries).data;
        data[4096..].fill(0x5a);
    });
    assert!(
        complaint.contains("/rootfs.squashfs") || complaint.contains("/usr/bin/init"),
        "{complaint}"
    );
}

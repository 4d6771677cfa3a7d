//! Disks and machines for tests with Secure Boot.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use qemu::{Disk, Firmware};

use crate::node::{BOOT, Node};
use crate::{images, workspace};

/// Partition 1 of an image in mtools' syntax.
const ESP: &str = "@@1M";
/// The published development keys, which sign the image under test.
pub const KEYS: &str = "kernel-config/keys/development";
/// Size in bytes of a disk with room for a node's volumes and for installers.
const ROOMY: u64 = 4 << 30;

/// A copy of the image with the files that enrol its keys, which the builder omits for published keys.
///
/// # Panics
/// The image has not been built, or this machine lacks mtools or room.
#[must_use]
pub fn disk_that_enrols(name: &str) -> PathBuf {
    let directory = workspace::target().join("vm");
    std::fs::create_dir_all(&directory).expect("a directory for the disks");
    let path = directory.join(format!("{name}.raw"));
    std::fs::copy(images::image(".raw"), &path).expect("a copy of the image");
    let file = File::options().write(true).open(&path);
    let enlarged = file.and_then(|file| file.set_len(ROOMY));
    enlarged.expect("a sparse disk");
    on_esp(&path, "mmd", &["::loader/keys", "::loader/keys/auto"]);
    for name in ["PK.auth", "KEK.auth", "db.auth"] {
        let update = workspace::root().join(KEYS).join(name);
        put(&path, &update, &format!("loader/keys/auto/{name}"));
    }
    path
}

/// Copies `file` to `target` on the EFI partition of `disk`, replacing an existing file.
///
/// # Panics
/// mtools cannot do it.
pub fn put(disk: &Path, file: &Path, target: &str) {
    let (file, target) = (file.display().to_string(), format!("::{target}"));
    on_esp(disk, "mcopy", &["-o", &file, &target]);
}

/// Runs one of the mtools on the EFI partition of `disk`.
///
/// # Panics
/// The tool fails.
pub fn on_esp(disk: &Path, tool: &str, arguments: &[&str]) {
    let mut command = Command::new(tool);
    command.arg("-i").arg(format!("{}{ESP}", disk.display()));
    let status = command.args(arguments).status().expect("mtools");
    assert!(status.success(), "{command:?}: {status}");
}

/// Starts a machine whose firmware has no keys yet.
#[must_use]
pub fn start(name: &str, disk: &Path) -> Node {
    let disk = Disk::raw(disk);
    Node::start(name, |machine| {
        machine
            .firmware(Firmware::SecureBoot)
            .disk(disk)
            .memory_mib(1024)
    })
}

/// Waits until systemd-boot has enrolled the keys, after which it restarts the machine.
///
/// # Panics
/// The machine does not restart.
pub fn enrolled(node: &Node) {
    node.expect_reset(BOOT, || ());
}

//! Makes the image's directories writable that pods write to, such as the installers of network plugins. Each gets an
//! overlay whose changes are kept on EPHEMERAL.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use corten_base::{console, durable};
use corten_sys::mount::{MountAttrFlags, Unattached};

/// Directory of the changes, the same as the reference's.
const CHANGES: &str = "/var/system/overlays";

/// Each directory, with the name of its changes below [`CHANGES`].
const TABLE: [(&str, &str); 3] = [
    ("/opt", "opt"),
    ("/etc/cni", "etc-cni"),
    ("/etc/kubernetes", "etc-kubernetes"),
];

/// Mounts the overlays. A directory whose mount fails stays read-only, and the console says so.
pub fn mount_all() {
    for (target, name) in TABLE {
        if let Err(error) = mount(Path::new(target), name, Path::new(CHANGES)) {
            console::warn(&format!("{target} cannot be written to: {error}"));
        }
    }
}

fn mount(target: &Path, name: &str, changes: &Path) -> io::Result<()> {
    // The call is repeated once a late disk has appeared.
    if durable::is_volume(target) {
        return Ok(());
    }
    let upper = changes.join(format!("{name}-diff"));
    let work = changes.join(format!("{name}-workdir"));
    for directory in [&upper, &work] {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o755).create(directory)?;
    }
    let options = [
        ("lowerdir+", target),
        ("upperdir", &upper),
        ("workdir", &work),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Unattached::new("overlay", "corten-overlay", &options, attributes)?.attach(target)
}

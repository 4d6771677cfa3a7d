//! Directories of the image that programs in pods write to, such as the installers of network plugins: an overlay
//! each, whose changes are kept on EPHEMERAL.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use corten_base::console;
use corten_sys::mount::{MountAttrFlags, Unattached};

/// Where the changes are, as with the reference.
const CHANGES: &str = "/var/system/overlays";

/// The directories, and what their changes are called.
const TABLE: [(&str, &str); 3] = [
    ("/opt", "opt"),
    ("/etc/cni", "etc-cni"),
    ("/etc/kubernetes", "etc-kubernetes"),
];

/// Mounts them; what cannot be mounted stays as the image has it, and the console says so.
pub fn mount_all() {
    for (target, name) in TABLE {
        if let Err(error) = mount(Path::new(target), name, Path::new(CHANGES)) {
            console::warn(&format!("{target} cannot be written to: {error}"));
        }
    }
}

fn mount(target: &Path, name: &str, changes: &Path) -> io::Result<()> {
    // A second time: a disk that came late was not there at the first.
    if is_mount_point(target)? {
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

/// Whether another file system begins here than that of the directory above.
fn is_mount_point(path: &Path) -> io::Result<bool> {
    let above = path.parent().unwrap_or(path);
    Ok(fs::metadata(path)?.dev() != fs::metadata(above)?.dev())
}

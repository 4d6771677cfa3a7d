//! Replaces the files of `/proc` that show the host's values, in a container.

use std::fs;
use std::io;
use std::path::Path;

use corten_sys::mount::{self, MountFlags};

use crate::mode::CONTAINER;
use crate::mounts::STRICT;

/// Mount point of a `/proc` whose files no others cover.
const WHOLE_PROC: &str = "/run/proc";

/// Replaces kernel files that show the host's values by files of the node, in a container. The command line then has
/// the platform and the container's host name. The other file is the boot ID. The kernel's own files stay at
/// `/run/proc`.
///
/// # Errors
/// The text names the failed operation.
pub fn replace_kernels_files() -> Result<(), String> {
    mount_whole_proc().map_err(|error| format!("cannot mount proc on {WHOLE_PROC}: {error}"))?;
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let hostname = read("/proc/sys/kernel/hostname")?;
    // The kernel generates another UUID at each read.
    let id = read("/proc/sys/kernel/random/uuid")?;
    for (own, text, kernels) in [
        ("/run/cmdline", parameters(hostname.trim()), "/proc/cmdline"),
        ("/run/boot-id", id, "/proc/sys/kernel/random/boot_id"),
    ] {
        fs::write(own, text).map_err(|error| format!("cannot write {own}: {error}"))?;
        mount::mount(Path::new(own), Path::new(kernels), "", MountFlags::BIND, "")
            .map_err(|error| format!("cannot mount {own} on {kernels}: {error}"))?;
    }
    Ok(())
}

/// The kernel refuses `/proc` to a pod with a user namespace while files cover parts of every `/proc` that it would inherit
/// (user_namespaces(7)). The node keeps one without such files.
fn mount_whole_proc() -> io::Result<()> {
    fs::create_dir_all(WHOLE_PROC)?;
    mount::mount(Path::new("proc"), Path::new(WHOLE_PROC), "proc", STRICT, "")
}

fn parameters(hostname: &str) -> String {
    let mut text = format!("corten.platform={CONTAINER}");
    // `(none)` is the kernel's placeholder for no name. A name must not add parameters to the command line.
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if !hostname.is_empty() && hostname != "(none)" && hostname.chars().all(is_name) {
        text.push_str(" corten.hostname=");
        text.push_str(hostname);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmdline::Cmdline;

    #[test]
    fn hostile_host_names_add_no_kernel_parameters() {
        let named = Cmdline::parse(&parameters("cp-1.example"));
        assert_eq!(named.platform(), "container");
        assert_eq!(named.ours("hostname"), Some("cp-1.example"));
        for hostile in ["", "(none)", "a corten.recover=maintenance", "a\nb", "\"a"] {
            let line = parameters(hostile);
            assert_eq!(line, "corten.platform=container\n", "{hostile:?}");
        }
    }
}

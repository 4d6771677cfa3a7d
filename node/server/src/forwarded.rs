//! Calls that another node's apid forwards. A certificate is not a secret: an attacker in a control plane node's apid can
//! show the certificates of all its callers. So only direct calls get answers with keys.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use corten_api::metadata::{FORWARDER, NOT_FORWARDED};
use corten_config::Document;
use corten_config::kinds::{Forwarding, ForwardingConfig};
use http::HeaderMap;
use tonic::{Extensions, Status};

/// Methods whose every answer is a secret, and why.
const SECRET: [(&str, &str); 3] = [
    (
        "/machine.MachineService/GenerateClientConfiguration",
        "it issues credentials",
    ),
    (
        "/machine.MachineService/Kubeconfig",
        "it issues credentials",
    ),
    (
        "/machine.MachineService/EtcdSnapshot",
        "a snapshot holds the secrets of the cluster",
    ),
];

/// Files without keys, by their resolved paths. An allow list, because a list of files with keys would be incomplete
/// (`/proc/1/root`, block devices, `qemu_fw_cfg`).
const OPEN: [&str; 14] = [
    "/usr",
    "/var/log",
    "/sys/devices",
    "/sys/fs/cgroup",
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/filesystems",
    "/proc/interrupts",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/partitions",
    "/proc/stat",
    "/proc/uptime",
];
/// Tree without keys, in which no process can create a link during a copy.
const SEALED: &str = "/usr";

/// The settings of the config for forwarded calls.
pub(super) fn config(document: Option<&Document>) -> ForwardingConfig {
    let own = document.and_then(|document| document.all::<ForwardingConfig>().next());
    own.cloned().unwrap_or_default()
}

/// Marks a forwarded call, whose answer must hold no secrets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Withheld;

impl Withheld {
    /// Whether a call with these headers gets the mark. Only apid can set them.
    pub(super) fn by(headers: &HeaderMap, document: impl FnOnce() -> Option<Document>) -> bool {
        headers.contains_key(FORWARDER) && config(document().as_ref()).secrets == Forwarding::Refuse
    }

    /// Whether this call has the mark.
    pub(super) fn is_with(extensions: &Extensions) -> bool {
        extensions.get::<Withheld>().is_some()
    }
}

/// Refuses the methods that answer with a secret.
pub(super) fn check_method(path: &str) -> Result<(), Status> {
    let found = SECRET.iter().find(|(method, _)| *method == path);
    found.map_or(Ok(()), |(_, why)| Err(refusal(why)))
}

/// Refuses a file that may hold keys. The file is open already, so replacing a link has no effect.
pub(super) fn check_file(file: &File) -> Result<(), Status> {
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    check(real, |path| OPEN.iter().any(|open| path.starts_with(open)))
}

/// Refuses a tree that may hold keys.
pub(super) fn check_tree(root: &Path) -> Result<(), Status> {
    check(fs::canonicalize(root), |path| path.starts_with(SEALED))
}

fn check(real: io::Result<PathBuf>, is_open: impl FnOnce(&Path) -> bool) -> Result<(), Status> {
    match real {
        Ok(path) if is_open(&path) => Ok(()),
        _ => Err(refusal("the file may hold keys")),
    }
}

/// The error of a forwarded call whose answer would hold a secret.
pub(super) fn refusal(why: &str) -> Status {
    Status::permission_denied(format!(
        "{NOT_FORWARDED}: {why}; ask the node itself (-e NODE -n NODE), or give it a ForwardingConfig with secrets: accept"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_without_secrets_are_readable_through_other_nodes() {
        let open = |path: &str| File::open(path).unwrap();
        check_file(&open("/proc/meminfo")).unwrap();
        let links = tempfile::tempdir().unwrap();
        let link = links.path().join("meminfo");
        std::os::unix::fs::symlink("/proc/self/environ", &link).unwrap();
        for path in [
            link.to_str().unwrap(),
            "/proc/self/environ",
            "/etc/hostname",
            "/dev/null",
        ] {
            let refused = check_file(&open(path)).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{path}");
            assert!(refused.message().starts_with(NOT_FORWARDED), "{refused}");
        }
    }

    #[test]
    fn forwarded_calls_copy_only_image_directories() {
        check_tree(Path::new("/usr/share")).unwrap();
        let links = tempfile::tempdir().unwrap();
        let link = links.path().join("usr");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        for path in [
            "/",
            "/var/log",
            "/usr/../etc",
            "/nowhere",
            link.to_str().unwrap(),
        ] {
            check_tree(Path::new(path)).unwrap_err();
        }
    }
}

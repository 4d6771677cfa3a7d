//! Calls that another node's apid hands on. A certificate is no secret: whoever takes a control plane node's apid over
//! can show those of all callers it has seen. So what holds keys is given to callers themselves alone.

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
        "it makes credentials",
    ),
    ("/machine.MachineService/Kubeconfig", "it makes credentials"),
    (
        "/machine.MachineService/EtcdSnapshot",
        "a snapshot holds the secrets of the cluster",
    ),
];

/// Files without keys, by where they really are. Elsewhere one may hold some: a list of those that do would not be
/// complete (`/proc/1/root`, block devices, `qemu_fw_cfg`).
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
/// Trees without keys, in which nobody can put a link while they are copied.
const SEALED: &str = "/usr";

/// What the config says of calls that other nodes hand on.
pub(super) fn config(document: Option<&Document>) -> ForwardingConfig {
    let own = document.and_then(|document| document.all::<ForwardingConfig>().next());
    own.cloned().unwrap_or_default()
}

/// Goes with a call whose caller gets no secrets, as it came by another node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Withheld;

impl Withheld {
    /// Whether it goes with a call that has these headers; apid has set them.
    pub(super) fn by(headers: &HeaderMap, document: impl FnOnce() -> Option<Document>) -> bool {
        headers.contains_key(FORWARDER) && config(document().as_ref()).secrets == Forwarding::Refuse
    }

    /// Whether it goes with this call.
    pub(super) fn is_with(extensions: &Extensions) -> bool {
        extensions.get::<Withheld>().is_some()
    }
}

/// Refuses the methods that answer with a secret.
pub(super) fn check_method(path: &str) -> Result<(), Status> {
    let found = SECRET.iter().find(|(method, _)| *method == path);
    found.map_or(Ok(()), |(_, why)| Err(refusal(why)))
}

/// Refuses a file that may hold keys. It is open: a link that changes meanwhile changes nothing.
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

/// What a call is told that would get a secret.
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

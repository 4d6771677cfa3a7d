//! The first phase: limits, directories and the machine ID, which all other phases need.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use corten_base::console;
use corten_base::durable;
use corten_base::mode::{Ability, Mode};
use corten_kubernetes::pods::{AUDIT_LOG, HOST_CONFIG, HOST_SECRETS};
use corten_kubernetes::{API_SERVER_UID, ETCD_UID};
use corten_supervisor::{
    APID_PKI, APID_UID, DEV_LOG_SOCKET, NAMES, SANDBOX_STAGE, SYSLOGD_UID, TRUSTD_PKI, TRUSTD_UID,
};
use corten_sys::{host, power};
use uuid::Uuid;

/// Limit of open files of a process; containers inherit it. Same as the reference's.
const OPEN_FILES: u64 = 1_048_576;

/// Common name of the published module-signing key.
const DEVELOPMENT_KEY: &str = "Corten development module signing key";

/// Namespace of the derived machine IDs (a random UUID of ours).
const MACHINE_IDS: Uuid = Uuid::from_u128(0x6f3c_91d0_58c2_4e0b_9a57_2b1d_c04e_77a3);

/// A directory that must exist.
struct Directory {
    path: &'static str,
    mode: u32,
    owner: u32,
}

const fn directory(path: &'static str, mode: u32, owner: u32) -> Directory {
    Directory { path, mode, owner }
}

const DIRECTORIES: [Directory; 25] = [
    directory(NAMES, 0o755, 0),
    // Only apid may reach machined's socket.
    directory("/run/machined", 0o710, APID_UID),
    directory(APID_PKI, 0o700, APID_UID),
    directory(TRUSTD_PKI, 0o700, TRUSTD_UID),
    directory("/run/syslogd", 0o755, SYSLOGD_UID),
    // machined writes these files; syslogd cannot change them.
    directory("/run/logging", 0o755, 0),
    directory(SANDBOX_STAGE, 0o700, 0),
    directory("/run/udev", 0o755, 0),
    directory("/run/containerd", 0o711, 0),
    directory(corten_logind::DIRECTORY, 0o700, 0),
    directory("/run/lock", 0o755, 0),
    directory("/var/lib", 0o755, 0),
    directory("/var/lib/containerd", 0o700, 0),
    directory("/var/lib/cni", 0o700, 0),
    // Log directories of pods are below it, made by root.
    directory("/var/log", 0o755, SYSLOGD_UID),
    directory("/var/mnt", 0o755, 0),
    // Data of Kubernetes. The directories exist without a cluster, too: the config may come later.
    directory("/var/lib/etcd", 0o700, ETCD_UID),
    directory("/var/lib/kubelet", 0o700, 0),
    directory("/var/log/audit", 0o711, 0),
    directory(AUDIT_LOG, 0o700, API_SERVER_UID),
    directory("/var/log/containers", 0o755, 0),
    directory("/var/log/pods", 0o755, 0),
    directory("/run/kubernetes", 0o755, 0),
    directory(HOST_CONFIG, 0o755, 0),
    directory(HOST_SECRETS, 0o755, 0),
];

/// Makes the directories of the table, and two links.
///
/// # Errors
/// The text names the directory.
pub fn make_directories() -> Result<(), String> {
    for entry in &DIRECTORIES {
        make(entry).map_err(|error| format!("cannot make {}: {error}", entry.path))?;
    }
    for (target, link) in [("/run", "/var/run"), (DEV_LOG_SOCKET, "/dev/log")] {
        match symlink(target, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                console::warn(&format!("cannot link {link} to {target}: {error}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn make(entry: &Directory) -> io::Result<()> {
    let path = Path::new(entry.path);
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(entry.mode))?;
    // The group may traverse /run/machined. Its owner stays root, so that apid cannot change it.
    let owner = if entry.path == "/run/machined" {
        0
    } else {
        entry.owner
    };
    chown(path, Some(owner), Some(entry.owner))
}

/// Raises the limit of open files, and has the kernel send ctrl-alt-del as a signal.
pub fn set_limits() {
    if let Err(error) = host::set_open_files_limit(OPEN_FILES) {
        console::warn(&format!("cannot raise the limit of open files: {error}"));
    }
    if Mode::now().can(Ability::PowerButton)
        && let Err(error) = power::soften_ctrl_alt_del()
    {
        console::warn(&format!(
            "cannot make ctrl-alt-del a signal, so it resets the machine at once: {error}"
        ));
    }
}

/// File of a generated ID on STATE.
const MACHINE_ID: &str = "machine-id";

/// Writes `/run/machine-id`. The ID is stable if the firmware has a UUID, or if `state`, the directory of STATE, is a
/// volume; otherwise it is random.
///
/// # Errors
/// The file cannot be written.
pub fn identify_machine(state: &Path) -> io::Result<String> {
    let firmware = match Mode::now().can(Ability::Firmware) {
        true => fs::read_to_string("/sys/class/dmi/id/product_uuid").unwrap_or_default(),
        false => String::new(),
    };
    let id = machine_id(firmware.trim()).unwrap_or_else(|| kept_id(state));
    fs::write("/run/machine-id", format!("{id}\n"))?;
    Ok(id)
}

/// The ID that an earlier boot generated, or a new one, which is saved if possible. The node's name in its cluster
/// depends on it.
fn kept_id(state: &Path) -> String {
    if !durable::is_volume(state) {
        return Uuid::new_v4().simple().to_string();
    }
    let kept = fs::read_to_string(state.join(MACHINE_ID)).unwrap_or_default();
    if let Ok(id) = Uuid::try_parse(kept.trim()) {
        return id.simple().to_string();
    }
    let id = Uuid::new_v4().simple().to_string();
    if let Err(error) = durable::replace(state, MACHINE_ID, id.as_bytes()) {
        console::warn(&format!("cannot store the machine ID: {error}"));
    }
    id
}

/// Derives the ID instead of copying the firmware's UUID, which is an inventory number that other software knows.
fn machine_id(firmware: &str) -> Option<String> {
    let uuid = Uuid::parse_str(firmware)
        .ok()
        .filter(|uuid| !uuid.is_nil() && !uuid.is_max())?;
    Some(
        Uuid::new_v5(&MACHINE_IDS, uuid.as_bytes())
            .simple()
            .to_string(),
    )
}

/// Whether the kernel trusts the module-signing key whose private part is published. Such an image is for trials only.
#[must_use]
pub fn has_development_keys() -> bool {
    fs::read_to_string("/proc/keys").is_ok_and(|keys| names_development_key(&keys))
}

/// Looks for the key's name (`kernel-config/keys`) in a list in the format of `/proc/keys` (proc_keys(5)).
fn names_development_key(keys: &str) -> bool {
    keys.lines()
        .any(|line| line.contains(" asymmetri ") && line.contains(DEVELOPMENT_KEY))
}

/// Default host name of a node, as stable as the machine ID.
#[must_use]
pub fn default_hostname(machine_id: &str) -> String {
    let tail: String = machine_id.chars().take(6).collect();
    format!("corten-{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_id_without_a_volume_is_random_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        assert_ne!(kept_id(state), kept_id(state));
        assert!(!state.join(MACHINE_ID).exists());
    }

    #[test]
    fn machine_id_is_stable_and_differs_from_the_firmware_uuid() {
        let firmware = "4c4c4544-0050-3510-8033-b4c04f4d3732";
        let id = machine_id(firmware).unwrap();
        assert_eq!(machine_id(firmware), Some(id.clone()));
        assert_eq!(id.len(), 32);
        assert_ne!(id, firmware.replace('-', ""));
        // Boards without a UUID report this one.
        assert_eq!(machine_id("00000000-0000-0000-0000-000000000000"), None);
        assert_eq!(machine_id("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"), None);
        assert_eq!(machine_id("To be filled by O.E.M."), None);
    }

    #[test]
    fn published_module_signing_key_is_recognised() {
        let line = "0da5f4dd I------     1 perm 1f030000     0     0 asymmetri Corten development module signing key \
                    (public, not a secret): d294f9f4: X509.rsa f3d9fd8c []\n";
        assert!(names_development_key(line));
        assert!(!names_development_key(
            "0da5f4dd I------ 1 perm 1f030000 0 0 asymmetri Example: d2: X509.rsa f3 []\n"
        ));
        let user = "1 I--Q--- 1 perm 3f010000 0 0 user Corten development module signing key: 3\n";
        assert!(!names_development_key(user));
    }

    #[test]
    fn secret_directories_are_for_their_service_only() {
        for entry in &DIRECTORIES {
            let private = [
                APID_PKI,
                TRUSTD_PKI,
                SANDBOX_STAGE,
                "/run/dbus",
                "/var/lib/containerd",
                "/var/lib/cni",
                "/var/lib/etcd",
                "/var/lib/kubelet",
                AUDIT_LOG,
            ]
            .contains(&entry.path);
            assert_eq!(private, entry.mode & 0o077 == 0, "{}", entry.path);
            assert_eq!(entry.mode & 0o022, 0, "{}", entry.path);
        }
    }
}

//! The built-in rules, which apply before rule files ([`crate::rules`]).
//!
//! Facts about a device become properties ([`properties`]), then properties become names, permissions and modules
//! ([`plan`]). The second half does no I/O.

use crate::encode::{escaped, tag};
use crate::event::{Action, Event, Properties};
use crate::plan::{Permission, Plan};
use crate::sysfs::Sysfs;
use crate::{disk, net_name, partitions, path, probe};
use std::collections::BTreeSet;

/// Groups of device nodes: Debian's fixed numbers. The image has no names for them, but containers do.
const TTY: u32 = 5;
const DISK: u32 = 6;
const DIALOUT: u32 = 20;
const CDROM: u32 = 24;
const TAPE: u32 = 26;
const AUDIO: u32 = 29;
const VIDEO: u32 = 44;

/// Subsystem, kernel name (a final `*` matches any rest), mode, group. The first match wins; the owner is root. Other
/// nodes keep the kernel's mode: 0600 unless the driver sets one.
const PERMISSIONS: [(&str, &str, u32, u32); 30] = [
    ("tty", "tty", 0o666, TTY),
    ("tty", "ptmx", 0o666, TTY),
    ("tty", "console", 0o600, TTY),
    ("tty", "ttyS*", 0o660, DIALOUT),
    ("tty", "ttyUSB*", 0o660, DIALOUT),
    ("tty", "ttyACM*", 0o660, DIALOUT),
    ("tty", "tty*", 0o620, TTY),
    ("vc", "*", 0o620, TTY),
    ("mem", "null", 0o666, 0),
    ("mem", "zero", 0o666, 0),
    ("mem", "full", 0o666, 0),
    ("mem", "random", 0o666, 0),
    ("mem", "urandom", 0o666, 0),
    ("mem", "kmsg", 0o644, 0),
    ("block", "sr*", 0o660, CDROM),
    ("block", "*", 0o660, DISK),
    ("scsi_generic", "*", 0o660, DISK),
    ("scsi_tape", "*", 0o660, TAPE),
    ("misc", "loop-control", 0o660, DISK),
    ("misc", "btrfs-control", 0o660, DISK),
    ("misc", "fuse", 0o666, 0),
    ("misc", "tun", 0o666, 0),
    ("misc", "kvm", 0o666, 0),
    ("misc", "vhost-net", 0o666, 0),
    ("misc", "vhost-vsock", 0o666, 0),
    ("misc", "vsock", 0o666, 0),
    ("vfio", "vfio", 0o666, 0),
    ("drm", "renderD*", 0o666, VIDEO),
    ("drm", "*", 0o660, VIDEO),
    ("sound", "*", 0o660, AUDIO),
];

/// Disks that get no name from identity or content.
const ANONYMOUS: [&str; 5] = ["loop", "ram", "zram", "nbd", "fd"];

/// Disks without file systems, or with removable media.
const UNWATCHED: [&str; 4] = ["ram", "zram", "fd", "sr"];

/// Properties of the device beyond its uevent. `read` returns the first bytes of a block device, given its path below
/// `/dev`.
pub fn properties(
    sysfs: &Sysfs,
    event: &Event,
    read: impl Fn(&str) -> Option<Vec<u8>>,
) -> Properties {
    let mut found = Properties::new();
    if event.action == Action::Remove {
        return found;
    }
    let mut set = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            found.insert(key.to_owned(), value);
        }
    };
    match event.subsystem.as_str() {
        "block" => block(sysfs, event, read, &mut set),
        "net" => {
            let driver = sysfs.link(&format!("{}/device", event.devpath), "driver");
            set("ID_NET_DRIVER", driver);
            let names = net_name::names(sysfs, event);
            set("ID_NET_NAME", net_name::wanted(sysfs, event, &names));
            for (key, name) in names {
                set(&key, Some(name));
            }
        }
        "virtio-ports" => set("ID_PORT_NAME", sysfs.text(&event.devpath, "name")),
        _ => {}
    }
    if matches!(
        event.subsystem.as_str(),
        "block" | "net" | "input" | "tty" | "drm"
    ) && let Some(path) = path::id_path(sysfs, &event.devpath)
    {
        set("ID_PATH_TAG", Some(tag(&path)));
        set("ID_PATH", Some(path));
    }
    found
}

fn block(
    sysfs: &Sysfs,
    event: &Event,
    read: impl Fn(&str) -> Option<Vec<u8>>,
    set: &mut impl FnMut(&str, Option<String>),
) {
    for (key, value) in disk::identity(sysfs, event) {
        set(&key, Some(value));
    }
    set("DM_NAME", sysfs.text(&event.devpath, "dm/name"));
    set("DM_UUID", sysfs.text(&event.devpath, "dm/uuid"));
    for (key, value) in content(sysfs, event, read) {
        set(&key, Some(value));
    }
}

/// Content of a block device: `ID_FS_*` and `ID_PART_*`.
pub fn content(sysfs: &Sysfs, event: &Event, read: impl Fn(&str) -> Option<Vec<u8>>) -> Properties {
    let mut found = Properties::new();
    let Some(node) = event.node().filter(|node| node.block) else {
        return found;
    };
    let mut set = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            found.insert(key.to_owned(), value);
        }
    };
    // Opening an empty drive may block or close its tray.
    let size = sysfs.text(&event.devpath, "size").unwrap_or_default();
    if size == "0" || sysfs.text(&event.devpath, "dm/suspended").as_deref() == Some("1") {
        return found;
    }
    let head = read(node.name).unwrap_or_default();
    if let Some(content) = probe::content(&head) {
        set("ID_FS_TYPE", Some(content.kind.to_owned()));
        set("ID_FS_USAGE", Some(content.usage.to_owned()));
        set("ID_FS_VERSION", content.version.map(str::to_owned));
        set("ID_FS_UUID_ENC", content.uuid.as_deref().map(escaped));
        set("ID_FS_UUID", content.uuid.as_deref().map(escaped));
        set("ID_FS_LABEL_ENC", content.label.as_deref().map(escaped));
        set(
            "ID_FS_LABEL",
            content.label.as_deref().map(crate::encode::identifier),
        );
    }
    let table = if event.is_partition() {
        let disk = parent_node(sysfs, event)
            .and_then(|disk| read(&disk))
            .unwrap_or_default();
        let number = event
            .property("PARTN")
            .and_then(|number| number.parse().ok());
        let entry = number.and_then(|number| partitions::partition(&disk, number));
        set(
            "ID_PART_ENTRY_NUMBER",
            number.map(|number| number.to_string()),
        );
        // Only kernels after 6.12 report the identifier.
        let told = event.property("PARTUUID").map(str::to_lowercase);
        set(
            "ID_PART_ENTRY_UUID",
            told.or_else(|| entry.as_ref().map(|e| e.uuid.clone())),
        );
        // The kernel reports no name of a partition added after it read the table.
        let told = event.property("PARTNAME").map(str::to_owned);
        let name = told.or_else(|| entry.as_ref().and_then(|e| e.name.clone()));
        set("ID_PART_ENTRY_NAME", name.as_deref().map(escaped));
        set(
            "ID_PART_ENTRY_TYPE",
            entry.map(|e| e.kind).filter(|kind| !kind.is_empty()),
        );
        partitions::table(&disk)
    } else {
        partitions::table(&head)
    };
    if let Some(table) = table {
        if event.is_partition() {
            set("ID_PART_ENTRY_SCHEME", Some(table.kind.to_owned()));
        }
        set("ID_PART_TABLE_TYPE", Some(table.kind.to_owned()));
        set("ID_PART_TABLE_UUID", table.uuid);
    }
    found
}

/// The node of the disk of a partition.
fn parent_node(sysfs: &Sysfs, event: &Event) -> Option<String> {
    let (disk, _) = event.devpath.rsplit_once('/')?;
    sysfs
        .event(disk)
        .ok()?
        .node()
        .map(|node| node.name.to_owned())
}

/// The plan of the built-in rules for the device of `event` with these properties.
pub fn plan(event: &Event, properties: Properties) -> Plan {
    let mut plan = Plan::default();
    if event.action == Action::Remove {
        return plan;
    }
    if event.action == Action::Add
        && let Some(alias) = event.property("MODALIAS")
    {
        plan.modules.push(alias.to_owned());
    }
    if event.subsystem == "net" {
        plan.name = properties.get("ID_NET_NAME").cloned();
    }
    if let Some(node) = event.node() {
        plan.permission = permission(&event.subsystem, event.sysname());
        let class = if node.block { "block" } else { "char" };
        plan.links
            .insert(format!("{class}/{}:{}", node.major, node.minor));
        match event.subsystem.as_str() {
            "block" => {
                disk_links(event, &properties, &mut plan.links);
                let is = |prefix: &&str| event.sysname().starts_with(prefix);
                plan.watch = (!UNWATCHED.iter().any(is)).then_some(true);
                if properties.contains_key("DM_NAME") {
                    // A mapped device shows the same content as its members, and wins over them.
                    plan.priority = 50;
                }
            }
            "rtc" if event.sysname() == "rtc0" => drop(plan.links.insert("rtc".into())),
            "virtio-ports" => {
                let name = properties.get("ID_PORT_NAME").map(|name| escaped(name));
                plan.links
                    .extend(name.map(|name| format!("virtio-ports/{name}")));
            }
            _ => {}
        }
    }
    // Drop names that equal the node's or leave `/dev`.
    let node = event.node().map_or("", |node| node.name).to_owned();
    plan.links
        .retain(|link| *link != node && crate::event::is_plain_path(link));
    plan.properties = properties;
    plan
}

/// Mode of a static node, by its path below `/dev`. Its module is not loaded yet. Static nodes are misc devices;
/// unknown ones get 0600.
pub fn static_mode(node: &str) -> u32 {
    let name = node.rsplit('/').next().unwrap_or_default();
    permission("misc", name).map_or(0o600, |permission| permission.mode)
}

fn permission(subsystem: &str, sysname: &str) -> Option<Permission> {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => sysname.starts_with(start),
        None => sysname == pattern,
    };
    PERMISSIONS
        .iter()
        .find(|(of, name, ..)| *of == subsystem && fits(name))
        .map(|(_, _, mode, gid)| Permission {
            mode: *mode,
            uid: 0,
            gid: *gid,
        })
}

fn disk_links(event: &Event, properties: &Properties, links: &mut BTreeSet<String>) {
    let get = |key: &str| {
        properties
            .get(key)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    };
    let part = match (event.is_partition(), event.property("PARTN")) {
        (true, Some(number)) => format!("-part{number}"),
        (true, None) => return,
        (false, _) => String::new(),
    };
    let mut add = |directory: &str, name: String| {
        // Names come from devices; a slash would create directories.
        links.insert(format!("disk/{directory}/{}", name.replace('/', "_")));
    };
    if let Some(sequence) = event.property("DISKSEQ") {
        add("by-diskseq", format!("{sequence}{part}"));
    }
    if let Some(path) = get("ID_PATH") {
        add("by-path", format!("{path}{part}"));
    }
    if let (Some(bus), Some(serial)) = (get("ID_BUS"), get("ID_SERIAL")) {
        add("by-id", format!("{bus}-{serial}{part}"));
        if let ("nvme", Some(nsid)) = (bus, get("ID_NSID")) {
            add("by-id", format!("nvme-{serial}_{nsid}{part}"));
        }
    }
    match (get("ID_BUS"), get("ID_WWN")) {
        (Some("nvme"), Some(wwn)) => add("by-id", format!("nvme-{wwn}{part}")),
        (_, Some(wwn)) => add("by-id", format!("wwn-{wwn}{part}")),
        _ => {}
    }
    if let Some(uuid) = get("DM_UUID") {
        add("by-id", format!("dm-uuid-{uuid}"));
    }
    if let Some(name) = get("DM_NAME") {
        add("by-id", format!("dm-name-{name}"));
    }
    if event.is_partition() {
        if let Some(uuid) = get("ID_PART_ENTRY_UUID") {
            add("by-partuuid", uuid.to_owned());
        }
        if let Some(name) = get("ID_PART_ENTRY_NAME") {
            add("by-partlabel", name.to_owned());
        }
    }
    // A loop device over an image would take over the real disk's names.
    if !ANONYMOUS
        .iter()
        .any(|prefix| event.sysname().starts_with(prefix))
    {
        // The members of a volume carry the volume's identifier.
        let named = matches!(get("ID_FS_USAGE"), Some("filesystem" | "crypto" | "other"));
        if let (true, Some(uuid)) = (named, get("ID_FS_UUID_ENC")) {
            add("by-uuid", uuid.to_owned());
        }
        if let (true, Some(label)) = (named, get("ID_FS_LABEL_ENC")) {
            add("by-label", label.to_owned());
        }
    }
    if let Some(name) = get("DM_NAME") {
        links.insert(format!("mapper/{}", escaped(name)));
    }
}

#[cfg(test)]
#[path = "defaults_tests.rs"]
mod tests;

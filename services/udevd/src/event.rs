//! A kernel uevent as a value. No I/O.

use std::collections::BTreeMap;
use std::fmt;

/// Properties of a device or an event, sorted by key.
pub type Properties = BTreeMap<String, String>;

/// Length limit of a path. The kernel's paths are shorter, so a longer one is forged.
const MAX_PATH: usize = 4096;

/// Kind of event (lib/kobject_uevent.c, `kobject_actions`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The device appeared.
    Add,
    /// An attribute of the device changed.
    Change,
    /// The device disappeared.
    Remove,
    /// The device has a new name or parent.
    Move,
    /// The device is online again.
    Online,
    /// The device is present but offline.
    Offline,
    /// A driver was bound to the device.
    Bind,
    /// The driver was unbound from the device.
    Unbind,
}

impl Action {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "add" => Self::Add,
            "change" => Self::Change,
            "remove" => Self::Remove,
            "move" => Self::Move,
            "online" => Self::Online,
            "offline" => Self::Offline,
            "bind" => Self::Bind,
            "unbind" => Self::Unbind,
            _ => return None,
        })
    }

    /// The kernel's name of the action.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Change => "change",
            Self::Remove => "remove",
            Self::Move => "move",
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Bind => "bind",
            Self::Unbind => "unbind",
        }
    }
}

/// Reason why properties are not a valid event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    /// A mandatory key is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The value is not valid for its key.
    #[error("{key} has the invalid value {value:?}")]
    Bad {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// A validated uevent: its paths stay below `/sys` and `/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Kind of event.
    pub action: Action,
    /// Path of the device below the sysfs mount: `/devices/…`.
    pub devpath: String,
    /// Subsystem of the device; empty for the few kobjects without one.
    pub subsystem: String,
    /// Sequence number from the kernel; 0 for an event made from sysfs.
    pub sequence: u64,
    /// All properties the kernel sent, including the values above.
    pub properties: Properties,
}

impl Event {
    /// Validates the properties of an event.
    pub fn new(mut properties: Properties) -> Result<Self, BadEvent> {
        let get = |key: &'static str| properties.get(key).ok_or(BadEvent::Missing(key));
        let bad = |key: &'static str, value: &str| BadEvent::Bad {
            key,
            value: value.to_owned(),
        };
        let action = get("ACTION")?;
        let action = Action::parse(action).ok_or_else(|| bad("ACTION", action))?;
        let devpath = get("DEVPATH")?.clone();
        if !devpath.strip_prefix('/').is_some_and(is_plain_path) {
            return Err(bad("DEVPATH", &devpath));
        }
        let subsystem = properties.get("SUBSYSTEM").cloned().unwrap_or_default();
        if !subsystem.is_empty() && (subsystem.contains('/') || !is_plain_path(&subsystem)) {
            return Err(bad("SUBSYSTEM", &subsystem));
        }
        let sequence = match properties.get("SEQNUM") {
            None => 0,
            Some(number) => number.parse().map_err(|_| bad("SEQNUM", number))?,
        };
        if let Some(name) = properties.get_mut("DEVNAME") {
            // libudev gives the absolute path, the kernel the relative one.
            let relative = name.strip_prefix("/dev/").unwrap_or(name).to_owned();
            if !is_plain_path(&relative) {
                return Err(bad("DEVNAME", &relative));
            }
            *name = relative;
        }
        Ok(Self {
            action,
            devpath,
            subsystem,
            sequence,
            properties,
        })
    }

    /// Parses the environment of an event: `KEY=value`, each terminated by a NUL or a line feed. Lines without `=` (the
    /// kernel's `add@/devices/…`) are skipped.
    #[cfg(test)]
    pub fn parse(environment: &[u8]) -> Result<Self, BadEvent> {
        Self::new(pairs(environment))
    }

    /// The kernel's name of the device: the last part of its path.
    pub fn sysname(&self) -> &str {
        self.devpath.rsplit('/').next().unwrap_or_default()
    }

    /// A property; `None` if it is missing or empty.
    pub fn property(&self, key: &str) -> Option<&str> {
        self.properties
            .get(key)
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// The device node below `/dev`, for a device that has one.
    pub fn node(&self) -> Option<Node<'_>> {
        let number = |key| self.property(key)?.parse::<u32>().ok();
        let (major, minor) = (number("MAJOR")?, number("MINOR")?);
        let name = self.property("DEVNAME")?;
        (major > 0).then_some(Node {
            name,
            block: self.subsystem == "block",
            major,
            minor,
        })
    }

    /// The name of the device's entry in the database, as libudev clients
    /// compute it: `b8:0`, `c1:3`, `n2` or `+subsystem:sysname`.
    pub fn id(&self) -> Option<String> {
        if let Some(node) = self.node() {
            return Some(node.id());
        }
        if let Some(index) = self.property("IFINDEX")
            && index.parse::<u32>().is_ok_and(|i| i > 0)
        {
            return Some(format!("n{index}"));
        }
        let plain = |s: &str| !s.is_empty() && !s.contains('/');
        (plain(&self.subsystem) && plain(self.sysname()) && self.subsystem != "drivers")
            .then(|| format!("+{}:{}", self.subsystem, self.sysname()))
    }

    /// Whether the device is a partition of a disk.
    pub fn is_partition(&self) -> bool {
        self.subsystem == "block" && self.property("DEVTYPE") == Some("partition")
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.name(), self.devpath)
    }
}

/// A device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    /// Path below `/dev`.
    pub name: &'a str,
    /// True for a block device, false for a character device.
    pub block: bool,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Node<'_> {
    /// `b8:0` or `c1:3`.
    pub fn id(&self) -> String {
        format!(
            "{}{}:{}",
            if self.block { 'b' } else { 'c' },
            self.major,
            self.minor
        )
    }
}

/// The `KEY=value` pairs in `bytes`. The last pair of a key wins.
pub fn pairs(bytes: &[u8]) -> Properties {
    let lines = bytes.split(|b| *b == 0 || *b == b'\n');
    lines
        .filter_map(|line| std::str::from_utf8(line).ok()?.split_once('='))
        .filter(|(key, _)| !key.is_empty() && !key.contains(['@', '/']))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// True for a relative path that cannot leave the directory it is joined to.
pub fn is_plain_path(path: &str) -> bool {
    path.len() < MAX_PATH
        && !path.chars().any(char::is_control)
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::{Action, BadEvent, Event};
    use corten_corpus::{hostile, samples};
    use proptest::prelude::{prop_assert, proptest};

    const VDA1: &[u8] = b"add@/devices/pci0000:00/0000:00:05.0/virtio2/block/vda/vda1\0ACTION=add\0\
        DEVPATH=/devices/pci0000:00/0000:00:05.0/virtio2/block/vda/vda1\0SUBSYSTEM=block\0MAJOR=254\0\
        MINOR=1\0DEVNAME=vda1\0DEVTYPE=partition\0DISKSEQ=9\0PARTN=1\0PARTNAME=EFI\0SEQNUM=1201\0";

    #[test]
    fn recorded_event_parses() {
        let event = Event::parse(VDA1).unwrap();
        assert_eq!(
            (event.action, event.sequence, event.sysname()),
            (Action::Add, 1201, "vda1")
        );
        assert_eq!(event.id().as_deref(), Some("b254:1"));
        assert!(event.is_partition());
        assert_eq!(
            event.to_string(),
            "add /devices/pci0000:00/0000:00:05.0/virtio2/block/vda/vda1"
        );
    }

    #[test]
    fn events_have_database_ids() {
        let id = |text: &str| Event::parse(text.as_bytes()).unwrap().id();
        let net =
            "ACTION=add\nDEVPATH=/devices/x/net/eth0\nSUBSYSTEM=net\nIFINDEX=2\nINTERFACE=eth0";
        assert_eq!(id(net).as_deref(), Some("n2"));
        let pci = "ACTION=add\nDEVPATH=/devices/pci0000:00/0000:00:01.0\nSUBSYSTEM=pci";
        assert_eq!(id(pci).as_deref(), Some("+pci:0000:00:01.0"));
        let tty = "ACTION=add\nDEVPATH=/devices/virtual/tty/tty1\nSUBSYSTEM=tty\nMAJOR=4\nMINOR=1\n\
                   DEVNAME=/dev/tty1";
        assert_eq!(id(tty).as_deref(), Some("c4:1"));
        assert_eq!(id("ACTION=add\nDEVPATH=/module/xfs"), None);
    }

    #[test]
    fn malformed_events_are_refused() {
        let parse = |text: &str| Event::parse(text.as_bytes()).unwrap_err();
        assert_eq!(parse(""), BadEvent::Missing("ACTION"));
        assert_eq!(parse("ACTION=add"), BadEvent::Missing("DEVPATH"));
        for line in [
            "ACTION=explode\nDEVPATH=/a",
            "ACTION=add\nDEVPATH=a",
            "ACTION=add\nDEVPATH=/a/../b",
            "ACTION=add\nDEVPATH=/a//b",
            "ACTION=add\nDEVPATH=/a\nSUBSYSTEM=a/b",
            "ACTION=add\nDEVPATH=/a\nSUBSYSTEM=..",
            "ACTION=add\nDEVPATH=/a\nSEQNUM=-1",
            "ACTION=add\nDEVPATH=/a\nDEVNAME=../etc/passwd",
            "ACTION=add\nDEVPATH=/a\nDEVNAME=/etc/passwd",
        ] {
            assert!(matches!(parse(line), BadEvent::Bad { .. }), "{line}");
        }
    }

    #[test]
    fn corpus_samples_are_events() {
        for sample in samples("uevent") {
            let event = Event::parse(&sample.bytes);
            assert!(event.is_ok(), "{}: {event:?}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic_and_never_leave_the_tree(bytes in hostile("uevent"), name in "[a./\\x00-\\x20]{0,12}") {
            if let Ok(event) = Event::parse(&bytes) {
                prop_assert!(event.devpath.split('/').all(|part| part != ".."));
            }
            let text = format!("ACTION=add\0DEVPATH=/{name}\0SUBSYSTEM=block\0DEVNAME={name}\0MAJOR=8\0MINOR=0\0");
            if let Ok(event) = Event::parse(text.as_bytes()) {
                prop_assert!(event.devpath.split('/').all(|part| part != ".."));
                prop_assert!(!event.node().unwrap().name.starts_with('/'));
            }
        }
    }
}

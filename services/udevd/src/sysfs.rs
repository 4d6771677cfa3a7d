//! Reads attributes of devices. The root is a parameter, so that recorded trees can replace `/sys`.

use crate::event::{Event, Properties, pairs};
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// Read limit in bytes. A text attribute is at most one page; a binary one (a VPD page) may be this long.
const MAX_ATTRIBUTE: u64 = 65536;

/// A sysfs tree.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// The tree at `root`, normally `/sys`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The absolute path of `devpath`.
    pub fn path(&self, devpath: &str) -> PathBuf {
        self.root.join(devpath.trim_start_matches('/'))
    }

    /// A text attribute, trimmed. `None` if it is missing, unreadable or empty.
    pub fn text(&self, devpath: &str, attribute: &str) -> Option<String> {
        let bytes = self.bytes(devpath, attribute)?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The bytes of an attribute.
    pub fn bytes(&self, devpath: &str, attribute: &str) -> Option<Vec<u8>> {
        let file = fs::File::open(self.path(devpath).join(attribute)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_ATTRIBUTE).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The first bytes of an attribute. Reading the whole configuration space hangs some devices.
    pub fn head<const N: usize>(&self, devpath: &str, attribute: &str) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let mut file = fs::File::open(self.path(devpath).join(attribute)).ok()?;
        file.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The last component of a link's target, for example of `subsystem` or `driver`.
    pub fn link(&self, devpath: &str, name: &str) -> Option<String> {
        let target = fs::read_link(self.path(devpath).join(name)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The names in a device's directory, sorted.
    pub fn names(&self, devpath: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(devpath))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Absolute targets of the links in a directory. Other entries are left out.
    pub fn targets(&self, devpath: &str) -> Vec<PathBuf> {
        let directory = self.path(devpath);
        let target = |name: String| {
            Some(resolved(
                &directory,
                &fs::read_link(directory.join(name)).ok()?,
            ))
        };
        self.names(devpath).into_iter().filter_map(target).collect()
    }

    /// The device and its ancestors, nearest first. Directories between devices (`…/block/`, `…/host0`'s class folders)
    /// are left out.
    pub fn chain(&self, devpath: &str) -> Vec<Ancestor> {
        let mut chain = Vec::new();
        let mut path = devpath.trim_end_matches('/');
        while !path.is_empty() && path != "/devices" {
            if self.path(path).join("uevent").exists() {
                let subsystem = self.link(path, "subsystem").unwrap_or_default();
                chain.push(Ancestor {
                    devpath: path.to_owned(),
                    subsystem,
                });
            }
            path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
        chain
    }

    /// An `add` event for a device, from its `uevent` file.
    pub fn event(&self, devpath: &str) -> Result<Event, crate::event::BadEvent> {
        let mut properties: Properties = self
            .bytes(devpath, "uevent")
            .map(|bytes| pairs(&bytes))
            .unwrap_or_default();
        properties.insert("ACTION".into(), "add".into());
        properties.insert("DEVPATH".into(), devpath.into());
        if let Some(subsystem) = self.link(devpath, "subsystem") {
            properties.insert("SUBSYSTEM".into(), subsystem);
        }
        Event::new(properties)
    }

    /// `path` as a devpath, resolved; `None` if it is outside this tree.
    pub fn devpath(&self, path: &Path) -> Option<String> {
        let root = self.root.canonicalize().ok()?;
        let path = match path.strip_prefix("/devices") {
            Ok(rest) => root.join("devices").join(rest),
            Err(_) => path.to_owned(),
        };
        let path = path.canonicalize().ok()?;
        Some(format!("/{}", path.strip_prefix(&root).ok()?.to_str()?))
    }
}

/// Resolves a link's target against the link's directory without file system access. sysfs has no symbolic links on the
/// way.
fn resolved(directory: &Path, target: &Path) -> PathBuf {
    let mut path = directory.to_owned();
    for part in target.components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path
}

/// A device in the chain of another device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// Path of the device.
    pub devpath: String,
    /// Subsystem of the device, empty if it has none.
    pub subsystem: String,
}

impl Ancestor {
    /// The last part of the path.
    pub fn sysname(&self) -> &str {
        self.devpath.rsplit('/').next().unwrap_or_default()
    }
}

//! Plans an event and executes the actions of the plan.

use crate::coldplug::ask;
use crate::database::Database;
use crate::defaults;
use crate::event::{Action as What, Event};
use crate::links::Links;
use crate::modules::Loader;
use crate::plan::{Action, Permission, Plan, Write, actions};
use crate::probe::HEAD;
use crate::reading::Readers;
use crate::rules::{Rules, StaticNode, World};
use crate::sysfs::Sysfs;
use crate::watch::Watches;
use rustix::fs::{AtFlags, Dev, Gid, Mode, OFlags, Uid};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tracing::{debug, warn};

/// Roots of the file trees the daemon works on.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// `/run/udev`.
    pub run: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
}

/// Handles events. All workers share one handler.
#[derive(Debug)]
pub struct Handler {
    roots: Roots,
    sysfs: Sysfs,
    database: Database,
    links: Links,
    rules: RwLock<Arc<Rules>>,
    /// Interfaces keep their kernel names unless a rule renames them.
    keeps_names: bool,
    watches: Option<Arc<Watches>>,
    readers: Readers,
}

/// Whether the kernel command line has `net.ifnames=0`, as for systemd-udevd.
fn keeps_names(roots: &Roots) -> bool {
    let line = std::fs::read_to_string(roots.proc.join("cmdline")).unwrap_or_default();
    line.split_whitespace().any(|word| word == "net.ifnames=0")
}

impl Handler {
    /// A handler for these trees, without rules and watches.
    pub fn new(roots: Roots) -> Self {
        Self {
            sysfs: Sysfs::new(&roots.sys),
            database: Database::new(&roots.run),
            links: Links::new(&roots.dev, &roots.run),
            rules: RwLock::default(),
            keeps_names: keeps_names(&roots),
            watches: None,
            readers: Readers::new(first_bytes),
            roots,
        }
    }

    /// Sets the watches of device nodes. Without them no node is watched.
    pub fn watch_with(&mut self, watches: Arc<Watches>) {
        self.watches = Some(watches);
    }

    /// Sets the rules for all later events.
    pub fn set_rules(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// The permissions its rules set for static nodes, which exist before their devices.
    pub fn static_nodes(&self) -> Vec<StaticNode> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.static_nodes()
    }

    /// The sysfs tree it reads.
    pub fn sysfs(&self) -> &Sysfs {
        &self.sysfs
    }

    /// The plan and the actions of `event`, without side effects.
    pub fn plan(&self, event: &Event) -> (Plan, Vec<Action>) {
        let read = |node: &str| self.head(node);
        let old = event.id().and_then(|id| self.database.load(&id));
        let plan = match (event.action, &old) {
            // A removed device keeps its stored properties for rules and listeners.
            (What::Remove, Some(old)) => Plan::of(old),
            _ => defaults::plan(event, defaults::properties(&self.sysfs, event, read)),
        };
        let plan = Plan {
            name: plan.name.filter(|_| !self.keeps_names),
            ..plan
        };
        let rules = self
            .rules
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let world = World {
            sysfs: &self.sysfs,
            database: &self.database,
            proc: &self.roots.proc,
            read: &read,
        };
        let plan = rules.apply(&world, event, plan, old.as_ref());
        let actions = actions(event, plan.clone(), old.as_ref(), now());
        (plan, actions)
    }

    /// Plans an event and executes the actions. Logs a failed action and goes on. An action that loads a module asks for
    /// the `loader`.
    pub fn handle<'a>(&self, event: &Event, loader: &dyn Fn() -> Option<&'a Loader>) -> Plan {
        let (plan, actions) = self.plan(event);
        for action in &actions {
            if let Err(error) = self.apply(event, action, loader) {
                warn!("{event}: {action}: {error:#}");
            }
        }
        plan
    }

    fn apply<'a>(
        &self,
        event: &Event,
        action: &Action,
        loader: &dyn Fn() -> Option<&'a Loader>,
    ) -> anyhow::Result<()> {
        let id = event.id();
        match (action, &id) {
            (
                Action::Permit {
                    node,
                    block,
                    permission,
                },
                _,
            ) => {
                self.permit(event, node, *block, *permission)?;
            }
            (
                Action::Claim {
                    link,
                    node,
                    priority,
                },
                Some(id),
            ) => {
                self.links.claim(link, id, node, *priority)?;
            }
            (Action::Release { link }, Some(id)) => self.links.release(link, id)?,
            (Action::Store(record), Some(id)) => self.database.store(id, record)?,
            (Action::Forget, Some(id)) => self.database.forget(id)?,
            (Action::Load { alias }, _) => {
                let Some(loader) = loader() else {
                    return Ok(());
                };
                // A device's alias contains its bus and a colon; any other string is a module name.
                let loaded = match alias.contains(':') {
                    true => loader.load_for_device(alias)?,
                    false => loader.load(alias)?,
                };
                for module in loaded {
                    debug!("{event}: loaded {module}");
                }
            }
            (Action::Watch { node, wanted }, _) => {
                let Some(watches) = &self.watches else {
                    return Ok(());
                };
                let node = self.roots.dev.join(node);
                match watches.set(&node, &event.devpath, *wanted) {
                    // The device is gone again; its remove event is on the way.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    done => done?,
                }
            }
            (Action::Write(Write { path, value }), _) => {
                let mut file = File::options().write(true).open(path)?;
                file.write_all(value.as_bytes())?;
            }
            (Action::Rename { index, name }, _) => crate::rename::interface(*index, name)?,
            (_, None) => {}
        }
        Ok(())
    }

    /// Sets mode and owner if they differ. Opens the node without following links and compares it with the device. So a
    /// planted name or a reused device number is never changed.
    fn permit(
        &self,
        event: &Event,
        node: &str,
        block: bool,
        permission: Permission,
    ) -> io::Result<()> {
        let path = self.roots.dev.join(node);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            // The device is gone again; its remove event is on the way.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        let right_kind = match block {
            true => found.file_type().is_block_device(),
            false => found.file_type().is_char_device(),
        };
        let expected = event.node().map(|n| rustix::fs::makedev(n.major, n.minor));
        if !right_kind || expected != Some(found.rdev() as Dev) {
            return Err(io::Error::other("another device has that name"));
        }
        let Permission { mode, uid, gid } = permission;
        // By descriptor: udevd's root has no /proc/self.
        if (found.uid(), found.gid()) != (uid, gid) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(&file, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        if found.mode() & 0o7777 != mode {
            corten_sys::permissions::set_mode(&file, mode)?;
        }
        Ok(())
    }

    /// The first bytes of a block device; `None` if it cannot be read.
    fn head(&self, node: &str) -> Option<Vec<u8>> {
        // sysfs writes `!` for a slash in a name.
        let device = format!("/class/block/{}", node.replace('/', "!"));
        let device = self.sysfs.path(&device);
        let late = move || ask(&device, "change");
        let read = self.readers.read(&self.roots.dev.join(node), late);
        read.unwrap_or_else(|why| {
            warn!("{node}: {why}");
            None
        })
    }

    /// Removes the records of devices that disappeared while the daemon did not listen.
    pub fn sweep(&self) {
        for id in self.database.ids() {
            let path = match (id.split_at_checked(1), id.strip_prefix('+')) {
                (Some(("b", number)), _) => self.roots.sys.join("dev/block").join(number),
                (Some(("c", number)), _) => self.roots.sys.join("dev/char").join(number),
                (_, Some(device)) => {
                    let Some((subsystem, name)) = device.split_once(':') else {
                        continue;
                    };
                    let bus = self
                        .roots
                        .sys
                        .join("bus")
                        .join(subsystem)
                        .join("devices")
                        .join(name);
                    let class = self.roots.sys.join("class").join(subsystem).join(name);
                    if bus.exists() { bus } else { class }
                }
                // Interfaces are found by name only; coldplug renews their records.
                _ => continue,
            };
            if path.exists() {
                continue;
            }
            for link in self.database.load(&id).unwrap_or_default().links {
                if let Err(error) = self.links.release(&link, &id) {
                    warn!("cannot release {link} of {id}: {error}");
                }
            }
            if let Err(error) = self.database.forget(&id) {
                warn!("cannot remove the record of {id}: {error}");
            }
        }
    }
}

fn first_bytes(node: &Path) -> Option<Vec<u8>> {
    // O_NONBLOCK: do not wait for a drive to become ready. The file closes right after the read, so that the device is
    // not kept busy.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(node, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.file_type().is_block_device() {
        return None;
    }
    let mut head = Vec::new();
    // A read error keeps the bytes before it.
    let _ = file.take(HEAD as u64).read_to_end(&mut head);
    Some(head)
}

/// Microseconds of the monotonic clock.
fn now() -> u64 {
    let microseconds = corten_sys::clock::monotonic().as_micros();
    u64::try_from(microseconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Handler, Roots};
    use crate::event::Event;
    use crate::testing::Tree;
    use std::fs;

    #[test]
    fn device_add_change_and_remove_update_nodes_and_database() {
        let (sys, dev, run) = (
            Tree::new(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let disk = "/devices/pci0000:00/0000:00:05.0/virtio2/block/vda";
        sys.device("/devices/pci0000:00/0000:00:05.0", "pci");
        sys.device("/devices/pci0000:00/0000:00:05.0/virtio2", "virtio")
            .device(disk, "block");
        sys.attribute(disk, "serial", "first");
        let handler = Handler::new(Roots {
            sys: sys.path().into(),
            dev: dev.path().into(),
            run: run.path().into(),
            proc: "/proc".into(),
        });
        let event = |action: &str| {
            let text = format!(
                "ACTION={action}\nDEVPATH={disk}\nSUBSYSTEM=block\nMAJOR=254\nMINOR=0\nDEVNAME=vda\n\
                 DEVTYPE=disk\nDISKSEQ=9"
            );
            Event::parse(text.as_bytes()).unwrap()
        };
        let link = |name: &str| fs::read_link(dev.path().join(name)).ok();
        let added = handler.handle(&event("add"), &|| None);
        assert_eq!(
            added.properties.get("ID_SERIAL").map(String::as_str),
            Some("first")
        );
        for name in [
            "disk/by-id/virtio-first",
            "disk/by-path/pci-0000:00:05.0",
            "disk/by-diskseq/9",
        ] {
            assert_eq!(link(name), Some("../../vda".into()), "{name}");
        }
        assert_eq!(link("block/254:0"), Some("../vda".into()));
        sys.attribute(disk, "serial", "second");
        handler.handle(&event("change"), &|| None);
        assert_eq!(link("disk/by-id/virtio-first"), None);
        assert!(link("disk/by-id/virtio-second").is_some());
        let record = fs::read_to_string(run.path().join("data/b254:0")).unwrap();
        assert!(
            record.contains("S:disk/by-id/virtio-second\n") && record.contains("E:ID_BUS=virtio\n")
        );

        // The device disappears without an event, as while the daemon is down.
        handler.sweep();
        assert!(!run.path().join("data/b254:0").exists() && link("block/254:0").is_none());
        handler.handle(&event("add"), &|| None);
        handler.handle(&event("remove"), &|| None);
        assert_eq!(fs::read_dir(dev.path()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(run.path().join("data")).unwrap().count(), 0);
    }
}

//! The outcome of an event as a value. No I/O.
//!
//! The built-in defaults fill an empty plan, then rule files change it. It becomes a list of actions that can be
//! printed, compared in a test, or executed.

use crate::database::Record;
use crate::event::{Action as What, Event, Properties};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

/// Mode and owner of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The decisions of the rules about a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Properties in addition to the kernel's.
    pub properties: Properties,
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Links below `/dev` to the node.
    pub links: BTreeSet<String>,
    /// Priority of its link claims; the highest wins.
    pub priority: i32,
    /// Permission of the node; `None` keeps the kernel's.
    pub permission: Option<Permission>,
    /// Modaliases and names of modules to load.
    pub modules: Vec<String>,
    /// The new name of a network interface.
    pub name: Option<String>,
    /// Whether a write to the node triggers a change event; `None` if no rule decides.
    pub watch: Option<bool>,
    /// Files of sysfs and kernel parameters to write.
    pub writes: Vec<Write>,
}

impl Plan {
    /// The plan that a stored record reflects.
    pub fn of(record: &Record) -> Self {
        Self {
            properties: record.properties.clone(),
            tags: record.tags.clone(),
            links: record.links.clone(),
            priority: record.priority,
            ..Self::default()
        }
    }
}

/// A value to write to a file of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Path of the file.
    pub path: PathBuf,
    /// Value to write.
    pub value: String,
}

/// One step of executing a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Set mode and owner of the node.
    Permit {
        /// Path of the node below `/dev`.
        node: String,
        /// True for a block device, false for a character device.
        block: bool,
        /// Mode and owner.
        permission: Permission,
    },
    /// Claim the name `link` for `node`.
    Claim {
        /// Path of the link below `/dev`.
        link: String,
        /// Path of the node below `/dev`.
        node: String,
        /// Priority of the claim.
        priority: i32,
    },
    /// Withdraw the claim on a link.
    Release {
        /// Path of the link below `/dev`.
        link: String,
    },
    /// Store the device's record in the database.
    Store(Record),
    /// Remove the record.
    Forget,
    /// Start or stop watching the node for writes.
    Watch {
        /// Path of the node below `/dev`.
        node: String,
        /// True to start, false to stop.
        wanted: bool,
    },
    /// Write a value to a file of the kernel.
    Write(Write),
    /// Rename the network interface.
    Rename {
        /// Index of the interface.
        index: u32,
        /// The new name.
        name: String,
    },
    /// Load the modules that `alias` stands for.
    Load {
        /// Modalias or module name.
        alias: String,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permit {
                node,
                permission: Permission { mode, uid, gid },
                ..
            } => {
                write!(f, "permit {node} {mode:04o} {uid}:{gid}")
            }
            Self::Claim {
                link,
                node,
                priority,
            } => write!(f, "claim {link} -> {node} ({priority})"),
            Self::Release { link } => write!(f, "release {link}"),
            Self::Store(record) => {
                for line in record.encode().lines() {
                    writeln!(f, "store {line}")?;
                }
                Ok(())
            }
            Self::Forget => f.write_str("forget"),
            Self::Watch { node, wanted } => match wanted {
                true => write!(f, "watch {node}"),
                false => write!(f, "unwatch {node}"),
            },
            Self::Write(Write { path, value }) => write!(f, "write {} {value:?}", path.display()),
            Self::Rename { index, name } => write!(f, "rename {index} {name}"),
            Self::Load { alias } => write!(f, "load {alias}"),
        }
    }
}

/// The actions that execute `plan` for the device of `event`. `old` is the stored record; `now` is in microseconds of
/// the monotonic clock.
pub fn actions(event: &Event, plan: Plan, old: Option<&Record>, now: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    let had = old.map(|record| record.links.clone()).unwrap_or_default();
    let release = |link: &String| Action::Release { link: link.clone() };
    let index = event.property("IFINDEX").and_then(|i| i.parse().ok());
    let renamed = plan.name.filter(|name| *name != event.sysname());
    actions.extend(
        index
            .zip(renamed)
            .map(|(index, name)| Action::Rename { index, name }),
    );
    actions.extend(plan.writes.into_iter().map(Action::Write));
    if event.action == What::Remove {
        actions.extend(had.iter().map(release));
        actions.push(Action::Forget);
        return actions;
    }
    let links = match event.node() {
        Some(node) => {
            if let Some(permission) = plan.permission {
                let (node, block) = (node.name.to_owned(), node.block);
                actions.push(Action::Permit {
                    node,
                    block,
                    permission,
                });
            }
            actions.extend(plan.links.iter().map(|link| Action::Claim {
                link: link.clone(),
                node: node.name.to_owned(),
                priority: plan.priority,
            }));
            actions.extend(plan.watch.map(|wanted| Action::Watch {
                node: node.name.to_owned(),
                wanted,
            }));
            plan.links
        }
        None => BTreeSet::new(),
    };
    actions.extend(had.difference(&links).map(release));
    let record = Record {
        links,
        priority: plan.priority,
        initialized: old
            .map(|record| record.initialized)
            .filter(|then| *then > 0)
            .unwrap_or(now),
        properties: plan.properties,
        tags: plan.tags,
    };
    // A device that no rule mentions, and that is neither a node nor an interface, counts as initialized without a
    // record.
    let told = event.node().is_some() || event.property("IFINDEX").is_some();
    if told || !record.properties.is_empty() || !record.tags.is_empty() {
        actions.push(Action::Store(record));
    } else if old.is_some() {
        actions.push(Action::Forget);
    }
    // Modules last, because loading may take long and names and permissions must not wait for it.
    actions.extend(plan.modules.into_iter().map(|alias| Action::Load { alias }));
    actions
}

#[cfg(test)]
mod tests {
    use super::{Permission, Plan, actions};
    use crate::database::Record;
    use crate::event::Event;

    fn event(action: &str) -> Event {
        let text = format!(
            "ACTION={action}\nDEVPATH=/devices/x/block/vda\nSUBSYSTEM=block\nMAJOR=254\nMINOR=0\n\
             DEVNAME=vda\nDEVTYPE=disk"
        );
        Event::parse(text.as_bytes()).unwrap()
    }

    fn printed(event: &Event, plan: Plan, old: Option<&Record>) -> Vec<String> {
        actions(event, plan, old, 7)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_changed_label_releases_the_old_name() {
        let plan = Plan {
            links: ["disk/by-label/new".into()].into(),
            permission: Some(Permission {
                mode: 0o660,
                uid: 0,
                gid: 6,
            }),
            modules: vec!["virtio:d2v1".into()],
            ..Plan::default()
        };
        let old = Record {
            links: ["disk/by-label/old".into()].into(),
            ..Record::default()
        };
        assert_eq!(
            printed(&event("change"), plan, Some(&old)),
            [
                "permit vda 0660 0:6",
                "claim disk/by-label/new -> vda (0)",
                "release disk/by-label/old",
                "store S:disk/by-label/new\nstore I:7\nstore V:1\n",
                "load virtio:d2v1",
            ]
        );
    }

    #[test]
    fn removal_releases_the_links_of_the_database_record() {
        let old = Record {
            links: ["block/254:0".into()].into(),
            ..Record::default()
        };
        let done = printed(&event("remove"), Plan::default(), Some(&old));
        assert_eq!(done, ["release block/254:0", "forget"]);
        assert_eq!(printed(&event("remove"), Plan::default(), None), ["forget"]);
    }

    #[test]
    fn bus_device_without_properties_has_no_record() {
        let pci = b"ACTION=add\nDEVPATH=/devices/pci0/0\nSUBSYSTEM=pci\nMODALIAS=pci:v1";
        let event = Event::parse(pci).unwrap();
        let plan = Plan {
            modules: vec!["pci:v1".into()],
            ..Plan::default()
        };
        assert_eq!(printed(&event, plan, None), ["load pci:v1"]);
        assert_eq!(
            printed(&event, Plan::default(), Some(&Record::default())),
            ["forget"]
        );
    }
}

//! State of an event on its way through the rules.

use super::attribute;
use super::rule::Escape;
use crate::database::{Database, Record};
use crate::event::{Action, Event};
use crate::plan::Plan;
use crate::sysfs::{Ancestor, Sysfs};
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::Path;

/// Data that rules can read.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// Devices of the machine.
    pub sysfs: &'a Sysfs,
    /// Stored records of the devices.
    pub database: &'a Database,
    /// `/proc`.
    pub proc: &'a Path,
    /// Reads the first bytes of a block device, by its name below `/dev`.
    pub read: &'a dyn Fn(&str) -> Option<Vec<u8>>,
}

/// Targets that a `:=` made final.
#[derive(Debug, Default)]
pub struct Final {
    pub links: bool,
    pub name: bool,
    pub owner: bool,
    pub group: bool,
    pub mode: bool,
    pub modules: bool,
}

/// State of one event on its way through the rules.
pub struct Evaluation<'a> {
    pub world: &'a World<'a>,
    pub event: &'a Event,
    pub plan: Plan,
    pub escape: Escape,
    pub is_final: Final,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Number of modules from the defaults; rules cannot remove these.
    pub default_modules: usize,
    /// Stored record of the device.
    pub(super) old: Option<&'a Record>,
    chain: OnceCell<Vec<Ancestor>>,
    /// Index in the chain of the device that the last parent search selected.
    pub(super) selected: Option<usize>,
    attributes: RefCell<Attributes>,
}

/// Cache of attribute values by index in the chain and name, because rules read the same ones repeatedly.
type Attributes = HashMap<(usize, String), Option<String>>;

impl<'a> Evaluation<'a> {
    /// The state before the first rule.
    pub(super) fn new(
        world: &'a World<'a>,
        event: &'a Event,
        plan: Plan,
        old: Option<&'a Record>,
    ) -> Self {
        Self {
            world,
            event,
            default_modules: plan.modules.len(),
            plan,
            escape: Escape::Usual,
            is_final: Final::default(),
            mode: None,
            uid: None,
            gid: None,
            old,
            chain: OnceCell::new(),
            selected: None,
            attributes: RefCell::default(),
        }
    }

    /// The device and its ancestors.
    pub(super) fn chain(&self) -> &[Ancestor] {
        self.chain.get_or_init(|| {
            let mut chain = self.world.sysfs.chain(&self.event.devpath);
            // The directory of a removed device is gone; the event describes it.
            if chain
                .first()
                .is_none_or(|first| first.devpath != self.event.devpath)
            {
                chain.insert(
                    0,
                    Ancestor {
                        devpath: self.event.devpath.clone(),
                        subsystem: self.event.subsystem.clone(),
                    },
                );
            }
            chain
        })
    }

    pub(super) fn attribute(&self, device: usize, name: &str) -> Option<String> {
        let key = (device, name.to_owned());
        if let Some(value) = self.attributes.borrow().get(&key) {
            return value.clone();
        }
        let devpath = &self.chain().get(device)?.devpath;
        let value = attribute::value(self.world.sysfs, devpath, name);
        self.attributes.borrow_mut().insert(key, value.clone());
        value
    }

    /// A property: imported, assigned or the kernel's.
    pub fn env(&self, key: &str) -> Option<Cow<'_, str>> {
        let event = self.event;
        match key {
            "DEVNAME" => event
                .node()
                .map(|node| format!("/dev/{}", node.name).into()),
            "DEVLINKS" => {
                let links = self.plan.links.iter().map(|link| format!("/dev/{link}"));
                Some(links.collect::<Vec<_>>().join(" ").into())
            }
            // The format of libudev: each tag is between two colons.
            "TAGS" => {
                let tags: String = self.plan.tags.iter().map(|tag| format!(":{tag}")).collect();
                (!tags.is_empty()).then(|| format!("{tags}:").into())
            }
            key => self
                .plan
                .properties
                .get(key)
                .or_else(|| event.properties.get(key))
                .map(Cow::from),
        }
    }

    /// Sets a property; an empty value removes it.
    pub fn set_env(&mut self, key: &str, value: String) {
        if value.is_empty() && !self.event.properties.contains_key(key) {
            self.plan.properties.remove(key);
        } else {
            self.plan.properties.insert(key.to_owned(), value);
        }
    }

    /// Whether the event removes the device, so that rules must not make nodes or names.
    pub fn is_removal(&self) -> bool {
        self.event.action == Action::Remove
    }
}

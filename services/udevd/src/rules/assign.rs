//! Executes the assignments of rules.

use super::builtin::Builtin;
use super::evaluation::Evaluation;
use super::lexer::Operator;
use super::owner;
use super::rule::{Assign, Escape, Id, Target};
use super::template::Template;
use crate::encode::safe;
use crate::event::is_plain_path;
use crate::plan::{Permission, Plan, Write};
use std::path::PathBuf;
use tracing::warn;

/// Length limit of an interface name (`IFNAMSIZ` without its NUL).
const MAX_INTERFACE: usize = 15;

impl Evaluation<'_> {
    /// Executes one assignment.
    pub fn assign(&mut self, assign: &Assign) {
        match &assign.target {
            Target::Escape(escape) => self.escape = *escape,
            Target::Watch(wanted) => self.plan.watch = Some(*wanted),
            Target::Priority(priority) => self.plan.priority = *priority,
            Target::Owner(id) if !self.is_final.owner => {
                self.is_final.owner = assign.operator == Operator::Final;
                self.uid = self.id(assign, id, owner::user).or(self.uid);
            }
            Target::Group(id) if !self.is_final.group => {
                self.is_final.group = assign.operator == Operator::Final;
                self.gid = self.id(assign, id, owner::group).or(self.gid);
            }
            Target::Mode(id) if !self.is_final.mode => {
                self.is_final.mode = assign.operator == Operator::Final;
                self.mode = self.id(assign, id, owner::mode).or(self.mode);
            }
            Target::Tag(tag) => self.tag(assign, tag),
            Target::Env(key, value) => self.property(assign, key, value),
            Target::Name(name) if !self.is_final.name => self.name(assign, name),
            Target::Links(names) if !self.is_final.links => self.links(assign, names),
            Target::Attribute(name, value) => {
                let name = self.expand(name, false);
                let sysfs = self.world.sysfs;
                let path = super::attribute::locate(sysfs, &self.event.devpath, &name);
                let value = self.expand(value, false).into_owned();
                self.write(path, value);
            }
            Target::Sysctl(name, value) => {
                let path = self.sysctl_path(name);
                let value = self.expand(value, false).into_owned();
                self.write(path, value);
            }
            Target::Modules(builtin) if !self.is_final.modules => {
                self.modules(assign, builtin.as_ref());
            }
            // Static nodes, handled elsewhere, and targets that are final.
            _ => {}
        }
    }

    fn id(&self, assign: &Assign, id: &Id, known: fn(&str) -> Option<u32>) -> Option<u32> {
        let template = match id {
            Id::Known(id) => return Some(*id),
            Id::Open(template) => template,
        };
        let text = self.expand(template, false);
        let found = known(text.trim());
        // An unknown constant was reported when the file was read.
        if found.is_none() && template.plain().is_none() {
            warn!("{}: {}: {text:?} is unknown", assign.at, self.event);
        }
        found
    }

    fn tag(&mut self, assign: &Assign, tag: &Template) {
        let tag = self.expand(tag, false).into_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if matches!(assign.operator, Operator::Assign | Operator::Final) {
            self.plan.tags.clear();
        }
        if tag.is_empty() {
            return;
        }
        if !tag.chars().all(plain) {
            // A tag is a file name below the database's directory.
            warn!("{}: {}: {tag:?} is not a valid tag", assign.at, self.event);
        } else if assign.operator == Operator::Remove {
            self.plan.tags.remove(&tag);
        } else {
            self.plan.tags.insert(tag);
        }
    }

    fn property(&mut self, assign: &Assign, key: &str, value: &Template) {
        let mut new = self.expand(value, false).into_owned();
        if self.escape == Escape::Replace {
            new = safe(&new, "");
        }
        if assign.operator == Operator::Add && !new.is_empty() {
            let old = self.env(key).filter(|old| !old.is_empty());
            new = old.map_or_else(|| new.clone(), |old| format!("{old} {new}"));
        }
        self.set_env(key, new);
    }

    /// Sets the new name of a network interface. Only interfaces can be renamed.
    fn name(&mut self, assign: &Assign, name: &Template) {
        self.is_final.name = assign.operator == Operator::Final;
        if self.event.subsystem != "net" || self.is_removal() {
            return;
        }
        let name = self.expand(name, true).into_owned();
        let usable = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
        let special = matches!(name.as_str(), "." | ".." | "all" | "default");
        // A name of digits only would be read as an index.
        let number = name.chars().all(|c| c.is_ascii_digit());
        if name.len() > MAX_INTERFACE || !name.chars().all(usable) || special || number {
            warn!(
                "{}: {}: {name:?} is not a valid interface name",
                assign.at, self.event
            );
            return;
        }
        self.plan.name = Some(name);
    }

    fn links(&mut self, assign: &Assign, names: &Template) {
        self.is_final.links = assign.operator == Operator::Final;
        if self.event.node().is_none() || self.is_removal() {
            return;
        }
        if matches!(assign.operator, Operator::Assign | Operator::Final) {
            self.plan.links.clear();
        }
        let names = self.expand(names, self.escape != Escape::None);
        let names = match self.escape {
            Escape::Usual => safe(&names, "/ "),
            Escape::Replace => safe(&names, "/"),
            Escape::None => names.into_owned(),
        };
        let own = self.event.node().map(|node| node.name.to_owned());
        for name in names.split_whitespace() {
            let name = name.strip_prefix("/dev/").unwrap_or(name);
            if !is_plain_path(name) {
                warn!(
                    "{}: {}: {name:?} is not a valid link name",
                    assign.at, self.event
                );
            } else if assign.operator == Operator::Remove {
                self.plan.links.remove(name);
            } else if own.as_deref() != Some(name) {
                self.plan.links.insert(name.to_owned());
            }
        }
    }

    /// Adds a write. Skips a file that does not exist.
    fn write(&mut self, path: Option<PathBuf>, value: String) {
        if let Some(path) = path {
            self.plan.writes.push(Write { path, value });
        }
    }

    fn modules(&mut self, assign: &Assign, builtin: Option<&Builtin>) {
        self.is_final.modules = assign.operator == Operator::Final;
        if matches!(assign.operator, Operator::Assign | Operator::Final) {
            self.plan.modules.truncate(self.default_modules);
        }
        let modules = builtin.map(|builtin| builtin.modules(self));
        for module in modules.into_iter().flatten() {
            if !self.plan.modules.contains(&module) {
                self.plan.modules.push(module);
            }
        }
    }

    /// The plan after all rules.
    pub fn finish(mut self) -> Plan {
        // Properties with a leading dot are private to the rules.
        self.plan.properties.retain(|key, _| !key.starts_with('.'));
        if (self.mode, self.uid, self.gid) != (None, None, None) && self.event.node().is_some() {
            let before = self.plan.permission.or_else(|| self.kernel_permission());
            let permission = owner::permission(before, self.mode, self.uid, self.gid);
            self.plan.permission = Some(permission);
        }
        self.plan
    }

    /// The driver's default permission of the node.
    fn kernel_permission(&self) -> Option<Permission> {
        let number = |key| self.event.property(key)?.parse().ok();
        Some(Permission {
            mode: owner::mode(self.event.property("DEVMODE")?)?,
            uid: number("DEVUID").unwrap_or_default(),
            gid: number("DEVGID").unwrap_or_default(),
        })
    }
}

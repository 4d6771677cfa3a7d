//! Applies rules to an event: evaluates conditions. Assignments are in [`super::assign`]. Reads sysfs and the database;
//! writes nothing.

use super::attribute;
use super::builtin::Builtin;
use super::evaluation::{Evaluation, World};
use super::expand::kernel_name;
use super::pattern::Pattern;
use super::rule::{Escape, Rule, Source, SourceKind, Subject, Test};
use super::template::Template;
use crate::database::Record;
use crate::event::{Event, Properties};
use crate::plan::Plan;
use crate::sysfs::Ancestor;
use std::fs;
use std::path::PathBuf;

/// Applies `rules` to an event, starting with `plan`.
pub fn apply<'a>(
    rules: &'a [Rule],
    world: &'a World<'a>,
    event: &'a Event,
    plan: Plan,
    old: Option<&'a Record>,
) -> Plan {
    let mut evaluation = Evaluation::new(world, event, plan, old);
    let mut index = 0;
    while let Some(rule) = rules.get(index) {
        let holds = evaluation.line(rule);
        index = match rule.next.filter(|_| holds) {
            Some(next) => next,
            None => index + 1,
        };
    }
    evaluation.finish()
}

impl<'a> Evaluation<'a> {
    /// Executes the assignments of a line if its conditions hold. Returns whether they hold.
    fn line(&mut self, rule: &'a Rule) -> bool {
        self.escape = Escape::Usual;
        let holds = rule.tests.iter().all(|test| self.holds(test, None))
            && (rule.parents.is_empty() || self.select(&rule.parents))
            && rule.sources.iter().all(|source| self.fetch(source));
        if holds {
            for assign in &rule.assigns {
                self.assign(assign);
            }
        }
        holds
    }

    /// Selects the nearest device for which all `tests` hold.
    fn select(&mut self, tests: &'a [Test]) -> bool {
        self.selected = (0..self.chain().len())
            .find(|index| tests.iter().all(|test| self.holds(test, Some(*index))));
        self.selected.is_some()
    }

    /// Whether `test` holds for the device, or for the ancestor with index `above`.
    fn holds(&self, test: &Test, above: Option<usize>) -> bool {
        let pattern = &test.pattern;
        let fits = |text: &str| pattern.matches(text) != test.negated;
        let event = self.event;
        let device = || self.chain().get(above.unwrap_or_default());
        match (&test.subject, above) {
            (Subject::Action, _) => fits(event.action.name()),
            (Subject::Devpath, _) => fits(&event.devpath),
            (Subject::Kernel, None) => fits(&kernel_name(event.sysname())),
            (Subject::Kernel, Some(_)) => device().is_some_and(|d| fits(&kernel_name(d.sysname()))),
            (Subject::Subsystem, None) => fits(&event.subsystem),
            (Subject::Subsystem, Some(_)) => device().is_some_and(|d| fits(&d.subsystem)),
            (Subject::Link, _) => {
                self.plan.links.iter().any(|link| pattern.matches(link)) != test.negated
            }
            (Subject::Tag, None | Some(0)) => {
                self.plan.tags.iter().any(|tag| pattern.matches(tag)) != test.negated
            }
            (Subject::Tag, Some(_)) => {
                let tags = device()
                    .and_then(|d| self.record(d))
                    .unwrap_or_default()
                    .tags;
                tags.iter().any(|tag| pattern.matches(tag)) != test.negated
            }
            (Subject::Name, _) => fits(self.plan.name.as_deref().unwrap_or_default()),
            (Subject::Env(key), _) => fits(&self.env(key).unwrap_or_default()),
            (Subject::Const(constant), _) => fits(constant.value(self.world.sysfs)),
            (Subject::Driver, _) => {
                let driver = device().and_then(|d| self.world.sysfs.link(&d.devpath, "driver"));
                fits(&driver.unwrap_or_default())
            }
            (Subject::Attribute(name), _) => {
                let name = self.expand(name, false);
                let value = self.attribute(above.unwrap_or_default(), &name);
                // A missing attribute matches neither `==` nor `!=`.
                value.is_some_and(|value| fits(asked(pattern, &value)))
            }
            (Subject::Sysctl(name), _) => {
                let value = self
                    .sysctl_path(name)
                    .and_then(|p| fs::read_to_string(p).ok());
                value.is_some_and(|value| fits(value.trim_end()))
            }
        }
    }

    /// Whether the source holds. Imports the properties it finds.
    fn fetch(&mut self, source: &'a Source) -> bool {
        let found = match &source.kind {
            SourceKind::File { path, mode } => self.has_file(path, *mode),
            // No program runs, so there is no result either.
            SourceKind::Program => false,
            SourceKind::Result(pattern) => pattern.matches(""),
            SourceKind::Properties(path) => {
                let text = fs::read_to_string(&*self.expand(path, false));
                self.take(text.ok().map(|text| assignments(&text)))
            }
            SourceKind::Builtin(builtin @ Builtin::Kmod(_)) => {
                let modules = builtin.modules(self);
                self.plan.modules.extend(modules);
                true
            }
            SourceKind::Builtin(builtin) => {
                let found = builtin.properties(self);
                self.take(found)
            }
            SourceKind::Database(key) => {
                let value = self.old.and_then(|old| old.properties.get(&**key));
                let found = value.map(|value| [(key.to_string(), value.clone())].into());
                self.take(found)
            }
            SourceKind::CommandLine(key) => {
                let line = fs::read_to_string(self.world.proc.join("cmdline"));
                let value = line.ok().and_then(|line| parameter(&line, key));
                self.take(value.map(|value| [(key.to_string(), value)].into()))
            }
            SourceKind::Parent(pattern) => {
                let found = self.parent_properties().map(|mut all| {
                    all.retain(|key, _| pattern.matches(key));
                    all
                });
                self.take(found)
            }
        };
        found != source.negated
    }

    fn take(&mut self, found: Option<Properties>) -> bool {
        let is_there = found.is_some();
        for (key, value) in found.into_iter().flatten() {
            self.set_env(&key, value);
        }
        is_there
    }

    fn has_file(&self, path: &'a Template, mode: Option<u32>) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let path = self.expand(path, false);
        let path = match path.starts_with('/') {
            true => Some(PathBuf::from(&*path)),
            false => attribute::locate(self.world.sysfs, &self.event.devpath, &path),
        };
        let found = path.and_then(|path| fs::metadata(path).ok());
        found.is_some_and(|found| mode.is_none_or(|mode| found.mode() & mode != 0))
    }

    /// Properties of the parent device, from the kernel and the database.
    fn parent_properties(&self) -> Option<Properties> {
        let parent = self.chain().get(1)?;
        let event = self.world.sysfs.event(&parent.devpath).ok()?;
        let record = event.id().and_then(|id| self.world.database.load(&id));
        let mut all = event.properties;
        all.extend(record.unwrap_or_default().properties);
        Some(all)
    }

    fn record(&self, device: &Ancestor) -> Option<Record> {
        let id = self.world.sysfs.event(&device.devpath).ok()?.id()?;
        self.world.database.load(&id)
    }
}

/// An attribute's value; without trailing white space unless the pattern asks for it.
fn asked<'v>(pattern: &Pattern, value: &'v str) -> &'v str {
    match pattern.ends_in_space() {
        true => value,
        false => value.trim_end(),
    }
}

/// Parses lines `KEY=value`, with optional quotes around the value. Skips other lines.
fn assignments(text: &str) -> Properties {
    let line = |line: &str| {
        let (key, value) = line.trim().split_once('=')?;
        let key = key.trim_end();
        let value = value.trim_start();
        let quoted = ['"', '\'']
            .iter()
            .find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q));
        let skipped = key.is_empty() || key.starts_with('#');
        (!skipped).then(|| (key.to_owned(), quoted.unwrap_or(value).to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Value of a kernel parameter; `1` for one without a value.
fn parameter(line: &str, key: &str) -> Option<String> {
    line.split_whitespace()
        .rev()
        .find_map(|word| match word.split_once('=') {
            Some((name, value)) => (name == key).then(|| value.to_owned()),
            None => (word == key).then(|| "1".to_owned()),
        })
}

//! Rule files in udev's language (udev(7)): read once, applied to every event.
//!
//! [`files`] finds the files, [`lexer`] cuts them into `KEY op "value"` words,
//! [`word`] and [`parse`] make typed rules of these, [`eval`] lets an event run through
//! them. A line that is broken is a [`Problem`] and is skipped alone; so is
//! what this node cannot do, such as running a program.
//!
//! The built-in defaults come before all files: a rule sees what they found
//! and may change what they decided.

mod assign;
mod attribute;
mod builtin;
mod constant;
mod eval;
mod expand;
mod files;
mod lexer;
mod owner;
mod parse;
mod pattern;
mod rule;
mod template;
mod word;

pub use eval::World;
pub use files::{DIRECTORIES, FileSet};
pub use rule::StaticNode;

use crate::database::Record;
use crate::event::Event;
use crate::plan::Plan;
use rule::Rule;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A place in a rule file; counted from 1, the column in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file.
    pub file: Arc<str>,
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// What a problem takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Right, but this node cannot do it: the key has no effect, or as a
    /// condition never holds.
    Unsupported,
    /// Not the language: the line is skipped.
    Broken,
}

/// Something in a rule file that will not do what its author wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: Position,
    /// How bad.
    pub severity: Severity,
    /// What.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.text)
    }
}

/// All rules, in the order they apply.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Reads the files of `directories`, of which the first hides files of the
    /// same name in later ones. What cannot be used is told, the rest counts.
    pub fn load(directories: &[PathBuf]) -> (Self, Vec<Problem>) {
        let (mut rules, mut problems) = (Self::default(), Vec::new());
        for file in FileSet::find(directories).read(&mut problems) {
            rules.add(&file.name, &file.bytes, &mut problems);
        }
        (rules, problems)
    }

    /// Appends the rules of one file.
    pub fn add(&mut self, name: &str, bytes: &[u8], problems: &mut Vec<Problem>) {
        parse::file(&name.into(), bytes, &mut self.rules, problems);
    }

    /// How many lines there are that do something.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Lets `event`, for which the defaults want `plan`, run through the rules.
    /// `old` is what the database has about the device.
    pub fn apply(
        &self,
        world: &World<'_>,
        event: &Event,
        plan: Plan,
        old: Option<&Record>,
    ) -> Plan {
        if self.rules.is_empty() {
            return plan;
        }
        eval::apply(&self.rules, world, event, plan, old)
    }

    /// The nodes of modules that are not loaded yet, and what they shall be
    /// (`OPTIONS+="static_node=..."`).
    pub fn static_nodes(&self) -> Vec<StaticNode> {
        self.rules.iter().flat_map(Rule::static_nodes).collect()
    }
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;

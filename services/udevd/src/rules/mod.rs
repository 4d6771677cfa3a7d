//! Rule files in udev's language (udev(7)): read once, applied to every event after the built-in defaults.
//!
//! [`files`] finds the files, [`lexer`] makes words, [`word`] and [`parse`] make typed rules, [`eval`] applies them. A
//! broken line, or one that the node cannot obey (it runs a program), is a [`Problem`]; only that line is skipped.

mod assign;
mod attribute;
mod builtin;
mod constant;
mod eval;
mod evaluation;
mod expand;
mod files;
mod lexer;
mod owner;
mod parse;
mod pattern;
mod rule;
mod run;
mod template;
mod word;

pub use evaluation::World;
pub use files::{DIRECTORIES, FileSet};
pub use rule::StaticNode;

use crate::database::Record;
use crate::event::Event;
use crate::plan::Plan;
use rule::Rule;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A position in a rule file. Line and column count from 1; the column counts bytes.
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

/// Effect of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Valid, but not possible on this node: an assignment has no effect, a condition never holds.
    Unsupported,
    /// Not valid: the line is skipped.
    Broken,
}

/// A part of a rule file that does not work as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Position of the problem.
    pub at: Position,
    /// Effect of the problem.
    pub severity: Severity,
    /// Description of the problem.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.text)
    }
}

/// All rules in the order they apply.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Reads the rule files of `directories`. A file hides files of the same name in later directories. Returns the
    /// usable rules and all problems.
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

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Applies the rules to `event`. `plan` is the plan of the defaults, and `old` is the stored record of the device.
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

    /// Permissions of static nodes, whose modules are not loaded yet (`OPTIONS+="static_node=..."`).
    pub fn static_nodes(&self) -> Vec<StaticNode> {
        self.rules.iter().flat_map(Rule::static_nodes).collect()
    }
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;

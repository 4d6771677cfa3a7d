//! What is wrong with a document.

use std::fmt;

/// A place in the text, both counted from 1. `Ord` is reading order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Mark {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// One thing that is wrong, and where. Never quotes a value that may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 when the whole document is meant.
    pub line: usize,
    /// Column, from 1; 0 when the whole document is meant.
    pub column: usize,
    /// The field, as in `machine.network.hostname`; empty for the document.
    pub path: String,
    /// What is wrong, for a person.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a document, in reading order; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// `None` when there is nothing wrong.
    pub(crate) fn from_list(mut list: Vec<Problem>) -> Option<Problems> {
        list.sort_by(|a, b| (a.line, a.column, &a.path).cmp(&(b.line, b.column, &b.path)));
        (!list.is_empty()).then_some(Problems(list))
    }

    pub(crate) fn one(mark: Mark, message: impl Into<String>) -> Problems {
        let mut notes = Notes::default();
        notes.add(mark, "", message);
        Problems(notes.0)
    }

    /// The problems, in reading order.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Collects problems while a document is read.
#[derive(Debug, Default)]
pub(crate) struct Notes(pub(crate) Vec<Problem>);

impl Notes {
    pub(crate) fn add(&mut self, mark: Mark, path: &str, message: impl Into<String>) {
        self.0.push(Problem {
            line: mark.line,
            column: mark.column,
            path: path.to_owned(),
            message: message.into(),
        });
    }
}

//! Problems of a document.

use std::fmt;

/// Limit of reported problems; further ones are only counted. A hostile document must not make the response larger than
/// itself.
const MAX_PROBLEMS: usize = 100;

/// A place in the text, counted from 1. `Ord` is reading order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark {
    /// Line; 0 for the whole document.
    pub line: usize,
    /// Column; 0 for the whole document.
    pub column: usize,
}

/// A problem and its place. Never quotes a value that may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 for the whole document.
    pub line: usize,
    /// Column, from 1; 0 for the whole document.
    pub column: usize,
    /// Path of the field, as in `machine.network.hostname`; empty for the document.
    pub path: String,
    /// Description for people.
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

/// All problems of a document, in reading order; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// A single problem.
    #[must_use]
    pub fn one(mark: Mark, message: impl Into<String>) -> Problems {
        let mut notes = Notes::default();
        notes.add(mark, "", message);
        Problems(notes.list)
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

/// Collects problems while a document is parsed.
#[derive(Debug, Default)]
pub struct Notes {
    /// Prefix of every message: the document, when there are several. Empty or ends in `: `.
    pub subject: String,
    list: Vec<Problem>,
    further: usize,
    /// Settings that the document may have without an effect; `None`: it may not.
    left_out: Option<Vec<String>>,
}

impl Notes {
    /// Notes on a document whose unsupported settings are left out.
    #[must_use]
    pub fn lenient() -> Notes {
        Notes {
            left_out: Some(Vec::new()),
            ..Notes::default()
        }
    }

    /// Reports a setting without an effect; `false`: the document may not have such. A message beyond the limit is lost.
    pub fn leave_out(&mut self, mark: Mark, message: &str) -> bool {
        let Some(left_out) = &mut self.left_out else {
            return false;
        };
        if left_out.len() < MAX_PROBLEMS {
            left_out.push(format!(
                "line {}, column {}: {message}",
                mark.line, mark.column
            ));
        }
        true
    }

    /// The settings without an effect.
    pub fn take_left_out(&mut self) -> Vec<String> {
        self.left_out.take().unwrap_or_default()
    }

    /// Adds a problem of the field at `path`. Beyond the limit it is only counted.
    pub fn add(&mut self, mark: Mark, path: &str, message: impl Into<String>) {
        if self.is_full() {
            self.further += 1;
            return;
        }
        self.list.push(Problem {
            line: mark.line,
            column: mark.column,
            path: path.to_owned(),
            message: format!("{}{}", self.subject, message.into()),
        });
    }

    /// Whether there is no problem.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether further problems are only counted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.list.len() >= MAX_PROBLEMS
    }

    /// `None` when there are no problems.
    #[must_use]
    pub fn into_problems(mut self) -> Option<Problems> {
        self.list
            .sort_by(|a, b| (a.line, a.column, &a.path).cmp(&(b.line, b.column, &b.path)));
        if self.further > 0 {
            self.list.push(Problem {
                line: 0,
                column: 0,
                path: String::new(),
                message: format!("and {} more problems", self.further),
            });
        }
        (!self.list.is_empty()).then_some(Problems(self.list))
    }

    /// `good`, unless there are problems.
    ///
    /// # Errors
    /// All problems.
    pub fn into_result<T>(self, good: T) -> Result<T, Problems> {
        self.into_problems().map_or(Ok(good), Err)
    }
}

/// Makes a field name from outside safe for a terminal or a log: short and without control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

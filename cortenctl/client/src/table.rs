//! Tables: columns padded to their widest cell, three spaces between them, the
//! last one not padded.

use std::io::{self, Write};

/// Spaces between two columns.
const GAP: usize = 3;

/// Number of pending rows that are printed at once, with their common widths.
const MANY: usize = 1000;

/// Rows of text under a header.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(header: &[&str]) -> Table {
        let mut table = Table::default();
        table.row(header.iter().copied());
        table
    }

    /// Adds a row. Replaces control characters in cells: cells from a node could otherwise break
    /// the table or control the terminal.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells = cells.into_iter().map(|cell| printable(cell.as_ref()));
        self.rows.push(cells.collect());
    }

    /// The whole table as text.
    pub fn render(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (index, cell) in row.iter().enumerate() {
                let width = cell.chars().count();
                match widths.get_mut(index) {
                    Some(widest) => *widest = width.max(*widest),
                    None => widths.push(width),
                }
            }
        }
        let lines = self.rows.iter().map(|row| line(row, &widths));
        lines.collect()
    }
}

/// A table that is printed as it grows: columns get wider, never narrower.
#[derive(Debug, Default)]
pub struct Rows {
    widths: Vec<usize>,
    waiting: Vec<Vec<String>>,
}

impl Rows {
    /// A table without rows.
    pub fn new(header: Vec<String>) -> Rows {
        let mut rows = Rows::default();
        rows.row(header);
        rows
    }

    /// Whether it has not even a header.
    pub fn is_empty(&self) -> bool {
        self.widths.is_empty()
    }

    /// Adds a row; see [`Table::row`].
    pub fn row(&mut self, cells: Vec<String>) {
        let cells: Vec<String> = cells.iter().map(|cell| printable(cell)).collect();
        self.widths.resize(cells.len().max(self.widths.len()), 0);
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = cell.chars().count().max(*width);
        }
        self.waiting.push(cells);
    }

    /// Renders once many rows are pending, else returns nothing: a node's list may be larger than
    /// our memory.
    pub(crate) fn render_many(&mut self) -> String {
        if self.waiting.len() < MANY {
            return String::new();
        }
        self.render()
    }

    /// Renders the rows added since the last call.
    pub fn render(&mut self) -> String {
        let mut text = String::new();
        for row in std::mem::take(&mut self.waiting) {
            text.push_str(&line(&row, &self.widths));
        }
        text
    }
}

/// A row of a table.
fn line(row: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    let last = row.len().saturating_sub(1);
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        text.push_str(cell);
        if index < last {
            let padding = (width + GAP).saturating_sub(cell.chars().count());
            text.extend(std::iter::repeat_n(' ', padding));
        }
    }
    text.push('\n');
    text
}

/// A text without control characters.
pub fn printable(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(visible).collect()
}

/// A document of several lines without control characters. Most of them are escaped already; those
/// from U+0080 to U+009F are not.
pub fn harmless(document: &str) -> String {
    let visible = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => '?',
        c => c,
    };
    document.chars().map(visible).collect()
}

/// Writes to stdout. A closed pipe is an error here, which the exit code ignores.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NODE", "A", "LONG HEADER", "LAST"]);
        table.row(["n", "1234567", "x", "y"]);
        table.row(["ünï", "1", "", ""]);
        let expected = "NODE   A         LONG HEADER   LAST\n\
                        n      1234567   x             y\n\
                        ünï    1                       \n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn a_node_cannot_steer_the_terminal() {
        let mut table = Table::new(&["NODE", "COMMAND"]);
        table.row(["n", "evil\u{1b}[2J\nrow"]);
        assert_eq!(table.render(), "NODE   COMMAND\nn      evil?[2J?row\n");
    }

    #[test]
    fn a_growing_table_prints_every_row_once() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        let mut rows = Rows::new(row(&["NODE", "ID"]));
        rows.row(row(&["longer", "a"]));
        assert_eq!(rows.render(), "NODE     ID\nlonger   a\n");
        rows.row(row(&["n", "b"]));
        assert_eq!(rows.render(), "n        b\n");
        assert_eq!(rows.render(), "");
    }
}

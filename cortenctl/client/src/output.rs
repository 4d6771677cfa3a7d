//! The path that the answers of every verb take to the output.

use serde_json::{Map, Value};

use crate::answers::Answers;
use crate::failure::Failure;
use crate::format::Format;
use crate::table::{Rows, print};

/// Prints the nodes' answers, as text or as a list with an item per node, and reports the failed
/// nodes.
pub fn show<M>(
    answers: Answers<M>,
    format: &Format,
    text: impl FnOnce(&[(String, M)]) -> String,
    item: impl Fn(&M) -> Value,
) -> Result<(), Failure> {
    // A header without rows would look like an answer.
    if !answers.good.is_empty() || answers.failed.is_empty() {
        let text = match format {
            Format::Table => text(&answers.good),
            Format::Document(form) => {
                let items = answers.good.iter();
                let items = items.map(|(node, message)| with_node(node, item(message)));
                form.list(items.collect())?
            }
        };
        print(&text)?;
    }
    answers.finish()
}

/// An answer with the node it is from.
pub fn with_node(node: &str, item: Value) -> Value {
    let mut object = Map::new();
    object.insert("node".to_owned(), Value::from(node));
    if let Value::Object(fields) = item {
        object.extend(fields);
    }
    Value::Object(object)
}

/// Answers that are printed as they arrive: rows of a table, or parts of a list.
#[derive(Debug)]
pub struct Items<'a> {
    format: &'a Format,
    rows: Rows,
    used: bool,
}

impl<'a> Items<'a> {
    /// No answers yet; `header` is that of the table.
    pub fn new(format: &'a Format, header: Vec<String>) -> Items<'a> {
        Items {
            format,
            rows: Rows::new(header),
            used: false,
        }
    }

    /// Takes an answer and prints its row or its item, depending on the format.
    pub fn add(
        &mut self,
        node: &str,
        row: impl FnOnce() -> Vec<String>,
        item: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        self.used = true;
        let text = match self.format {
            Format::Table => {
                self.rows.row(row());
                self.rows.render_many()
            }
            Format::Document(form) => form.part(with_node(node, item()))?,
        };
        Ok(print(&text)?)
    }

    /// Whether there was an answer.
    pub fn used(&self) -> bool {
        self.used
    }

    /// Prints pending rows; for a table without rows, its header.
    pub fn finish(mut self) -> Result<(), Failure> {
        if *self.format == Format::Table {
            print(&self.rows.render())?;
        }
        Ok(())
    }
}

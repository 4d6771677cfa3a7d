//! The shared part of `list` and `usage`: rows printed as they arrive, and errors of single files.

use corten_client::failure::{Failure, finish};
use corten_client::format::Format;
use corten_client::output::Items;
use corten_client::stream::Failed;
use corten_client::table::printable;
use corten_client::units;
use serde_json::Value;

/// Files of nodes.
pub(super) struct Listing<'a> {
    items: Items<'a>,
    /// Whether any file had an error.
    broken: bool,
}

impl<'a> Listing<'a> {
    pub(super) fn new(format: &'a Format, header: Vec<String>) -> Listing<'a> {
        Listing {
            items: Items::new(format, header),
            broken: false,
        }
    }

    /// Takes a file: prints its row or its item, or reports its `error`.
    pub(super) fn file(
        &mut self,
        node: &str,
        name: &str,
        error: &str,
        cells: impl FnOnce() -> Vec<String>,
        item: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        if error.is_empty() {
            return self.items.add(node, cells, item);
        }
        self.broken = true;
        let (node, name) = (printable(node), printable(name));
        eprintln!("error: {node}: {name}: {}", printable(error));
        Ok(())
    }

    /// Ends the verb. A header without rows would look like an answer.
    pub(super) fn finish(self, failed: &Failed) -> Result<(), Failure> {
        if self.items.used() || failed.is_empty() && !self.broken {
            self.items.finish()?;
        }
        finish(failed)?;
        if self.broken {
            Err(Failure::Told)
        } else {
            Ok(())
        }
    }
}

/// A file's size in bytes, or in readable units. A node may send a negative size.
pub(super) fn size(bytes: i64, humanize: bool) -> String {
    if humanize {
        units::signed_size(bytes)
    } else {
        bytes.to_string()
    }
}

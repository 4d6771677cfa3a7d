//! What `list` and `usage` have in common: rows that are printed as they come,
//! and files of which a node says an error instead.

use crate::answers::finish;
use crate::failure::Failure;
use crate::stream::Failed;
use crate::table::{Rows, print, printable};
use crate::units;

/// A table of files.
pub(super) struct Listing {
    rows: Rows,
    /// Whether a file had an error.
    broken: bool,
}

impl Listing {
    pub(super) fn new(header: Vec<String>) -> Listing {
        Listing {
            rows: Rows::new(header),
            broken: false,
        }
    }

    /// Takes a file: its row, unless `error` says why there is none.
    pub(super) fn file(
        &mut self,
        node: &str,
        name: &str,
        error: &str,
        cells: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Failure> {
        if error.is_empty() {
            self.rows.row(cells());
            return Ok(print(&self.rows.render_many())?);
        }
        self.broken = true;
        let (node, name) = (printable(node), printable(name));
        eprintln!("error: {node}: {name}: {}", printable(error));
        Ok(())
    }

    /// The end of the verb. A header over nothing would look like an answer.
    pub(super) fn finish(mut self, failed: &Failed) -> Result<(), Failure> {
        if self.rows.used() || failed.is_empty() && !self.broken {
            print(&self.rows.render())?;
        }
        finish(failed)?;
        if self.broken {
            Err(Failure::Told)
        } else {
            Ok(())
        }
    }
}

/// A file's size in bytes, or for people. A node may say less than nothing.
pub(super) fn size(bytes: i64, humanize: bool) -> String {
    if humanize {
        units::signed_size(bytes)
    } else {
        bytes.to_string()
    }
}

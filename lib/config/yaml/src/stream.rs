//! Splits bytes into documents.

use crate::MAX_SIZE;
use crate::problem::{Mark, Notes, Problems};
use crate::tree::{self, Node};

/// Parses a stream with at least one non-empty document; empty ones are skipped.
///
/// # Errors
/// The bytes are too many, or not text. Problems of the documents are in `notes`.
pub fn read_some<'a>(bytes: &'a [u8], notes: &mut Notes) -> Result<(&'a str, Vec<Node>), Problems> {
    let (text, trees) = read(bytes, notes)?;
    if trees.is_empty() && notes.is_empty() {
        notes.add(Mark::default(), "", "the config is empty");
    }
    Ok((text, trees))
}

/// Parses a stream that may be empty.
///
/// # Errors
/// The bytes are too many, or not text. Problems of the documents are in `notes`.
pub fn read<'a>(bytes: &'a [u8], notes: &mut Notes) -> Result<(&'a str, Vec<Node>), Problems> {
    if bytes.len() > MAX_SIZE {
        let message = format!("larger than {} MiB", MAX_SIZE / 1024 / 1024);
        return Err(Problems::one(Mark::default(), message));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = good.split(|b| *b == b'\n').count();
        Problems::one(Mark { line, column: 1 }, "not UTF-8 text")
    })?;
    let trees = tree::read(text, notes).into_iter().flatten().collect();
    Ok((text, trees))
}

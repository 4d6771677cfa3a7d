//! The serial console, which QEMU writes to a file.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A view of the captured console. Cheap to clone; reading does not affect the guest.
#[derive(Debug, Clone)]
pub struct Console {
    path: PathBuf,
}

impl Console {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The log file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole text so far; invalid UTF-8 is replaced. Empty before the guest's first output.
    #[must_use]
    pub fn text(&self) -> String {
        self.since(0).0
    }

    /// The text after byte `offset`, and the offset for the next call.
    #[must_use]
    pub fn since(&self, offset: u64) -> (String, u64) {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(offset))?;
            file.read_to_end(&mut bytes)
        });
        let end = read.map_or(offset, |n| offset + n as u64);
        (String::from_utf8_lossy(&bytes).into_owned(), end)
    }

    /// The last `lines` lines.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let text = self.text();
        let all: Vec<&str> = text.lines().collect();
        let from = all.len().saturating_sub(lines);
        all.get(from..).unwrap_or_default().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_reader_follows_a_growing_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console.log");
        let console = Console::new(path.clone());
        assert_eq!(console.text(), "");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        let (text, offset) = console.since(0);
        assert_eq!((text.as_str(), offset), ("one\ntwo\n", 8));
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(console.since(offset).0, "three\n");
        assert_eq!(console.tail(2), "two\nthree");
        assert_eq!(console.tail(9), "one\ntwo\nthree");
    }
}

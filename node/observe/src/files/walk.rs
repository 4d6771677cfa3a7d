//! Walks a file tree, one entry at a time.
//!
//! Memory is bounded by the tree's depth, not its size: at most [`RUN`] names per directory are held. A directory with
//! up to that many names is sorted, a larger one comes in sorted runs. Links are not followed, except at the root.

use std::ffi::OsString;
use std::fs::{self, Metadata, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::vec;

/// Limit of names held per directory.
const RUN: usize = 8192;

/// A file of the walk.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// Depth below the root, which has depth 0.
    pub(super) depth: usize,
    pub(super) metadata: Metadata,
}

/// A step of the walk.
#[derive(Debug)]
pub(super) enum Step {
    /// A file. A directory's entries follow it.
    Entry(Entry),
    /// A file whose metadata is unreadable, or a directory that cannot be read completely.
    Failed(PathBuf, io::Error),
    /// The end of the innermost open directory.
    Left,
}

/// State of the walk.
#[derive(Debug)]
pub(super) struct Walk {
    root: PathBuf,
    deepest: Option<usize>,
    /// The directory to enter next.
    pending: Option<PathBuf>,
    first: Option<Metadata>,
    open: Vec<Directory>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    names: vec::IntoIter<OsString>,
    /// `None` after the last name was read.
    rest: Option<ReadDir>,
}

impl Walk {
    /// Starts at `root` and descends `deepest` levels.
    ///
    /// # Errors
    /// If `root` does not exist.
    pub(super) fn new(root: &Path, deepest: Option<usize>) -> io::Result<Walk> {
        // A dangling link is reported as a link.
        let first = fs::metadata(root).or_else(|_| fs::symlink_metadata(root))?;
        Ok(Walk {
            root: root.to_owned(),
            deepest,
            pending: None,
            first: Some(first),
            open: Vec::new(),
        })
    }

    /// An entry's path relative to the root. The root itself is `.`, or its name unless it is a directory.
    pub(super) fn relative(&self, entry: &Path, is_directory: bool) -> PathBuf {
        match entry.strip_prefix(&self.root) {
            Ok(rest) if !rest.as_os_str().is_empty() => rest.to_owned(),
            _ if is_directory => PathBuf::from("."),
            _ => entry.file_name().unwrap_or(entry.as_os_str()).into(),
        }
    }

    fn met(&mut self, path: PathBuf, depth: usize, metadata: Metadata) -> Step {
        if metadata.is_dir() && self.deepest.is_none_or(|deepest| depth < deepest) {
            self.pending = Some(path.clone());
        }
        Step::Entry(Entry {
            path,
            depth,
            metadata,
        })
    }
}

impl Iterator for Walk {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(first) = self.first.take() {
            let root = self.root.clone();
            return Some(self.met(root, 0, first));
        }
        if let Some(path) = self.pending.take() {
            let (rest, failed) = match fs::read_dir(&path) {
                Ok(entries) => (Some(entries), None),
                Err(error) => (None, Some(error)),
            };
            self.open.push(Directory {
                path: path.clone(),
                names: Vec::new().into_iter(),
                rest,
            });
            if let Some(error) = failed {
                return Some(Step::Failed(path, error));
            }
        }
        let depth = self.open.len();
        let directory = self.open.last_mut()?;
        match directory.next() {
            Some(Ok(name)) => {
                let path = directory.path.join(name);
                Some(match fs::symlink_metadata(&path) {
                    Ok(metadata) => self.met(path, depth, metadata),
                    Err(error) => Step::Failed(path, error),
                })
            }
            Some(Err(error)) => Some(Step::Failed(directory.path.clone(), error)),
            None => {
                self.open.pop();
                Some(Step::Left)
            }
        }
    }
}

impl Directory {
    fn next(&mut self) -> Option<io::Result<OsString>> {
        if let Some(name) = self.names.next() {
            return Some(Ok(name));
        }
        let rest = self.rest.as_mut()?;
        let mut names = Vec::new();
        let mut failed = None;
        while names.len() < RUN {
            match rest.next() {
                Some(Ok(entry)) => names.push(entry.file_name()),
                Some(Err(error)) => {
                    failed = Some(error);
                    self.rest = None;
                    break;
                }
                None => {
                    self.rest = None;
                    break;
                }
            }
        }
        names.sort_unstable();
        self.names = names.into_iter();
        match failed {
            Some(error) => Some(Err(error)),
            None => self.names.next().map(Ok),
        }
    }
}

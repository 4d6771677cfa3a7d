//! A file tree, an entry at a time.
//!
//! Memory is bounded by the depth of the tree, not by its size: of a directory at most [`RUN`] names are
//! held. They come in alphabetical order where a directory has no more than that, and in sorted runs
//! otherwise. Links are not followed, except the one the walk may begin with.

use std::ffi::OsString;
use std::fs::{self, Metadata, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::vec;

/// Names of a directory held at a time.
const RUN: usize = 8192;

/// A file and where it is.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// Levels below the root, which is 0.
    pub(super) depth: usize,
    pub(super) metadata: Metadata,
}

/// What a walk meets.
#[derive(Debug)]
pub(super) enum Step {
    /// A file. What is in a directory follows.
    Entry(Entry),
    /// A file that cannot be looked at, or a directory that cannot be read (to its end).
    Failed(PathBuf, io::Error),
    /// The end of the directory that was entered last and not left yet.
    Left,
}

/// The walk.
#[derive(Debug)]
pub(super) struct Walk {
    root: PathBuf,
    deepest: Option<usize>,
    /// Met last, and to be entered next.
    pending: Option<PathBuf>,
    first: Option<Metadata>,
    open: Vec<Directory>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    names: vec::IntoIter<OsString>,
    /// `None` when all its names have been read.
    rest: Option<ReadDir>,
}

impl Walk {
    /// Starts at `root`, and goes so many levels below it.
    ///
    /// # Errors
    /// When there is nothing.
    pub(super) fn new(root: &Path, deepest: Option<usize>) -> io::Result<Walk> {
        // A link to nothing is shown as what it is.
        let first = fs::metadata(root).or_else(|_| fs::symlink_metadata(root))?;
        Ok(Walk {
            root: root.to_owned(),
            deepest,
            pending: None,
            first: Some(first),
            open: Vec::new(),
        })
    }

    /// A path of the walk as seen from its root; the root itself is `.`, or its name if it is no directory.
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

//! Files of a directory that are reloaded when they change.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Retry interval for files that could not be loaded: the cause may lie outside of them.
const AGAIN: Duration = Duration::from_secs(30);

/// The version of the files: modification time, inode (files are replaced by rename) and length.
type Stamp<const N: usize> = [Option<(SystemTime, u64, u64)>; N];

/// Loads a value from a directory's files.
type Read<T, E> = dyn Fn(&Path) -> Result<T, E> + Send + Sync;

/// A value that is kept up to date with the files of a directory.
pub struct Reloaded<T, E, const N: usize> {
    /// Subject of log lines about a change: `apid: the certificates`.
    what: &'static str,
    directory: PathBuf,
    files: [&'static str; N],
    read: Box<Read<T, E>>,
    again: Duration,
    current: Mutex<Current<T, N>>,
}

struct Current<T, const N: usize> {
    stamp: Stamp<N>,
    value: Arc<T>,
    /// The last version that failed to load, and the time of that attempt.
    failed: Option<(Stamp<N>, Instant)>,
}

impl<T, E, const N: usize> fmt::Debug for Reloaded<T, E, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloaded")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl<T, E: fmt::Display, const N: usize> Reloaded<T, E, N> {
    /// Loads a value from the directory by `read`, which uses these files; some of them may be missing. `what` begins
    /// the log lines about a change: `apid: the certificates`.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn load(
        what: &'static str,
        directory: PathBuf,
        files: [&'static str; N],
        read: impl Fn(&Path) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let stamp = stamp(&directory, files);
        let value = Arc::new(read(&directory)?);
        Ok(Reloaded {
            what,
            directory,
            files,
            read: Box::new(read),
            again: AGAIN,
            current: Mutex::new(Current {
                stamp,
                value,
                failed: None,
            }),
        })
    }

    /// The current value. Changed files that fail to load leave the last good value in force.
    pub fn current(&self) -> Arc<T> {
        let stamp = stamp(&self.directory, self.files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = current.failed.filter(|(failed, _)| *failed == stamp);
        let is_early = failed.is_some_and(|(_, tried)| tried.elapsed() < self.again);
        if current.stamp != stamp && !is_early {
            match (self.read)(&self.directory) {
                Ok(new) => {
                    println!("{} were reloaded", self.what);
                    *current = Current {
                        stamp,
                        value: Arc::new(new),
                        failed: None,
                    };
                }
                Err(error) => {
                    // Logged once per change, not once per connection.
                    if failed.is_none() {
                        eprintln!(
                            "{} changed and cannot be used, the previous ones stay in use: {error}",
                            self.what
                        );
                    }
                    current.failed = Some((stamp, Instant::now()));
                }
            }
        }
        current.value.clone()
    }
}

fn stamp<const N: usize>(directory: &Path, files: [&str; N]) -> Stamp<N> {
    files.map(|name| {
        let metadata = fs::metadata(directory.join(name)).ok()?;
        Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_files_are_reloaded_and_invalid_files_change_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            let new = directory.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, directory.path().join("number")).unwrap();
        };
        let read = |directory: &Path| {
            let text = fs::read_to_string(directory.join("number")).map_err(|e| e.to_string())?;
            text.parse::<u32>().map_err(|e| e.to_string())
        };
        let load = || {
            Reloaded::load(
                "test: the files",
                directory.path().into(),
                ["number", "b"],
                read,
            )
        };
        load().unwrap_err();
        write("1");
        let files = load().unwrap();
        assert_eq!(*files.current(), 1);
        write("x");
        assert_eq!(*files.current(), 1);
        write("22");
        assert_eq!(*files.current(), 22);
        fs::remove_file(directory.path().join("number")).unwrap();
        assert_eq!(*files.current(), 22);
    }

    #[test]
    fn failed_reload_is_retried_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "1").unwrap();
        let broken = Arc::new(Mutex::new(false));
        let read = {
            let broken = broken.clone();
            move |directory: &Path| match *broken.lock().unwrap() {
                true => Err("no descriptors left".to_owned()),
                false => fs::read_to_string(directory.join("a")).map_err(|e| e.to_string()),
            }
        };
        let mut files =
            Reloaded::load("test: the files", directory.path().into(), ["a"], read).unwrap();
        *broken.lock().unwrap() = true;
        fs::write(&path, "22").unwrap();
        assert_eq!(*files.current(), "1");
        *broken.lock().unwrap() = false;
        // The next call does not retry at once.
        assert_eq!(*files.current(), "1");
        files.again = Duration::ZERO;
        assert_eq!(*files.current(), "22");
    }
}

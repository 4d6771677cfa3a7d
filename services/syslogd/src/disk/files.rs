//! The logs as files: `<log>.log`, and `<log>.log.1` with older lines. Each file is bounded, and so is their sum.

use super::writer::Keeper;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Length in bytes beyond which a file becomes the old one.
const LONGEST: u64 = 4 << 20;
/// Limit of all files in bytes. The oldest of the old files are deleted first.
const TOTAL: u64 = 128 << 20;

/// The file names of this daemon end in one of these.
const CURRENT: &str = ".log";
const OLD: &str = ".log.1";

#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    open: BTreeMap<String, (File, u64)>,
    longest: u64,
    total: u64,
}

impl Files {
    pub(super) fn open(directory: &Path) -> io::Result<Files> {
        Files::bounded(directory, LONGEST, TOTAL)
    }

    fn bounded(directory: &Path, longest: u64, total: u64) -> io::Result<Files> {
        // A missing directory is an error: the volume is not mounted.
        fs::read_dir(directory)?;
        Ok(Files {
            directory: directory.to_owned(),
            open: BTreeMap::new(),
            longest,
            total,
        })
    }

    fn path(&self, log: &str, ending: &str) -> PathBuf {
        self.directory.join(format!("{log}{ending}"))
    }

    fn rotate(&mut self, log: &str) -> io::Result<()> {
        self.open.remove(log);
        fs::rename(self.path(log, CURRENT), self.path(log, OLD))
    }

    /// Deletes old files, oldest first, until the sum fits. Without an old file the largest current file becomes one.
    fn make_room(&mut self) -> io::Result<()> {
        loop {
            let (mut sum, mut old, mut current) = (0, Vec::new(), Vec::new());
            for entry in fs::read_dir(&self.directory)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let data = match entry.metadata() {
                    // Other programs also write and delete in this directory.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    data => data?,
                };
                if !data.is_file() {
                    continue;
                }
                if name.ends_with(OLD) {
                    old.push((
                        data.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                        entry.path(),
                    ));
                } else if let Some(log) = name.strip_suffix(CURRENT) {
                    current.push((data.len(), log.to_owned()));
                } else {
                    continue;
                }
                sum += data.len();
            }
            if sum <= self.total {
                return Ok(());
            }
            match (old.into_iter().min(), current.into_iter().max()) {
                (Some((_, path)), _) => match fs::remove_file(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    done => done?,
                },
                (None, Some((_, log))) => self.rotate(&log)?,
                (None, None) => return Ok(()),
            }
        }
    }
}

impl Keeper for Files {
    const BUFFERS: bool = false;

    fn add(&mut self, log: &str, lines: &[u8]) -> io::Result<()> {
        if self
            .open
            .get(log)
            .is_some_and(|(_, length)| *length >= self.longest)
        {
            self.rotate(log)?;
        }
        if !self.open.contains_key(log) {
            // Refuse a link that another writer of this directory planted.
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o640)
                .custom_flags(i32::try_from(flags.bits()).map_err(io::Error::other)?)
                .open(self.path(log, CURRENT))?;
            let data = file.metadata()?;
            if !data.is_file() {
                return Err(io::Error::other(format!(
                    "{log}{CURRENT} is not a regular file"
                )));
            }
            self.open.insert(log.to_owned(), (file, data.len()));
        }
        let Some((file, length)) = self.open.get_mut(log) else {
            return Ok(());
        };
        if let Err(error) = file.write_all(lines) {
            // The lines are written again later, so remove the partial write.
            let _ = file.set_len(*length);
            return Err(error);
        }
        *length += lines.len() as u64;
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        self.make_room()
    }
}

#[cfg(test)]
mod tests {
    use super::{Files, Keeper as _};
    use std::fs;

    #[test]
    fn log_files_rotate_and_their_total_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let foreign = directory.path().join("pods.txt");
        fs::write(&foreign, vec![b'x'; 9000]).unwrap();
        let mut files = Files::bounded(directory.path(), 1000, 5000).unwrap();
        for n in 0..400 {
            let log = format!("log{}", n % 4);
            files
                .add(&log, format!("{log} {n} {}\n", "x".repeat(30)).as_bytes())
                .unwrap();
            files.settle().unwrap();
        }
        let size = |name: &str| fs::metadata(directory.path().join(name)).map_or(0, |m| m.len());
        let names: Vec<String> = (0..4)
            .flat_map(|n| [format!("log{n}.log"), format!("log{n}.log.1")])
            .collect();
        assert!(names.iter().all(|name| size(name) < 1050));
        let sum: u64 = names.iter().map(|name| size(name)).sum();
        assert!((3000..=5000).contains(&sum), "{sum}");
        assert!(
            fs::read_to_string(directory.path().join("log3.log"))
                .unwrap()
                .contains("log3 399 ")
        );
        assert_eq!(size("pods.txt"), 9000);
    }

    #[test]
    fn restart_appends_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let mut files = Files::open(directory.path()).unwrap();
            files.add("a", b"line\n").unwrap();
        }
        let path = directory.path().join("a.log");
        assert_eq!(fs::read_to_string(path).unwrap(), "line\nline\n");
        std::os::unix::fs::symlink("/dev/null", directory.path().join("b.log")).unwrap();
        let mut files = Files::open(directory.path()).unwrap();
        files.add("b", b"line\n").unwrap_err();
        Files::open(&directory.path().join("none")).unwrap_err();
    }
}

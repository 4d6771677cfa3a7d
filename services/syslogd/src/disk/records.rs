//! The tails of the logs for the next boot: a file of fixed size per log in `current/`, which the next boot renames to
//! `previous/`. The file `boot` holds the boot id of its directory.

use super::blocks::{self, BLOCK, Writer};
use super::writer::Keeper;
use crate::sources::KERNEL;
use crate::store::is_id;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const CURRENT: &str = "current";
const PREVIOUS: &str = "previous";
/// A directory whose creation a power loss interrupted.
const UNFINISHED: &str = "new";
const BOOT: &str = "boot";

/// Number of blocks: the last 64 KiB of a log, 256 KiB of the kernel's.
const BLOCKS: u64 = 16;
const KERNEL_BLOCKS: u64 = 64;
/// Length limit of a file in bytes.
const LONGEST: u64 = KERNEL_BLOCKS * BLOCK as u64;
/// Limit of recorded logs. Both directories take at most 2 x 4.2 MiB.
const MOST_LOGS: usize = 64;

#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    open: BTreeMap<String, Record>,
}

#[derive(Debug)]
struct Record {
    file: File,
    writer: Writer,
    touched: bool,
}

impl Records {
    /// Opens this boot's directory in `base`. A `current` directory of another boot first becomes `previous`.
    pub(super) fn open(base: &Path, boot: &str) -> io::Result<Records> {
        let directory = base.join(CURRENT);
        let whose = match fs::read_to_string(directory.join(BOOT)) {
            Ok(whose) => Some(whose),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if whose.as_deref() != Some(boot) {
            if whose.is_some() {
                remove(&base.join(PREVIOUS))?;
                fs::rename(&directory, base.join(PREVIOUS))?;
            } else {
                remove(&directory)?;
            }
            let new = base.join(UNFINISHED);
            remove(&new)?;
            fs::create_dir(&new)?;
            let mut file = File::create(new.join(BOOT))?;
            file.write_all(boot.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &directory)?;
            File::open(base)?.sync_all()?;
        }
        Ok(Records {
            directory,
            open: BTreeMap::new(),
        })
    }

    fn record(&mut self, log: &str) -> io::Result<Option<&mut Record>> {
        if !self.open.contains_key(log) {
            if self.open.len() >= MOST_LOGS {
                return Ok(None);
            }
            let record = Record::open(&self.directory, log)?;
            self.open.insert(log.to_owned(), record);
        }
        Ok(self.open.get_mut(log))
    }
}

impl Record {
    fn open(directory: &Path, log: &str) -> io::Result<Record> {
        let blocks = if log == KERNEL { KERNEL_BLOCKS } else { BLOCKS };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(file_name(log)))?;
        let mut old = Vec::new();
        (&file).take(LONGEST + 1).read_to_end(&mut old)?;
        let length = usize::try_from(blocks).map_err(io::Error::other)? * BLOCK;
        if old.len() != length {
            // Allocates the file once, so that later writes need no space of the volume.
            file.set_len(0)?;
            file.write_all_at(&vec![0; length], 0)?;
            file.sync_all()?;
            File::open(directory)?.sync_all()?;
            old.clear();
        }
        Ok(Record {
            file,
            writer: Writer::behind(&old, blocks),
            touched: false,
        })
    }
}

impl Keeper for Records {
    /// A block is written when it is full, or by [`Keeper::settle`].
    const BUFFERS: bool = true;

    fn add(&mut self, log: &str, lines: &[u8]) -> io::Result<()> {
        let Some(Record {
            file,
            writer,
            touched,
        }) = self.record(log)?
        else {
            return Ok(());
        };
        *touched = true;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            writer.push(line, |at, block| file.write_all_at(block, at))?;
        }
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        for record in self.open.values_mut().filter(|record| record.touched) {
            let file = &record.file;
            record
                .writer
                .flush(|at, block| file.write_all_at(block, at))?;
            file.sync_data()?;
            record.touched = false;
        }
        Ok(())
    }
}

/// The previous boot's tail of a log; `None` if there is none or the id is invalid. `boot` identifies this boot: until
/// its directory exists, `current` is the previous boot's.
///
/// # Errors
/// If the volume cannot be read.
pub fn previous(base: &Path, boot: &str, log: &str) -> io::Result<Option<Vec<u8>>> {
    // The caller's id becomes part of a path.
    if !is_id(log) {
        return Ok(None);
    }
    let current = base.join(CURRENT);
    let here = fs::read_to_string(current.join(BOOT));
    let directory = match here {
        Ok(whose) if whose != boot => current,
        _ => base.join(PREVIOUS),
    };
    let mut bytes = Vec::new();
    let file = File::open(directory.join(file_name(log)));
    match file.and_then(|file| file.take(LONGEST).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(blocks::read(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Valid ids contain no slash ([`is_id`]).
fn file_name(log: &str) -> String {
    format!("{log}.ring")
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Keeper as _, Records, previous};
    use std::fs;
    use std::path::Path;

    fn boot(base: &Path, name: &str, lines: &[(&str, &str)]) {
        let mut records = Records::open(base, name).unwrap();
        for (log, line) in lines {
            records.add(log, line.as_bytes()).unwrap();
        }
        records.settle().unwrap();
    }

    fn text(base: &Path, now: &str, log: &str) -> Option<String> {
        let bytes = previous(base, now, log).unwrap()?;
        Some(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn next_boot_reads_the_logs_of_this_boot() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        assert_eq!(text(base, "one", "a"), None);
        boot(base, "one", &[("a", "1\n"), ("kernel", "k\n")]);
        assert_eq!(
            text(base, "one", "a"),
            None,
            "this boot's is not the previous one's"
        );
        // The daemon restarts within the boot.
        boot(base, "one", &[("a", "2\n")]);
        assert_eq!(
            text(base, "two", "a").as_deref(),
            Some("1\n2\n"),
            "before it is renamed"
        );
        boot(base, "two", &[("a", "3\n")]);
        assert_eq!(text(base, "two", "a").as_deref(), Some("1\n2\n"));
        assert_eq!(text(base, "two", "kernel").as_deref(), Some("k\n"));
        boot(base, "three", &[]);
        assert_eq!(text(base, "three", "a").as_deref(), Some("3\n"));
        assert_eq!(text(base, "three", "kernel"), None);
    }

    #[test]
    fn hostile_names_do_not_escape_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("base");
        fs::create_dir(&base).unwrap();
        boot(&base, "one", &[("a", "1\n")]);
        let outside = directory.path().join("a.ring");
        fs::copy(base.join("current/a.ring"), &outside).unwrap();
        let absolute = directory.path().join("a");
        for name in [
            "../../a",
            absolute.to_str().unwrap(),
            "../current/a",
            "",
            "a\0",
        ] {
            assert_eq!(text(&base, "two", name), None, "{name}");
        }
        assert_eq!(text(&base, "two", "a").as_deref(), Some("1\n"));
    }

    #[test]
    fn file_is_read_up_to_the_written_length_only() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        boot(base, "one", &[("a", "1\n"), ("b", "2\n")]);
        let ring = |log: &str| base.join(format!("current/{log}.ring"));
        let mut long = fs::read(ring("a")).unwrap();
        long.resize(usize::try_from(super::LONGEST).unwrap(), 0);
        long.extend(fs::read(ring("b")).unwrap());
        fs::write(ring("a"), long).unwrap();
        assert_eq!(text(base, "two", "a").as_deref(), Some("1\n"));
    }

    #[test]
    fn power_cut_during_rotation_loses_at_most_the_oldest_boot() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        boot(base, "one", &[("a", "1\n")]);
        // A crash while the next boot's directory was being created.
        fs::create_dir_all(base.join("new")).unwrap();
        fs::rename(base.join("current"), base.join("previous")).unwrap();
        assert_eq!(text(base, "two", "a").as_deref(), Some("1\n"));
        boot(base, "three", &[]);
        assert_eq!(text(base, "three", "a").as_deref(), Some("1\n"));
    }

    #[test]
    fn ring_files_never_grow() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let mut records = Records::open(base, "one").unwrap();
        for n in 0..5000 {
            let line = format!("line {n}\n");
            records.add("a", line.as_bytes()).unwrap();
            records.add(&format!("log{n}"), line.as_bytes()).unwrap();
        }
        records.settle().unwrap();
        let files = fs::read_dir(base.join("current")).unwrap();
        let sizes: Vec<u64> = files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(sizes.len(), super::MOST_LOGS + 1);
        assert!(sizes.iter().all(|size| *size <= 65_536));
        assert!(
            text(base, "two", "a")
                .unwrap()
                .ends_with("line 4998\nline 4999\n")
        );
    }
}

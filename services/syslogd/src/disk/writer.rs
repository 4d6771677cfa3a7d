//! Copies lines from the rings to a keeper: its position in each log, and its recovery from failures.

use crate::kernel;
use crate::sources::{KERNEL, inform, warn};
use crate::store::Store;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Storage of lines in a directory.
pub(super) trait Keeper {
    /// Whether added lines are lost with the keeper until it is settled.
    const BUFFERS: bool;
    /// Adds whole lines of a log, all or none.
    fn add(&mut self, log: &str, lines: &[u8]) -> io::Result<()>;
    /// Makes all added lines durable.
    fn settle(&mut self) -> io::Result<()>;
}

type Open<K> = Box<dyn Fn(&Path) -> io::Result<K> + Send>;

pub(super) struct Writer<K> {
    open: Open<K>,
    at: Option<PathBuf>,
    keeper: Option<K>,
    places: BTreeMap<Arc<str>, u64>,
    /// The positions of the last successful settle.
    settled: BTreeMap<Arc<str>, u64>,
    failed: Option<Instant>,
}

impl<K: Keeper> Writer<K> {
    pub(super) fn new(open: impl Fn(&Path) -> io::Result<K> + Send + 'static) -> Writer<K> {
        Writer {
            open: Box::new(open),
            at: None,
            keeper: None,
            places: BTreeMap::new(),
            settled: BTreeMap::new(),
            failed: None,
        }
    }

    /// Writes new lines to the directory, if there is one. Logs a failure once, and retries the lines later.
    pub(super) fn write(&mut self, store: &Store, directory: Option<&Path>) {
        if self.at.as_deref() != directory {
            self.at = directory.map(Path::to_owned);
            self.keeper = None;
            self.failed = None;
        }
        let Some(directory) = directory else { return };
        if self.failed.is_some_and(|since| since.elapsed() < RETRY) {
            return;
        }
        let shown = directory.display();
        match self.try_write(store, directory) {
            Ok(()) => {
                self.settled.clone_from(&self.places);
                if self.failed.take().is_some() {
                    inform(store, &format!("logs are written to {shown} again"));
                }
            }
            Err(error) => {
                self.keeper = None;
                if K::BUFFERS {
                    self.places.clone_from(&self.settled);
                }
                if self.failed.replace(Instant::now()).is_none() {
                    warn(store, &format!("cannot write logs to {shown}: {error}"));
                }
            }
        }
    }

    fn try_write(&mut self, store: &Store, directory: &Path) -> io::Result<()> {
        let keeper = match &mut self.keeper {
            Some(keeper) => keeper,
            none => none.insert((self.open)(directory)?),
        };
        for log in store.ids() {
            // Up to the current end only: a log that grows as fast as it is written must not starve the others.
            let end = store.cursor(&log, 0).unwrap_or_default();
            let mut place = self.places.get(&log).copied().unwrap_or_default();
            while place < end
                && let Some(read) = store.read(&log, place)
            {
                if read.dropped > 0 && self.places.contains_key(&log) {
                    let note = format!("[{} lines are missing here]\n", read.dropped);
                    keeper.add(&log, note.as_bytes())?;
                }
                if &*log == KERNEL {
                    keeper.add(&log, &kernel::worded(&read.bytes))?;
                } else {
                    keeper.add(&log, &read.bytes)?;
                }
                place = read.next;
                self.places.insert(log.clone(), place);
            }
        }
        keeper.settle()
    }
}

#[cfg(test)]
mod tests {
    use super::{Keeper, Writer};
    use crate::store::{Bounds, Store};
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    /// A disk that is full on demand.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(bool, String)>>);

    impl Keeper for Disk {
        const BUFFERS: bool = false;

        fn add(&mut self, log: &str, lines: &[u8]) -> io::Result<()> {
            let mut disk = self.0.lock().unwrap();
            if disk.0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if log != "syslogd" {
                disk.1
                    .push_str(&format!("{log}: {}", std::str::from_utf8(lines).unwrap()));
            }
            Ok(())
        }

        fn settle(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A keeper that stores lines when it is settled, and fails on demand.
    struct Buffered {
        added: String,
        disk: Disk,
    }

    impl Keeper for Buffered {
        const BUFFERS: bool = true;

        fn add(&mut self, log: &str, lines: &[u8]) -> io::Result<()> {
            if log != "syslogd" {
                self.added.push_str(std::str::from_utf8(lines).unwrap());
            }
            Ok(())
        }

        fn settle(&mut self) -> io::Result<()> {
            let mut disk = self.disk.0.lock().unwrap();
            if disk.0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.1.push_str(&std::mem::take(&mut self.added));
            Ok(())
        }
    }

    #[test]
    fn lines_lost_before_a_sync_are_written_again() {
        let (per_log, total) = (16_384, 65_536);
        let store = Store::new(Bounds { per_log, total });
        let disk = Disk::default();
        let opened = disk.clone();
        let mut writer = Writer::new(move |_| {
            Ok(Buffered {
                added: String::new(),
                disk: opened.clone(),
            })
        });
        let place = Some(Path::new("/system/state/logs"));
        store.append("a", b"one").unwrap();
        writer.write(&store, place);
        disk.0.lock().unwrap().0 = true;
        store.append("a", b"two").unwrap();
        writer.write(&store, place);
        disk.0.lock().unwrap().0 = false;
        writer.failed = writer.failed.and_then(|at| at.checked_sub(super::RETRY));
        store.append("a", b"three").unwrap();
        writer.write(&store, place);
        assert_eq!(disk.0.lock().unwrap().1, "one\ntwo\nthree\n");
    }

    #[test]
    fn full_disk_is_reported_once_and_missed_lines_are_marked() {
        let (per_log, total) = (16_384, 65_536);
        let store = Store::new(Bounds { per_log, total });
        let disk = Disk::default();
        let opened = disk.clone();
        let mut writer = Writer::new(move |_| Ok(opened.clone()));
        store.append("a", b"before the disk was there").unwrap();
        writer.write(&store, None);
        let place = Some(Path::new("/var/log"));
        writer.write(&store, place);
        assert_eq!(disk.0.lock().unwrap().1, "a: before the disk was there\n");

        disk.0.lock().unwrap().0 = true;
        store.append("a", b"late").unwrap();
        writer.write(&store, place);
        writer.write(&store, place);
        let told = store.read("syslogd", 0).unwrap();
        assert_eq!(told.lines().count(), 1);
        assert!(String::from_utf8_lossy(&told.bytes).contains("cannot write logs to /var/log: "));

        disk.0.lock().unwrap().0 = false;
        writer.failed = writer.failed.and_then(|at| at.checked_sub(super::RETRY));
        writer.write(&store, place);
        assert!(disk.0.lock().unwrap().1.ends_with("a: late\n"));
        assert_eq!(store.list().0[1].lines, 2);

        // Lines evicted meanwhile leave a note.
        disk.0.lock().unwrap().1.clear();
        for n in 0..2000 {
            store.append("a", format!("line {n}").as_bytes()).unwrap();
        }
        writer.write(&store, place);
        let text = disk.0.lock().unwrap().1.clone();
        assert!(
            text.starts_with("a: [") && text.contains(" lines are missing here]\n"),
            "{text}"
        );
        assert!(text.ends_with("line 1999\n"));
    }
}

//! Reads every disk of the machine, to find the one with a volume. Each disk has a thread of its own and a time limit:
//! one that hangs counts as unreadable, and delays no volume that is elsewhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use corten_base::bulkhead::{Bulkhead, Refused};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::Facts;
use super::choose::known_as;
use super::known::Seen;
use crate::disk::Disk;

/// Time limit for all disks together, which is also udevd's for one. A drive takes some ten seconds to spin up.
const LIMIT: Duration = Duration::from_secs(20);

/// The threads of this machine's disks.
static READERS: Readers = Readers(Mutex::new(BTreeMap::new()));

/// A thread at most for each disk, by name and sequence number. A read that hangs keeps its thread, so that later ones
/// of the same disk fail at once.
#[derive(Debug)]
struct Readers(Mutex<BTreeMap<(String, u64), Bulkhead>>);

/// Reads the candidates from the disks themselves, since the kernel knows no name of a partition added in this boot. A
/// drive without a medium has none.
pub(super) async fn look(
    facts: &Facts,
    ids: impl Fn(File) -> io::Result<Vec<Uuid>> + Clone + Send + 'static,
) -> Vec<Seen> {
    let disks = facts.disks.iter();
    let with_medium = disks.filter(|disk| !disk.cdrom && disk.size > 0);
    let disks: Vec<Disk> = with_medium.map(known_as).collect();
    READERS.read(&disks, LIMIT, ids).await
}

impl Readers {
    async fn read(
        &self,
        disks: &[Disk],
        limit: Duration,
        ids: impl Fn(File) -> io::Result<Vec<Uuid>> + Clone + Send + 'static,
    ) -> Vec<Seen> {
        let until = Instant::now() + limit;
        let started: Vec<_> = self
            .of(disks)
            .into_iter()
            .zip(disks)
            .map(|(reader, disk)| {
                let (disk, ids) = (disk.clone(), ids.clone());
                reader.start(move || disk.open().and_then(ids))
            })
            .collect();
        let mut seen = Vec::new();
        for (disk, started) in disks.iter().zip(started) {
            let read = match started {
                Ok(answer) => match timeout_at(until, answer).await {
                    Ok(read) => read.unwrap_or_else(|_| Err(io::Error::other(Refused::BrokeOff))),
                    Err(_) => Err(silent()),
                },
                Err(Refused::Full(_)) => Err(silent()),
                Err(refused) => Err(io::Error::other(refused)),
            };
            seen.push(Seen::of(&disk.name, read));
        }
        seen
    }

    /// The thread of each disk. Those of disks that are gone are forgotten.
    fn of(&self, disks: &[Disk]) -> Vec<Bulkhead> {
        let key = |disk: &Disk| (disk.name.clone(), disk.sequence);
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|known, _| disks.iter().any(|disk| key(disk) == *known));
        let reader = |disk| {
            let known = readers.entry(key(disk));
            known.or_insert_with(|| Bulkhead::new(1, LIMIT)).clone()
        };
        disks.iter().map(reader).collect()
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tokio::time::{sleep, timeout};

    use super::*;

    const FOUND: Uuid = Uuid::from_u128(1);

    /// A file in place of a disk.
    fn disk(path: &Path) -> Disk {
        Disk::new(path.to_str().unwrap(), 0)
    }

    fn read(seen: &Seen) -> Result<Vec<Uuid>, String> {
        let ids = seen.ids.as_ref();
        ids.cloned().map_err(ToString::to_string)
    }

    #[tokio::test]
    async fn hung_disk_is_unreadable_and_the_others_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let (sound, hung) = (directory.path().join("a"), directory.path().join("b"));
        std::fs::write(&sound, "").unwrap();
        // The open of a FIFO blocks until it has a writer.
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &hung, FileType::Fifo, mode, 0).unwrap();
        let readers = Readers(Mutex::default());
        let opened = Arc::<AtomicUsize>::default();
        let ids = {
            let opened = opened.clone();
            move |_: File| {
                opened.fetch_add(1, Ordering::SeqCst);
                Ok(vec![FOUND])
            }
        };
        let silent = Err("it does not answer".to_owned());
        let short = Duration::from_millis(1);
        let seen = readers.read(&[disk(&hung)], short, ids.clone()).await;
        assert_eq!(read(&seen[0]), silent);
        // The hung read keeps its thread, so the next one fails without a wait.
        let all = [disk(&hung), disk(&sound)];
        let seen = readers.read(&all, 3 * LIMIT, ids.clone()).await;
        assert_eq!(read(&seen[0]), silent);
        assert_eq!(read(&seen[1]), Ok(vec![FOUND]));
        assert_eq!(opened.load(Ordering::SeqCst), 1);
        // The disk answers at last. A FIFO that is open for both blocks nobody.
        let _answers = File::options().read(true).write(true).open(&hung).unwrap();
        let answered = async {
            while read(&readers.read(&all, 3 * LIMIT, ids.clone()).await[0]).is_err() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(3 * LIMIT, answered).await.unwrap();
        assert_eq!(readers.0.lock().unwrap().len(), 2);
        readers.read(&all[1..], 3 * LIMIT, ids).await;
        assert_eq!(readers.0.lock().unwrap().len(), 1);
    }
}

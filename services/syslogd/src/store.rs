//! All logs: one ring per id under a common bound, and the notification of readers.
//!
//! Writers never wait for readers. Under a short lock they append, evict old segments until the bounds hold, and wake
//! the followers. A reader owns only a line number, so a slow reader costs no memory.

use crate::ring::{Read, Ring};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::watch;

/// Length limit of a record in bytes; a longer one is cut. A datagram may be longer, but no sensible line is.
pub const MAX_RECORD: usize = 64 * 1024;

/// Limit of logs, so that a caller with random ids cannot fill memory.
const MAX_LOGS: usize = 256;

/// Bounds of the kept lines.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes per log.
    pub per_log: usize,
    /// Bytes over all logs.
    pub total: usize,
}

/// Statistics of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Id of the log.
    pub id: Arc<str>,
    /// Number of text bytes kept.
    pub bytes: usize,
    /// Number of lines kept.
    pub lines: u64,
    /// Number of evicted lines.
    pub dropped: u64,
    /// Number of lines lost before they reached the daemon.
    pub lost: u64,
}

/// Reason why a record was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not 1-64 of `[A-Za-z0-9._:-]`.
    #[error("log ids are 1 to 64 letters, digits, dots, underscores, colons and dashes")]
    BadId,
    /// The limit of logs is reached.
    #[error("the limit of {MAX_LOGS} logs is reached")]
    TooManyLogs,
}

#[derive(Debug, Default)]
struct Log {
    ring: Ring,
    lost: u64,
    grown: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Logs {
    by_id: BTreeMap<Arc<str>, Log>,
    cost: usize,
    refused: u64,
}

/// The logs, shared by sources and readers.
#[derive(Debug)]
pub struct Store {
    bounds: Bounds,
    logs: Mutex<Logs>,
    created: watch::Sender<()>,
    changed: watch::Sender<()>,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            logs: Mutex::default(),
            created: watch::Sender::default(),
            changed: watch::Sender::default(),
        }
    }

    /// Adds one or more lines to a log; creates the log if it is new.
    ///
    /// # Errors
    /// [`Refused`]; the rejection is counted.
    pub fn append(&self, id: &str, text: &[u8]) -> Result<(), Refused> {
        self.append_after_loss(id, text, 0)
    }

    /// Like [`Self::append`], but records that `lost` lines are missing before the text.
    ///
    /// # Errors
    /// [`Refused`]; the rejection is counted.
    pub fn append_after_loss(&self, id: &str, text: &[u8], lost: u64) -> Result<(), Refused> {
        let at = now();
        let mut logs = self.lock();
        if !logs.by_id.contains_key(id) {
            if let Err(refused) = Self::admit(&logs, id) {
                logs.refused += 1;
                return Err(refused);
            }
            logs.by_id.insert(id.into(), Log::default());
            self.created.send_replace(());
        }
        let Logs { by_id, cost, .. } = &mut *logs;
        let Some(log) = by_id.get_mut(id) else {
            return Ok(());
        };
        log.lost += lost;
        *cost -= log.ring.cost();
        // The final line feed does not count towards the record's length.
        let record = text.strip_suffix(b"\n").unwrap_or(text);
        match record.split_at_checked(MAX_RECORD) {
            Some((head, rest)) if !rest.is_empty() => {
                let cut = format!(" [+{} bytes]\n", rest.len());
                log.ring.append(&[head, cut.as_bytes()].concat(), at);
            }
            _ => log.ring.append(text, at),
        }
        while log.ring.cost() > self.bounds.per_log && log.ring.evict() {}
        *cost += log.ring.cost();
        log.grown.send_replace(());
        self.hold_total(&mut logs);
        drop(logs);
        self.changed.send_replace(());
        Ok(())
    }

    fn admit(logs: &Logs, id: &str) -> Result<(), Refused> {
        if !is_id(id) {
            return Err(Refused::BadId);
        }
        if logs.by_id.len() >= MAX_LOGS {
            return Err(Refused::TooManyLogs);
        }
        Ok(())
    }

    /// Evicts from the largest logs until the total holds. So a loud service loses its own oldest lines, not those of
    /// quiet services.
    fn hold_total(&self, logs: &mut Logs) {
        while logs.cost > self.bounds.total {
            let Some(log) = logs.by_id.values_mut().max_by_key(|log| log.ring.cost()) else {
                return;
            };
            let before = log.ring.cost();
            if !log.ring.evict() {
                return;
            }
            logs.cost -= before - log.ring.cost();
        }
    }

    /// The lines of `id` from `cursor` on; `None` if there are none yet.
    #[must_use]
    pub fn read(&self, id: &str, cursor: u64) -> Option<Read> {
        self.lock().by_id.get_mut(id)?.ring.read(cursor)
    }

    /// The cursor `tail` lines before the end of `id`, or at the oldest line if `tail` is negative. `None` for an
    /// unknown log.
    #[must_use]
    pub fn cursor(&self, id: &str, tail: i32) -> Option<u64> {
        let logs = self.lock();
        let ring = &logs.by_id.get(id)?.ring;
        Some(match u64::try_from(tail) {
            Ok(tail) => ring.end().saturating_sub(tail).max(ring.oldest()),
            Err(_) => ring.oldest(),
        })
    }

    /// Notifies when `id` grows. `None` for an unknown log.
    #[must_use]
    pub fn grown(&self, id: &str) -> Option<watch::Receiver<()>> {
        self.lock().by_id.get(id).map(|log| log.grown.subscribe())
    }

    /// Notifies when a log is created.
    #[must_use]
    pub fn created(&self) -> watch::Receiver<()> {
        self.created.subscribe()
    }

    /// Notifies when any log grows.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The ids of all logs, sorted.
    #[must_use]
    pub fn ids(&self) -> Vec<Arc<str>> {
        self.lock().by_id.keys().cloned().collect()
    }

    /// Statistics of all logs by id, and the number of rejected records.
    #[must_use]
    pub fn list(&self) -> (Vec<Info>, u64) {
        let logs = self.lock();
        let infos = logs.by_id.iter().map(|(id, log)| Info {
            id: id.clone(),
            bytes: log.ring.bytes(),
            lines: log.ring.lines(),
            dropped: log.ring.dropped(),
            lost: log.lost,
        });
        (infos.collect(), logs.refused)
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        // A panic ends the whole daemon. In tests the data is still valid.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `id` is a valid id. It is also part of file names.
#[must_use]
pub fn is_id(id: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._:-".contains(&b);
    (1..=64).contains(&id.len()) && id.bytes().all(good)
}

/// Microseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::{Bounds, MAX_RECORD, Refused, Store};
    use proptest::prelude::{prop_assert_eq, proptest};
    use std::collections::BTreeMap;

    const BOUNDS: Bounds = Bounds {
        per_log: 40_000,
        total: 100_000,
    };

    #[test]
    fn bounds_hold_and_the_loudest_log_is_evicted() {
        let store = Store::new(BOUNDS);
        store.append("quiet", b"keep me").unwrap();
        for n in 0..20_000u32 {
            store
                .append(&format!("loud{}", n % 3), format!("line {n}").as_bytes())
                .unwrap();
        }
        let (infos, refused) = store.list();
        assert_eq!((infos.len(), refused), (4, 0));
        assert!(infos.iter().map(|i| i.bytes).sum::<usize>() <= BOUNDS.total);
        assert!(infos.iter().all(|i| i.bytes <= BOUNDS.per_log));
        assert!(infos.iter().take(3).all(|i| i.dropped > 0 && i.lines > 0));
        assert_eq!(
            (&*infos[3].id, infos[3].dropped, infos[3].lines),
            ("quiet", 0, 1)
        );
    }

    #[test]
    fn readers_do_not_make_the_store_grow() {
        let store = Store::new(BOUNDS);
        let mut cursor = 0;
        for n in 0..20_000u32 {
            store.append("a", format!("line {n}").as_bytes()).unwrap();
            cursor = store.read("a", cursor).map_or(cursor, |r| r.next);
        }
        assert_eq!(cursor, 20_000);
        assert!(store.logs.lock().unwrap().cost <= BOUNDS.per_log);
    }

    #[test]
    fn bad_and_too_many_ids_are_refused_and_counted() {
        let store = Store::new(BOUNDS);
        for id in ["", "a/b", "a b", &"x".repeat(65), "é"] {
            assert_eq!(store.append(id, b"x"), Err(Refused::BadId));
        }
        for n in 0..256 {
            store.append(&n.to_string(), b"x").unwrap();
        }
        assert_eq!(store.append("more", b"x"), Err(Refused::TooManyLogs));
        assert_eq!(store.append("7", b"x"), Ok(()));
        assert_eq!(store.list().1, 6);
    }

    #[test]
    fn oversized_line_is_truncated_with_a_note() {
        let store = Store::new(Bounds {
            per_log: 1 << 20,
            total: 1 << 20,
        });
        store.append("a", &vec![b'x'; MAX_RECORD + 5]).unwrap();
        let read = store.read("a", 0).unwrap();
        assert!(read.bytes.ends_with(b"x [+5 bytes]\n"));
        // The longest record that is not cut, without its line feed and with it.
        let mut longest = vec![b'x'; MAX_RECORD];
        store.append("b", &longest).unwrap();
        longest.push(b'\n');
        store.append("c", &longest).unwrap();
        for log in ["b", "c"] {
            let (read, lines) = (store.read(log, 0).unwrap(), store.cursor(log, 0));
            assert!(read.bytes == longest && lines == Some(1), "{log}");
        }
    }

    proptest! {
        #[test]
        fn every_record_is_in_the_log_it_names_or_counted_as_refused(
            records in proptest::collection::vec(("[a-c./ ]{0,3}", proptest::collection::vec(0u8..=255, 0..20)), 0..60),
        ) {
            let (per_log, total) = (1 << 20, 1 << 20);
            let store = Store::new(Bounds { per_log, total });
            let (mut expected, mut refused) = (BTreeMap::<String, Vec<u8>>::new(), 0);
            for (id, text) in &records {
                if id.is_empty() || id.contains(['/', ' ']) {
                    prop_assert_eq!(store.append(id, text), Err(Refused::BadId));
                    refused += 1;
                    continue;
                }
                prop_assert_eq!(store.append(id, text), Ok(()));
                let log = expected.entry(id.clone()).or_default();
                log.extend_from_slice(text);
                if !text.ends_with(b"\n") {
                    log.push(b'\n');
                }
            }
            let (infos, counted) = store.list();
            prop_assert_eq!(infos.len(), expected.len());
            prop_assert_eq!(counted, refused);
            for (id, text) in expected {
                prop_assert_eq!(&store.read(&id, 0).unwrap().bytes[..], &text[..]);
            }
        }
    }

    #[test]
    fn tail_counts_from_the_end() {
        let store = Store::new(BOUNDS);
        for n in 0..10 {
            store.append("a", n.to_string().as_bytes()).unwrap();
        }
        assert_eq!(store.cursor("a", 3), Some(7));
        assert_eq!(store.cursor("a", 0), Some(10));
        assert_eq!(store.cursor("a", 99), Some(0));
        assert_eq!(store.cursor("a", -1), Some(0));
        assert_eq!(store.cursor("b", 1), None);
        assert_eq!(store.read("a", 7).unwrap().bytes, "7\n8\n9\n");
    }
}

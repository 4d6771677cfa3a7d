//! Sources of lines besides the API: `/dev/log` and `/dev/kmsg`.

use crate::store::Store;
use crate::{kernel, parse, render};
use corten_sys::kmsg::{self, Reader};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;
use time::OffsetDateTime;
use tokio::net::UnixDatagram;

/// The log of all `/dev/log` messages. It is one bounded ring, so that a sender with random tags cannot fill memory.
pub const FOREIGN: &str = "syslogd";

/// The kernel's log.
pub const KERNEL: &str = "kernel";

/// Length limit of a datagram in bytes; a sender's default buffer allows about this much.
const MAX_DATAGRAM: usize = 256 * 1024;

/// Number of datagrams taken before other tasks run.
const BATCH: usize = 256;

/// Syslog priorities (facility `syslog`) of the daemon's own messages.
const WARNING: u8 = 5 * 8 + 4;
const INFO: u8 = 5 * 8 + 6;

/// Logs a failure among the messages of `/dev/log`.
pub fn warn(store: &Store, text: &str) {
    say(store, WARNING, text);
}

/// Logs a recovery among the messages of `/dev/log`.
pub fn inform(store: &Store, text: &str) {
    say(store, INFO, text);
}

fn say(store: &Store, priority: u8, text: &str) {
    let line = render::own(priority, text, OffsetDateTime::now_utc());
    // Never rejected: the id is valid and among the first.
    let _ = store.append(FOREIGN, &line);
}

/// Takes messages from `/dev/log` for ever.
///
/// # Errors
/// If the socket fails.
pub async fn dev_log(socket: UnixDatagram, store: Arc<Store>) -> io::Result<()> {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        socket.readable().await?;
        for _ in 0..BATCH {
            let length = match socket.try_recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let parsed = parse::parse(buffer.get(..length).unwrap_or_default());
            let line = render::message(&parsed, OffsetDateTime::now_utc());
            // Never rejected: the id is valid and among the first.
            let _ = store.append(FOREIGN, &line);
        }
        tokio::task::yield_now().await;
    }
}

/// Takes records from `/dev/kmsg` for ever. It blocks, so it needs a thread of its own.
///
/// # Errors
/// If the kernel log cannot be read.
pub fn dev_kmsg(mut log: Reader, store: &Store) -> io::Result<()> {
    let mut sequence = Sequence::default();
    while let Some(record) = log.next_record()? {
        take(record, &mut sequence, store);
    }
    Ok(())
}

/// Counts records that the kernel overwrote before they were read.
#[derive(Debug, Default)]
struct Sequence {
    next: Option<u64>,
}

impl Sequence {
    /// Records a sequence number. Returns the number of records missing before it.
    fn note(&mut self, sequence: u64) -> u64 {
        let missing = self.next.map_or(0, |next| sequence.saturating_sub(next));
        self.next = Some(sequence.saturating_add(1));
        missing
    }
}

fn take(bytes: &[u8], sequence: &mut Sequence, store: &Store) {
    let Some(record) = kmsg::parse(bytes).map(kmsg::Record::decoded) else {
        return;
    };
    let missing = sequence.note(record.sequence);
    let boot = boot_time();
    let line = kernel::encode(&record, boot);
    // Never rejected: the id is valid and among the first.
    let _ = if missing == 0 {
        store.append(KERNEL, &line)
    } else {
        let told = kernel::encode_loss(missing, &record, boot);
        store.append_after_loss(KERNEL, &[told, line].concat(), missing)
    };
}

/// Time of the kernel clock's zero in microseconds since 1970, by the current wall clock.
fn boot_time() -> u64 {
    let boot = kmsg::booted().duration_since(SystemTime::UNIX_EPOCH);
    boot.map_or(0, |boot| u64::try_from(boot.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{KERNEL, Sequence, kmsg, take};
    use crate::store::{Bounds, Store};
    use corten_corpus::{hostile, samples};
    use proptest::prelude::proptest;

    #[test]
    fn gaps_are_counted_once() {
        let mut sequence = Sequence::default();
        let missing: Vec<u64> = [7, 8, 11, 12, 12].map(|n| sequence.note(n)).to_vec();
        assert_eq!(missing, [0, 0, 2, 0, 0]);
    }

    #[test]
    fn corpus_samples_are_records() {
        for sample in samples("kmsg") {
            assert!(kmsg::parse(&sample.bytes).is_some(), "{}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_records_never_panic(bytes in hostile("kmsg")) {
            let _ = kmsg::parse(&bytes).map(kmsg::Record::decoded);
            let text = [b"6,1,1,-;", &bytes[..]].concat();
            let _ = kmsg::parse(&text).map(kmsg::Record::decoded);
        }
    }

    #[test]
    fn gap_in_the_kernel_sequence_is_reported_in_place() {
        let (per_log, total) = (1 << 20, 1 << 20);
        let store = Store::new(Bounds { per_log, total });
        let mut sequence = Sequence::default();
        for record in ["6,7,1,-;a", "broken", "6,10,2,-;b"] {
            take(record.as_bytes(), &mut sequence, &store);
        }
        let read = store.read(KERNEL, 0).unwrap();
        let lines: Vec<String> = read
            .lines()
            .map(|(line, _)| crate::kernel::decode(line).unwrap().text.into_owned())
            .collect();
        assert_eq!(lines, ["a", "2 kernel messages were lost", "b"]);
        assert_eq!(store.list().0[0].lost, 2);
    }
}

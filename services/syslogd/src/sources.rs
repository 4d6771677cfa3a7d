//! Where lines come from beside the API: `/dev/log` and `/dev/kmsg`.

use crate::kmsg::{self, Sequence};
use crate::store::Store;
use crate::{kernel, parse, render};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::sync::Arc;
use time::OffsetDateTime;
use tokio::net::UnixDatagram;

/// The log that foreign messages go to: one bounded ring for all of them, so
/// that a sender with random tags cannot fill memory.
pub const FOREIGN: &str = "syslogd";

/// The log of the kernel.
pub const KERNEL: &str = "kernel";

/// The largest datagram taken; a sender's default buffer allows about this.
const MAX_DATAGRAM: usize = 256 * 1024;

/// The kernel's records are at most 8 KiB with prefix and dictionary
/// (PRINTK_MESSAGE_MAX); a smaller buffer would get EINVAL.
const MAX_KMSG: usize = 16 * 1024;

/// Datagrams taken in a row before other tasks get their turn.
const BATCH: usize = 256;

/// Syslog priorities (facility `syslog`) of our own words.
const WARNING: u8 = 5 * 8 + 4;
const INFO: u8 = 5 * 8 + 6;

/// Says, among the messages of `/dev/log`, that something is wrong.
pub fn warn(store: &Store, text: &str) {
    say(store, WARNING, text);
}

/// Says, among the messages of `/dev/log`, that something is well again.
pub fn inform(store: &Store, text: &str) {
    say(store, INFO, text);
}

fn say(store: &Store, priority: u8, text: &str) {
    let line = render::own(priority, text, OffsetDateTime::now_utc());
    // The id is ours and among the first: it is never refused.
    let _ = store.append(FOREIGN, &line);
}

/// Takes messages from `/dev/log` for ever.
///
/// # Errors
/// When the socket itself breaks.
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
            // The id is ours and among the first: it is never refused.
            let _ = store.append(FOREIGN, &line);
        }
        tokio::task::yield_now().await;
    }
}

/// Takes records from `/dev/kmsg` for ever; blocks, so it wants its own thread.
///
/// # Errors
/// When the file cannot be read.
pub fn dev_kmsg(file: &File, store: &Store) -> io::Result<()> {
    let mut buffer = vec![0; MAX_KMSG];
    let mut sequence = Sequence::default();
    loop {
        match rustix::io::read(file, &mut buffer[..]) {
            Ok(0) => return Ok(()),
            Ok(length) => take(
                buffer.get(..length).unwrap_or_default(),
                &mut sequence,
                store,
            ),
            // EPIPE: the record was overwritten before it was read; the next
            // read goes on with the oldest one left, and its number tells how
            // many are missing.
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn take(bytes: &[u8], sequence: &mut Sequence, store: &Store) {
    let Some(record) = kmsg::parse(bytes) else {
        return;
    };
    let missing = sequence.note(record.sequence);
    let boot = boot_time();
    let line = kernel::encode(&record, boot);
    // The id is ours and among the first: it is never refused.
    let _ = if missing == 0 {
        store.append(KERNEL, &line)
    } else {
        let told = kernel::encode_loss(missing, &record, boot);
        store.append_after_loss(KERNEL, &[told, line].concat(), missing)
    };
}

/// When the kernel's clock was 0, in microseconds since 1970, by the wall clock
/// as it is set now.
fn boot_time() -> u64 {
    let up = clock_gettime(ClockId::Monotonic);
    let up = time::Duration::new(up.tv_sec, i32::try_from(up.tv_nsec).unwrap_or(0));
    let boot = OffsetDateTime::now_utc() - up;
    u64::try_from(boot.unix_timestamp_nanos() / 1000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{KERNEL, take};
    use crate::kmsg::Sequence;
    use crate::store::{Bounds, Store};

    #[test]
    fn a_gap_in_the_kernels_numbers_is_told_where_it_is() {
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

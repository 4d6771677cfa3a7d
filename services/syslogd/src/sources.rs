//! Where lines come from beside the API: `/dev/log` and `/dev/kmsg`.

use crate::kmsg::{self, Sequence};
use crate::store::Store;
use crate::{parse, render};
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
    let line = render::record(&record, boot_time());
    let _ = if missing == 0 {
        store.append(KERNEL, &line)
    } else {
        let told = format!("syslog: warning: {missing} kernel messages were lost\n");
        store.append_after_loss(KERNEL, &[told.as_bytes(), &line].concat(), missing)
    };
}

/// When the kernel's clock was 0, by the wall clock as it is set now.
fn boot_time() -> OffsetDateTime {
    let up = clock_gettime(ClockId::Monotonic);
    let nanoseconds = i32::try_from(up.tv_nsec).unwrap_or(0);
    OffsetDateTime::now_utc() - time::Duration::new(up.tv_sec, nanoseconds)
}

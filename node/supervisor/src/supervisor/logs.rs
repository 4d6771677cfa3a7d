//! Forwards the output of services to syslogd.
//!
//! The queue is bounded. Lines wait in it while syslogd is down or slow; if it is full, lines are dropped and counted.
//! Neither machined nor a service ever waits for syslogd.

use std::mem::size_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corten_api::corten::v1::LogRecord;
use corten_api::corten::v1::log_service_client::LogServiceClient;
use corten_base::console;
use corten_base::panics::again;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::Id;

/// Capacity in bytes, some 8,000 ordinary lines: enough for a restart of syslogd without loss.
const QUEUE: usize = 2 << 20;
/// Cost of a line in addition to its text and its service's id: the queue's slot, and the allocator's overhead.
const OVERHEAD: usize = size_of::<LogRecord>() + 64;
/// Longer lines are split.
const MAX_LINE: u64 = 16 * 1024;
/// Delay between attempts to reach syslogd.
const RETRY: Duration = Duration::from_millis(500);

/// Maximum number of a service's lines on the console per [`SPAN`]: a serial console is slow, and its writers block.
const LOUDEST: u32 = 20;
const SPAN: Duration = Duration::from_secs(2);

/// Console budget of a service's output.
#[derive(Debug, Default)]
struct Budget {
    since: Option<Instant>,
    said: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Say {
    Line,
    /// The first line over the limit; a notice about further lines replaces it.
    Enough,
    Nothing,
}

impl Budget {
    fn spend(&mut self, now: Instant) -> Say {
        if self
            .since
            .is_none_or(|since| now.duration_since(since) >= SPAN)
        {
            *self = Budget {
                since: Some(now),
                said: 0,
            };
        }
        self.said = self.said.saturating_add(1);
        match self.said {
            0..=LOUDEST => Say::Line,
            said if said == LOUDEST + 1 => Say::Enough,
            _ => Say::Nothing,
        }
    }
}

/// The sending end of the queue. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sender {
    queue: mpsc::UnboundedSender<LogRecord>,
    /// Free capacity in bytes.
    room: Arc<Semaphore>,
    /// Free capacity for lines of [`AUDIT`].
    audit_room: Arc<Semaphore>,
    dropped: Arc<AtomicU64>,
}

impl Sender {
    /// Returns a function that queues lines of one service.
    pub fn lines_of(self, id: &'static str) -> impl Fn(&str) {
        move |line| self.send(id, line.as_bytes().to_vec())
    }

    /// Queues a line, or counts it as dropped.
    pub fn send(&self, id: &str, mut line: Vec<u8>) {
        // The buffer may be larger than its content.
        line.shrink_to_fit();
        let id = id.to_owned();
        let record = LogRecord { id, line };
        let room = match record.id == AUDIT {
            true => &self.audit_room,
            false => &self.room,
        };
        match room.try_acquire_many(cost(&record)) {
            Ok(room) => {
                // [`Queue::next`] returns the permits.
                room.forget();
                let _ = self.queue.send(record);
            }
            Err(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Cost of a line in the queue, in bytes.
fn cost(record: &LogRecord) -> u32 {
    let bytes = OVERHEAD + record.id.len() + record.line.len();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The receiving end of the queue.
#[derive(Debug)]
pub struct Queue {
    records: mpsc::UnboundedReceiver<LogRecord>,
    room: Arc<Semaphore>,
    audit_room: Arc<Semaphore>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    /// The next line; its capacity is free again.
    async fn next(&mut self) -> Option<LogRecord> {
        let record = self.records.recv().await?;
        let room = match record.id == AUDIT {
            true => &self.audit_room,
            false => &self.room,
        };
        room.add_permits(usize::try_from(cost(&record)).unwrap_or_default());
        Some(record)
    }
}

/// Creates a queue.
#[must_use]
pub fn queue() -> (Sender, Queue) {
    let (queue, records) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(QUEUE));
    let audit_room = Arc::new(Semaphore::new(AUDIT_ROOM));
    let dropped = Arc::new(AtomicU64::new(0));
    (
        Sender {
            queue,
            room: room.clone(),
            audit_room: audit_room.clone(),
            dropped: dropped.clone(),
        },
        Queue {
            records,
            room,
            audit_room,
            dropped,
        },
    )
}

/// Id of the audit log: the record of the callers and their operations on the node. Only machined writes to it: no
/// service has this id, and it has its own capacity in the queue.
pub const AUDIT: &str = "audit";
/// Capacity for audit lines in bytes.
const AUDIT_ROOM: usize = 256 << 10;

/// Reads one pipe of a service to its end, line by line. With `aloud` the lines also go to the console, within the
/// limit of `LOUDEST`.
pub async fn pump(id: Id, pipe: impl AsyncRead + Unpin, sender: Sender, aloud: bool) {
    let mut budget = Budget::default();
    let mut reader = BufReader::new(pipe);
    loop {
        let mut line = Vec::new();
        match (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .await
        {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                if aloud {
                    match budget.spend(Instant::now()) {
                        Say::Line => console::quote(&id, &line),
                        Say::Enough => console::quote(&id, b"(more of it in its log)"),
                        Say::Nothing => {}
                    }
                }
                sender.send(&id, line);
            }
        }
    }
}

/// Forwards the queue to syslogd, forever.
pub async fn forward(queue: Queue, socket: PathBuf) {
    let queue = Arc::new(Mutex::new(queue));
    again(|| append_all(&socket, &queue)).await;
}

async fn append_all(socket: &Path, queue: &Arc<Mutex<Queue>>) {
    loop {
        // The error needs no report: syslogd's own state is in the list of services.
        let _ = append(socket, queue.clone()).await;
        tokio::time::sleep(RETRY).await;
    }
}

/// Opens one stream to syslogd and sends lines until it breaks, which loses at most a few lines in flight.
async fn append(
    socket: &Path,
    queue: Arc<Mutex<Queue>>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let channel = corten_base::unix::connect(socket).await?;
    let (stream, receiver) = mpsc::channel(1);
    let feed = async move {
        let mut queue = queue.lock().await;
        loop {
            let Ok(place) = stream.reserve().await else {
                return;
            };
            let record = tokio::select! {
                record = queue.next() => record,
                () = stream.closed() => return,
            };
            let Some(record) = record else { return };
            match queue.dropped.swap(0, Ordering::Relaxed) {
                0 => place.send(record),
                lost => {
                    place.send(LogRecord {
                        id: "machined".to_owned(),
                        line: format!(
                            "{lost} lines of services were lost while syslogd was unavailable"
                        )
                        .into_bytes(),
                    });
                    let _ = stream.send(record).await;
                }
            }
        }
    };
    let mut client = LogServiceClient::new(channel);
    let call = client.append(ReceiverStream::new(receiver).map(|record: LogRecord| record));
    tokio::select! {
        answer = call => drop(answer?),
        () = feed => {}
    }
    Ok(())
}

#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, reason = "a failing step is a failing test")]
impl Queue {
    /// The service and the text of the next line.
    pub async fn next_line(&mut self) -> (String, String) {
        let record = self.records.recv().await.unwrap();
        (record.id, String::from_utf8(record.line).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn log_lines_are_split_and_long_lines_cut() {
        let (sender, mut queue) = queue();
        let mut text = b"one\n\n".to_vec();
        text.extend(vec![b'x'; 20_000]);
        text.extend(b"\nend");
        pump("a".into(), text.as_slice(), sender, false).await;
        let mut lengths = Vec::new();
        while let Some(record) = queue.records.recv().await {
            assert_eq!(record.id, "a");
            lengths.push(record.line.len());
        }
        assert_eq!(lengths, [3, 0, 16_384, 3_616, 3]);
    }

    #[tokio::test]
    async fn services_cannot_write_to_the_audit_log_or_use_up_its_queue() {
        let (sender, mut queue) = queue();
        let forged = "audit: method=/machine.MachineService/Reboot roles=os:admin\n";
        let flood = forged.repeat(QUEUE / forged.len());
        pump("apid".into(), flood.as_bytes(), sender.clone(), false).await;
        assert!(sender.dropped.load(Ordering::Relaxed) > 0);
        sender.send(AUDIT, b"audit: of machined".to_vec());
        drop(sender);
        let mut audited = Vec::new();
        while let Some(record) = queue.next().await {
            if record.id == AUDIT {
                audited.push(record.line);
            }
        }
        assert_eq!(audited, [b"audit: of machined"]);
        assert_eq!(queue.audit_room.available_permits(), AUDIT_ROOM);
        assert_eq!(queue.room.available_permits(), QUEUE);
    }

    #[test]
    fn chatty_service_is_rate_limited_on_the_console() {
        let mut budget = Budget::default();
        let start = Instant::now();
        let said: Vec<Say> = (0..100).map(|_| budget.spend(start)).collect();
        let lines = said.iter().filter(|say| **say == Say::Line).count();
        let enough = said.iter().filter(|say| **say == Say::Enough).count();
        assert_eq!((lines, enough), (20, 1));
        assert_eq!(budget.spend(start + SPAN), Say::Line);
    }

    #[tokio::test]
    async fn full_queue_counts_dropped_lines() {
        for length in [4, 100, 16 * 1024] {
            let (sender, mut queue) = queue();
            let most = QUEUE / (OVERHEAD + 1 + length);
            // A buffer with more capacity than content.
            let line = || {
                let mut line = Vec::with_capacity(32 * 1024);
                line.resize(length, b'x');
                line
            };
            for _ in 0..most + 5 {
                sender.send("a", line());
            }
            assert_eq!(queue.dropped.load(Ordering::Relaxed), 5, "{length}");
            let mut bytes = 0;
            for _ in 0..most {
                let record = queue.next().await.unwrap();
                bytes += record.line.capacity() + record.id.capacity();
            }
            assert!(bytes <= QUEUE, "{length}: {bytes}");
            // The queue has capacity again.
            for _ in 0..most + 1 {
                sender.send("a", line());
            }
            assert_eq!(queue.dropped.load(Ordering::Relaxed), 6, "{length}");
        }
    }
}

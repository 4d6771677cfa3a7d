//! `cargo bench -p syslogd`: messages per second into the rings, as service records, as `/dev/log` datagrams and
//! through a real `/dev/log` socket, and their memory. Prints a section of docs/bench.md; fails only if the memory
//! bound is exceeded.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a failing step is a failing benchmark, and its numbers are small"
)]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use syslogd::store::{Bounds, Store};
use syslogd::{parse, render, sources};
use time::OffsetDateTime;

const BOUNDS: Bounds = Bounds {
    per_log: 512 * 1024,
    total: 6 * 1024 * 1024,
};
const MESSAGES: u64 = 1_000_000;
/// Messages per second that must stay within the memory bound.
const WANTED: f64 = 100_000.0;

fn main() {
    // `cargo test --benches` only checks that the benchmark runs.
    let is_test = std::env::args().any(|argument| argument == "--test");
    let messages = if is_test { 1_000 } else { MESSAGES };
    println!(
        "## Logs\n\n{messages} messages each, of the long ones a tenth. The last column is the most that the whole process ever had, \
         the sender included.\n\n\
         | messages | rate | limit | kept of {} KiB | process |\n|---|---|---|---|---|",
        BOUNDS.total / 1024
    );
    records(messages, false);
    records(messages, true);
    long(messages / 10);
    datagrams(messages);
    socket(messages);
}

fn line(n: u64) -> String {
    format!("time=\"2026-01-02T03:04:05Z\" level=info msg=\"a line as services write them\" n={n}")
}

/// Records of thirty services. With `followed`, each log has a reader that keeps up.
fn records(count: u64, followed: bool) {
    let store = Store::new(BOUNDS);
    let ids: Vec<String> = (0..30).map(|n| format!("service-{n}")).collect();
    let mut cursors = vec![0; ids.len()];
    let start = Instant::now();
    for n in 0..count {
        let at = usize::try_from(n).unwrap() % ids.len();
        store.append(&ids[at], line(n).as_bytes()).unwrap();
        if followed && let Some(read) = store.read(&ids[at], cursors[at]) {
            cursors[at] = read.next;
        }
    }
    let name = if followed {
        "records, each read at once"
    } else {
        "records"
    };
    told(name, count, start, &store);
}

/// Lines longer than half a block, so that each gets its own block.
fn long(count: u64) {
    let store = Store::new(BOUNDS);
    let ids: Vec<String> = (0..30).map(|n| format!("service-{n}")).collect();
    let text = "x".repeat(4200);
    let start = Instant::now();
    for n in 0..count {
        let at = usize::try_from(n).unwrap() % ids.len();
        store.append(&ids[at], text.as_bytes()).unwrap();
    }
    told("records of 4,200 bytes", count, start, &store);
}

/// Cost of a datagram without the socket.
fn datagrams(count: u64) {
    let store = Store::new(BOUNDS);
    let start = Instant::now();
    for n in 0..count {
        let datagram = format!("<30>Jan  2 03:04:05 prog[{n}]: {}", line(n));
        let message = parse::parse(datagram.as_bytes());
        let line = render::message(&message, OffsetDateTime::now_utc());
        store.append(sources::FOREIGN, &line).unwrap();
    }
    told("datagrams", count, start, &store);
}

/// A sender without pauses against the daemon's own loop.
fn socket(count: u64) {
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let store = Arc::new(Store::new(BOUNDS));
    let start = Instant::now();
    let sending = thread::spawn(move || {
        for n in 0..count {
            let datagram = format!("<30>Jan  2 03:04:05 prog[{n}]: {}", line(n));
            sender.send(datagram.as_bytes()).unwrap();
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let counted = store.clone();
    runtime.block_on(async move {
        let receiver = tokio::net::UnixDatagram::from_std(receiver).unwrap();
        let reading = tokio::spawn(sources::dev_log(receiver, counted.clone()));
        let mut changed = counted.changed();
        while counted.cursor(sources::FOREIGN, 0).unwrap_or(0) < count {
            changed.changed().await.unwrap();
        }
        reading.abort();
    });
    sending.join().unwrap();
    told("through a socket, none lost", count, start, &store);
}

fn told(name: &str, count: u64, start: Instant, store: &Store) {
    let rate = count as f64 / start.elapsed().as_secs_f64();
    let kept: usize = store.list().0.iter().map(|log| log.bytes).sum();
    assert!(kept <= BOUNDS.total, "{kept} bytes kept");
    let verdict = if rate >= WANTED { "kept" } else { "NOT KEPT" };
    println!(
        "| {name} | {rate:.0}/s | {WANTED}/s, {verdict} | {} KiB | {} |",
        kept / 1024,
        resident()
    );
}

fn resident() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.map_or("?".to_owned(), |line| line[6..].trim().to_owned())
}

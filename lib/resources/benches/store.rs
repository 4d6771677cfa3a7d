//! `cargo bench -p corten-resources`: writes per second, fan-out to a thousand watchers, memory per ten thousand
//! resources. It prints a section of docs/bench.md and sets no limits.
#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a failing step is a failing benchmark, and its numbers are small"
)]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use corten_resources::{Definition, Draft, Query, Sensitivity, Spec, Start, Store};
use serde::Serialize;
use tokio::runtime::Builder;

const WRITES: u64 = 1_000_000;
const WATCHERS: u64 = 1_000;
const FANNED_OUT: u64 = 2_000;
const RESOURCES: u64 = 10_000;

/// A spec about the size of a link's status.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Status {
    value: u64,
    name: String,
    flags: [u32; 8],
}

impl Spec for Status {
    const DEFINITION: Definition = Definition {
        type_name: "Statuses.bench.corten",
        default_namespace: "bench",
        aliases: &[],
        columns: &[],
        sensitivity: Sensitivity::NonSensitive,
        only_declared_aliases: false,
    };

    type Message = ();

    fn message(&self) {}
}

fn status(id: &str, value: u64) -> Draft {
    let name = "enp0s31f6".to_owned();
    let flags = [0; 8];
    Draft::new(id, Status { value, name, flags })
}

fn store() -> Store {
    let store = Store::new();
    store.register::<Status>().unwrap();
    store
}

fn main() {
    // `cargo test --benches` only checks that the benchmark runs.
    let is_test = std::env::args().any(|argument| argument == "--test");
    let scale = if is_test { 1_000 } else { 1 };
    println!("## Resources\n\n| measure | value |\n|---|---|");
    memory(RESOURCES / scale);
    for threads in [1, 2, 4] {
        writes(threads, WRITES / scale);
    }
    fan_out(WATCHERS / scale.min(100), FANNED_OUT / scale);
}

fn writes(threads: u64, count: u64) {
    let store = store();
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let store = &store;
            scope.spawn(move || {
                for value in 0..count / threads {
                    let id = format!("{thread}-{}", value % 100);
                    store.put(status(&id, value), "").unwrap();
                }
            });
        }
    });
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("| writes, {threads} at once, of one kind | {rate:.0}/s |");
}

fn fan_out(watchers: u64, count: u64) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let store = store();
    let seen: u64 = runtime.block_on(async {
        let tasks: Vec<_> = (0..watchers)
            .map(|_| {
                let name = Status::DEFINITION.type_name;
                let watch = store.watch_kind("bench", name, Query::default(), Start::Now);
                let mut watcher = watch.unwrap();
                tokio::spawn(async move {
                    let mut seen = 0;
                    while seen < count && watcher.next().await.unwrap().bookmark.is_some() {
                        seen += 1;
                    }
                    seen
                })
            })
            .collect();
        let start = Instant::now();
        let mut took = Vec::new();
        for value in 0..count {
            let write = Instant::now();
            store.put(status("one", value), "").unwrap();
            took.push(write.elapsed());
            // A pause at half of the history, because this writer is faster than any of a node.
            if value % 512 == 511 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        let mut seen = 0;
        for task in tasks {
            seen += task.await.unwrap();
        }
        let all = start.elapsed().as_secs_f64();
        println!(
            "| fan-out to {watchers} watchers | {:.0} events/s |",
            seen as f64 / all
        );
        took.sort_unstable();
        println!(
            "| a write meanwhile: median, 99 of 100, slowest | {:.2?}, {:.2?}, {:.2?} |",
            part(&took, 50),
            part(&took, 99),
            part(&took, 100)
        );
        seen
    });
    assert_eq!(seen, watchers * count, "every watcher keeps up");
}

/// The percentile of sorted durations.
fn part(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

fn memory(count: u64) {
    let store = store();
    let before = resident();
    for value in 0..count {
        store
            .put(status(&format!("resource-{value}"), value), "")
            .unwrap();
    }
    let bytes = resident().saturating_sub(before);
    let each = bytes / count.max(1);
    println!(
        "| memory of {count} resources | {} KiB, {each} bytes each |",
        bytes / 1024
    );
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}

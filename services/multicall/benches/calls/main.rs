//! `cargo bench -p multicall`: calls through mTLS, and the memory of apid, machined and syslogd before and after them.
//!
//! The calls are a unary call, one resource, 1,000 resources and a log, at 1 and 64 connections. One more is merged
//! from 1,000 simulated nodes. Prints a section of docs/bench.md; fails only on wrong answers.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a failing step is a failing benchmark, and its numbers are small"
)]

mod caller;
mod client;
mod servers;
mod still;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use client::{Sender, call, connect};
use corten_api::cosi::resource as cosi;
use corten_api::machine as api;
use corten_pki::{Algorithm, Ca};
use corten_resources::Spec as _;
use futures_util::future::join_all;
use prost::Message as _;
use rustls::ClientConfig;
use servers::{Daemon, on_a_thread};
use still::{RESOURCES, Status};

const MEMORY: &str = "machine.MachineService/Memory";
const CONNECTIONS: [usize; 2] = [1, 64];
const NODES: usize = 1_000;
const ROUNDS: usize = 9;
/// More lines than syslogd keeps of one log.
const LINES: usize = 10_000;

/// A kind of call.
struct Work {
    name: String,
    method: &'static str,
    message: Vec<u8>,
    /// Number of messages in its answer; `None` for any number above zero.
    answers: Option<usize>,
    /// Number of calls.
    calls: usize,
}

fn works(scale: usize) -> Vec<Work> {
    let type_name = Status::DEFINITION.type_name.to_owned();
    let namespace = Status::DEFINITION.default_namespace.to_owned();
    let get = cosi::GetRequest {
        namespace: namespace.clone(),
        r#type: type_name.clone(),
        id: "resource-1".to_owned(),
        ..Default::default()
    };
    let list = cosi::ListRequest {
        namespace,
        r#type: type_name,
        ..Default::default()
    };
    let logs = api::LogsRequest {
        id: "syslogd".to_owned(),
        tail_lines: -1,
        ..Default::default()
    };
    let work = |name: &str, method, message, answers, calls: usize| Work {
        name: name.to_owned(),
        method,
        message,
        answers,
        calls: (calls / scale).max(64),
    };
    vec![
        work("Memory", MEMORY, Vec::new(), Some(1), 20_000),
        work(
            "Get",
            "cosi.resource.State/Get",
            get.encode_to_vec(),
            Some(1),
            20_000,
        ),
        work(
            &format!("List of {RESOURCES}"),
            "cosi.resource.State/List",
            list.encode_to_vec(),
            Some(RESOURCES),
            1_280,
        ),
        work(
            "Logs, a full log",
            "machine.MachineService/Logs",
            logs.encode_to_vec(),
            None,
            1_280,
        ),
    ]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if servers::run_as(&words) {
        return;
    }
    // `cargo test --benches` only checks that the benchmark runs.
    let is_test = words.iter().any(|word| word == "--test");
    let (scale, nodes, rounds) = if is_test {
        (1_000, 20, 1)
    } else {
        (1, NODES, ROUNDS)
    };
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
    let own = caller::config(&ca, "os:reader");
    let nodes_at = servers::simulate_nodes(&ca);
    let daemons = servers::start(directory.path(), &ca, nodes_at, LINES);
    on_a_thread(move || async move {
        let address = daemons[0].address.unwrap();
        let mut had = vec![memory(&daemons)];
        println!(
            "## Calls\n\nCallers, apid, machined's server and syslogd are processes of one machine. Both sides of TLS \
             have a certificate.\nA connection makes one call after the other.\n\n\
             | call | connections | rate | median | 90 of 100 | 99 of 100 | slowest | an answer |\n\
             |---|---|---|---|---|---|---|---|"
        );
        for connections in CONNECTIONS {
            let senders = join_all((0..connections).map(|_| connect(address, &own))).await;
            for work in works(scale) {
                measure(&senders, &work).await;
            }
            drop(senders);
            settle();
            had.push(memory(&daemons));
        }
        fan_out(address, &own, nodes, rounds).await;
        settle();
        had.push(memory(&daemons));
        println!(
            "\nMemory is a process's own. The last column also counts the pages of its program's file that it has used.\n\
             The kernel takes them back when it needs them.\n\n\
             | memory | before | after 1 connection | after 64 | after {nodes} nodes | with its file, at most |\n\
             |---|---|---|---|---|---|"
        );
        for (number, daemon) in daemons.iter().enumerate() {
            let row: Vec<String> = had.iter().map(|at| mib(at[number])).collect();
            println!(
                "| {} | {} | {} |",
                daemon.name,
                row.join(" | "),
                mib(daemon.memory().1)
            );
        }
    })
    .join()
    .unwrap();
}

/// Waits until the daemons have returned freed memory.
fn settle() {
    std::thread::sleep(corten_sys::memory::INTERVAL + Duration::from_secs(2));
}

/// Private memory of each daemon in KiB.
fn memory(daemons: &[Daemon]) -> Vec<u64> {
    daemons.iter().map(|daemon| daemon.memory().0).collect()
}

fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

/// Measures the calls. Each connection makes one call after the other.
async fn measure(senders: &[Sender], work: &Work) {
    let start = Instant::now();
    let each = work.calls / senders.len();
    let done = join_all(senders.iter().map(async |sender| {
        let mut took = Vec::with_capacity(each);
        let mut bytes = 0;
        for _ in 0..each {
            let start = Instant::now();
            let answer = call(sender, work.method, &work.message, &[]).await;
            took.push(start.elapsed());
            assert!(!answer.is_empty() && work.answers.is_none_or(|count| count == answer.len()));
            bytes = answer.iter().map(|message| message.len()).sum();
        }
        (took, bytes)
    }))
    .await;
    let elapsed = start.elapsed().as_secs_f64();
    let bytes = done.first().map_or(0, |(_, bytes)| *bytes);
    let mut took: Vec<Duration> = done.into_iter().flat_map(|(took, _)| took).collect();
    took.sort_unstable();
    println!(
        "| {} | {} | {:.0}/s | {} | {} | {} | {} | {:.1} KiB |",
        work.name,
        senders.len(),
        took.len() as f64 / elapsed,
        part(&took, 50),
        part(&took, 90),
        part(&took, 99),
        part(&took, 100),
        bytes as f64 / 1024.0
    );
}

/// A percentile of the sorted durations.
fn part(sorted: &[Duration], percent: usize) -> String {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    format!("{:.2} ms", sorted[at].as_secs_f64() * 1e3)
}

async fn fan_out(address: SocketAddr, own: &Arc<ClientConfig>, nodes: usize, rounds: usize) {
    let sender = connect(address, own).await;
    let names: Vec<_> = (0..nodes).map(|n| format!("n{n}.nodes.test")).collect();
    let mut took = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let answer = call(&sender, MEMORY, &[], &names).await;
        took.push(start.elapsed());
        let rows = api::MemoryResponse::decode(answer[0].clone())
            .unwrap()
            .messages;
        assert_eq!(rows.len(), nodes);
        assert!(rows.iter().all(|row| row.meminfo.is_some()));
    }
    // The first call connects to the nodes; the connections stay open.
    let first = part(&took[..1], 100);
    took.sort_unstable();
    println!(
        "\n| call | first | median | slowest |\n|---|---|---|---|\n\
         | Memory of {nodes} simulated nodes in one call | {first} | {} | {} |",
        part(&took, 50),
        part(&took, 100)
    );
}

//! Streams of machined's own server, which is this program in another process, and of syslogd behind it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::{env, fs, thread};

use corten_api::cosi::resource as cosi;
use corten_api::{common, machine as api};
use corten_resources::Spec as _;
use futures_util::future::join_all;
use prost::Message as _;
use tempfile::TempDir;

use crate::client::{Connection, Messages, WINDOW, begin_watching, mortal};
use crate::process::{KIB, MIB, Process, at_rest, until, within};
use crate::scale;
use crate::still::{self, Status};

const WATCH: &str = "cosi.resource.State/Watch";
const LOGS: &str = "machine.MachineService/Logs";
const LIST: &str = "cosi.resource.State/List";

/// Environment variable that tells the machined process its directory.
const MARK: &str = "CORTEN_TEST_MACHINED";
const SOCKET: &str = "machined.sock";
const SYSLOGD: &str = "syslogd.sock";
/// Printed when the server is up, and after each completed request.
const DONE: &str = "done";

/// machined's server in a process.
struct Machined {
    process: Process,
    asked: ChildStdin,
    says: BufReader<ChildStdout>,
    directory: TempDir,
}

/// Runs a test with a machined. Its process runs the same test but ends in this function. `test` is the full name of
/// the test.
fn with_machined(test: &str, body: impl AsyncFnOnce(Machined)) {
    if let Some(directory) = env::var_os(MARK) {
        serve(Path::new(&directory));
        return;
    }
    let machined = Machined::start(test);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(body(machined));
}

/// Serves. Each line of the input is a number of changes to a resource.
fn serve(directory: &Path) {
    // Like the image's program.
    corten_sys::memory::keep_small().unwrap();
    let (socket, syslogd) = (directory.join(SOCKET), directory.join(SYSLOGD));
    still::serve(&socket, &syslogd, |store| {
        let store = store.clone();
        println!("\n{DONE}");
        thread::spawn(move || {
            for (line, asked) in std::io::stdin().lines().enumerate() {
                for n in 0..asked.unwrap().parse::<usize>().unwrap() {
                    let changed = still::status("resource-0", &format!("line-{line}-{n}"));
                    store.put(changed, "").unwrap();
                }
                println!("\n{DONE}");
            }
            end();
        });
    });
}

/// Ends the process when the test is gone.
#[expect(clippy::exit, reason = "the server's own thread serves for ever")]
fn end() {
    std::process::exit(0);
}

impl Machined {
    fn start(test: &str) -> Machined {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(MARK, directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut machined = Machined {
            asked: child.stdin.take().unwrap(),
            says: BufReader::new(child.stdout.take().unwrap()),
            process: Process::new(child),
            directory,
        };
        machined.has_done();
        machined
    }

    fn has_done(&mut self) {
        let mut line = String::new();
        while line.trim() != DONE {
            line.clear();
            assert!(
                self.says.read_line(&mut line).unwrap() > 0,
                "machined ended"
            );
        }
    }

    /// Changes a resource `times` times.
    fn change(&mut self, times: usize) {
        writeln!(self.asked, "{times}").unwrap();
        self.has_done();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits until the process is idle; returns its private memory.
    async fn at_rest(&self) -> usize {
        at_rest(&[&self.process]).await;
        self.process.own()
    }
}

/// Idle watchers first, then many changes that no watcher reads.
#[test]
fn thousand_resource_watchers_use_bounded_memory_each() {
    const WATCHERS: usize = 1_000;
    const EACH: usize = 100;
    // Window of each stream, small so that it fills soon.
    const SMALL: u32 = 4 << 10;
    const IDLE: usize = 16 * KIB;
    const NOT_READING: usize = 24 * KIB;
    // More than the history of a resource type holds.
    const CHANGES: usize = 2_000;
    let name = "at_machined::thousand_resource_watchers_use_bounded_memory_each";
    with_machined(name, async |mut machined| {
        let socket = machined.path(SOCKET);
        let definition = Status::DEFINITION;
        let watch = cosi::WatchRequest {
            namespace: definition.default_namespace.to_owned(),
            r#type: definition.type_name.to_owned(),
            api_version: 1,
            ..Default::default()
        };
        let mortal = mortal();
        let connect = async || {
            let socket = socket.clone();
            let connected = async move { Connection::to_socket(&socket, SMALL).await };
            mortal.spawn(connected).await.unwrap()
        };
        let first = Connection::to_socket(&socket, SMALL).await;
        drop(first.call(WATCH, &watch, &[]).await.next().await.unwrap());
        drop(first);
        let before = machined.at_rest().await;
        let had = machined.process.descriptors_and_threads();
        let mut watchers: Vec<Messages> = Vec::new();
        while watchers.len() < WATCHERS {
            let connection = connect().await;
            watchers.extend(begin_watching(&connection, EACH, WATCH, &watch).await);
        }
        let each = |what: &str, now: usize, bound: usize| {
            within(what, before / WATCHERS, now / WATCHERS, bound);
        };
        each("an idle watcher", machined.at_rest().await, IDLE);
        machined.change(CHANGES);
        each(
            "a watcher that does not read",
            machined.at_rest().await,
            NOT_READING,
        );
        // A watcher that finally reads is told that it missed events.
        let mut late = watchers.pop().unwrap();
        let mut last = None;
        while let Some(message) = late.next().await {
            last = cosi::WatchResponse::decode(message).unwrap().event.pop();
        }
        assert_eq!(last.unwrap().event_type(), cosi::EventType::Errored);
        mortal.shutdown_background();
        machined.process.comes_back_to(had).await;
    });
}

/// Resident pages of the program file do not count: they stay, and the kernel reclaims them when necessary.
#[test]
fn memory_of_64_concurrent_callers_is_released() {
    const CALLERS: usize = 64;
    const ROUNDS: usize = 4;
    const LEFT: usize = 4 * MIB;
    with_machined(
        "at_machined::memory_of_64_concurrent_callers_is_released",
        async |machined| {
            let definition = Status::DEFINITION;
            let list = cosi::ListRequest {
                namespace: definition.default_namespace.to_owned(),
                r#type: definition.type_name.to_owned(),
                ..Default::default()
            };
            let connection = Connection::to_socket(&machined.path(SOCKET), WINDOW).await;
            let whole = async || {
                let mut messages = connection.call(LIST, &list, &[]).await;
                let mut number = 0;
                while messages.next().await.is_some() {
                    number += 1;
                }
                assert_eq!(number, still::RESOURCES);
            };
            whole().await;
            let before = machined.at_rest().await;
            for _ in 0..ROUNDS {
                join_all((0..CALLERS).map(|_| whole())).await;
            }
            let own = || machined.process.own();
            until("own memory", own, |own| *own <= before + LEFT).await;
        },
    );
}

/// Lines arrive one by one, as on a node, so that each is a message.
#[test]
fn unread_log_followers_use_bounded_memory_and_stay_connected() {
    const FOLLOWERS: usize = 10;
    const EACH: usize = 192 * KIB;
    // Memory of the log and of the streams.
    const KEPT: usize = 2 * MIB;
    let name = "at_machined::unread_log_followers_use_bounded_memory_and_stay_connected";
    with_machined(name, async |machined| {
        let notify = machined.path("syslogd");
        fs::create_dir(&notify).unwrap();
        let (log, socket) = (machined.path("log"), machined.path(SYSLOGD));
        let words = ["syslogd", "--kmsg", "none", "--config", "none"].map(OsString::from);
        let more = [
            "--dev-log".into(),
            log.clone().into(),
            "--socket".into(),
            socket.into(),
        ];
        let arguments: Vec<OsString> = words.into_iter().chain(more).collect();
        let syslogd = Process::daemon(&notify, &arguments);
        let sender = UnixDatagram::unbound().unwrap();
        let write = |n: usize| {
            let line = format!("<30>Jan  2 03:04:05 prog[1]: a line as programs write them n={n}.");
            sender.send_to(line.as_bytes(), &log).unwrap();
        };
        let follow = api::LogsRequest {
            id: "syslogd".to_owned(),
            follow: true,
            tail_lines: -1,
            ..Default::default()
        };
        let mortal = mortal();
        let connect = async || {
            let socket = machined.path(SOCKET);
            let connected = async move { Connection::to_socket(&socket, WINDOW).await };
            mortal.spawn(connected).await.unwrap()
        };
        write(0);
        let reading = connect().await;
        let mut reader = loop {
            // The log exists after its first line.
            match reading.try_call(LOGS, &follow, &[]).await {
                Ok(body) => break Messages::of(body),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        read_to(&mut reader, 0).await;
        let had = machined.process.descriptors_and_threads();
        let connection = connect().await;
        let calls = (0..FOLLOWERS).map(|_| connection.call(LOGS, &follow, &[]));
        let mut followers = join_all(calls).await;
        let before = (machined.at_rest().await, syslogd.own());
        let last = 3_000 * scale();
        for n in 1..=last {
            write(n);
            read_to(&mut reader, n).await;
        }
        let now = machined.at_rest().await;
        within(
            "a follower that does not read",
            before.0 / FOLLOWERS,
            now / FOLLOWERS,
            EACH,
        );
        within("syslogd", before.1, syslogd.own(), KEPT);
        for follower in &mut followers {
            read_to(follower, last).await;
        }
        drop((followers, connection));
        machined.process.comes_back_to(had).await;
        mortal.shutdown_background();
    });
}

/// Reads a log up to the line with this number.
async fn read_to(log: &mut Messages, number: usize) {
    let wanted = format!("n={number}.");
    let mut text = String::new();
    while !text.contains(&wanted) {
        let message = log.next().await.unwrap();
        let data = common::Data::decode(message).unwrap();
        text.clear();
        text.push_str(&String::from_utf8(data.bytes).unwrap());
    }
}

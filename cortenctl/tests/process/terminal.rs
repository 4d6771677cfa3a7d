//! The program on a terminal: output that it prints only there.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::fake;
use crate::support::{cortenctl, generate};

/// The sequence that overwrites a line (ECMA-48, EL).
const CLEAR: &str = "\r\u{1b}[K";
/// The sequences that enter and leave the alternate screen (xterm's 1049).
const SCREEN: &str = "\u{1b}[?1049h";
const SCREEN_LEFT: &str = "\u{1b}[?1049l";
/// The sequences that clear the screen and move to its top (ECMA-48, ED and CUP).
const CLEAR_ALL: &str = "\u{1b}[2J";
const TOP: &str = "\u{1b}[1;1H";
/// The key that ends a program on a terminal.
const INTERRUPT: &str = "\u{3}";
/// Timeout of a program, however much it writes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two checks whether to send keys.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a command line on a new terminal, made by `script` (util-linux). Sends the keys once
/// `ready` accepts the output.
fn on_terminal(
    line: &str,
    directory: &Path,
    ready: impl Fn(&str) -> bool,
    keys: &str,
) -> (ExitStatus, String) {
    // A background job ignores SIGINT, and the program would inherit that.
    let mut child = Command::new("env")
        .args(["--default-signal=INT", "script"])
        .args(["--quiet", "--return", "--flush", "--command", line])
        .arg("/dev/null")
        .env("CORTENCONFIG", directory.join("cortenconfig"))
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = read(child.stdout.take().unwrap());
    let mut seen = Vec::new();
    let mut pressed = keys.is_empty();
    let end = Instant::now() + PATIENCE;
    loop {
        match output.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(bytes) => seen.extend(bytes),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() > end {
            child.kill().and_then(|()| child.wait()).unwrap();
            panic!("{line}: no end after {:?}", String::from_utf8_lossy(&seen));
        }
        if !pressed && ready(&String::from_utf8_lossy(&seen)) {
            stdin.write_all(keys.as_bytes()).unwrap();
            stdin.flush().unwrap();
            pressed = true;
        }
    }
    drop(stdin);
    let status = child.wait().unwrap();
    (status, String::from_utf8_lossy(&seen).into_owned())
}

fn read(mut from: impl std::io::Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

fn command(endpoint: &str, arguments: &str) -> String {
    // Without a terminal of its own, `script` makes one without a size.
    let program = env!("CARGO_BIN_EXE_cortenctl");
    format!("stty rows 40 cols 120 && exec {program} -e {endpoint} {arguments}")
}

/// A directory with configs, and a node that serves them.
async fn node() -> (tempfile::TempDir, String) {
    let (directory, address, _) = shared_node().await;
    (directory, address)
}

/// The same, with the nodes' shared state.
async fn shared_node() -> (tempfile::TempDir, String, fake::Fake) {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let (address, fake) = fake::start(directory.path()).await;
    (directory, address.to_string(), fake)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_view_refreshes_although_a_node_fails() {
    let (directory, address) = node().await;
    let run = move || {
        let line = command(&address, "processes -w -n n1,down");
        let twice = |seen: &str| seen.matches("machined").count() >= 2;
        on_terminal(&line, directory.path(), twice, INTERRUPT)
    };
    let (_, seen) = tokio::task::spawn_blocking(run).await.unwrap();
    let mut pictures = seen.split(CLEAR_ALL);
    assert_eq!(pictures.next(), Some(""), "{seen:?}");
    let pictures: Vec<&str> = pictures.take(2).collect();
    assert_eq!(pictures.len(), 2, "{seen:?}");
    for picture in pictures {
        assert!(picture.starts_with(&format!("{TOP}NODE ")), "{seen:?}");
        assert!(picture.contains("machined"), "{seen:?}");
    }
    // The error is below the first picture; the second one may have been interrupted.
    let (first, _) = seen.rsplit_once(CLEAR_ALL).unwrap();
    assert!(first.contains("error: down: no route to host"), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn screen_is_kept_until_the_next_frame_is_ready() {
    let (directory, address, fake) = shared_node().await;
    let run = move || {
        let line = command(&address, "processes -w -n silent");
        let asked = |_: &str| fake.looks() > 0;
        on_terminal(&line, directory.path(), asked, INTERRUPT)
    };
    let (_, seen) = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(!seen.contains(CLEAR_ALL), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_starts_and_ends() {
    let (directory, address) = node().await;
    let run = move || {
        let line = command(&address, "dashboard -n n1,n2");
        // The first picture shows the nodes.
        on_terminal(&line, directory.path(), |seen| seen.contains("n2"), "q")
    };
    let (status, seen) = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(status.success(), "{status}: {seen:?}");
    let (_, drawn) = seen.split_once(SCREEN).unwrap();
    assert!(drawn.contains(SCREEN_LEFT), "{drawn:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_transfers_count_their_bytes_on_a_terminal_only() {
    let (directory, address) = node().await;
    let archive = directory.path().join("archive");
    std::fs::write(&archive, vec![7; 200_000]).unwrap();
    let run = move || {
        let path = directory.path().to_str().unwrap().to_owned();
        let verbs = [
            (format!("copy /var/log {path}/out"), "127.0.0.1: copied "),
            (format!("image import {path}/archive"), "127.0.0.1: sent "),
            (
                format!("read /etc/os-release > {path}/file"),
                "127.0.0.1: read ",
            ),
        ];
        let shown = verbs.map(|(arguments, label)| {
            let line = command(&address, &arguments);
            let (status, seen) = on_terminal(&line, directory.path(), |_| false, "");
            assert!(status.success(), "{status}: {seen:?}");
            (label, seen)
        });
        let config = directory.path().join("cortenconfig");
        let flags = ["--cortenconfig", config.to_str().unwrap(), "-e", &address];
        let target = directory.path().join("quiet").display().to_string();
        let quiet = cortenctl(&[&flags[..], &["copy", "/var/log", &target]].concat());
        let file = std::fs::read_to_string(directory.path().join("file")).unwrap();
        (shown, quiet, file)
    };
    let (shown, quiet, file) = tokio::task::spawn_blocking(run).await.unwrap();
    for (label, seen) in shown {
        assert!(seen.contains(&format!("{CLEAR}{label}")), "{seen:?}");
        // The line is erased at the end.
        let (_, last) = seen.rsplit_once(CLEAR).unwrap();
        assert!(!last.contains(label), "{seen:?}");
    }
    assert!(file.starts_with("NAME=Corten\n"), "{file}");
    assert!(quiet.status.success(), "{quiet:?}");
    assert!(
        quiet.stdout.is_empty() && quiet.stderr.is_empty(),
        "{quiet:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wipe_progress_counts_the_bytes_a_node_writes() {
    let (directory, address) = node().await;
    let run = move || {
        let line = command(&address, "wipe disk /dev/vdb --method ZEROES -n slow");
        on_terminal(&line, directory.path(), |_| false, "")
    };
    let (status, seen) = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(status.success(), "{status}: {seen:?}");
    // Counting starts at the first answer.
    assert!(seen.contains(&format!("{CLEAR}written 0 B")), "{seen:?}");
    assert!(seen.contains(&format!("{CLEAR}written 512 MB")), "{seen:?}");
    assert!(seen.contains("slow: /dev/vdb wiped"), "{seen:?}");
}

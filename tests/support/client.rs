//! Runs `cortenctl` as an operator does.

use std::io::{Read, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::workspace;

/// Timeout of a call: a client that hangs is a failure.
pub const CALL: Duration = Duration::from_secs(60);

/// The address and the credentials of a client.
#[derive(Debug, Clone)]
pub struct Client {
    node: SocketAddr,
    credentials: Option<PathBuf>,
    /// The client trusts the node's own certificate.
    is_locked: bool,
}

impl Client {
    /// A client without credentials, for a node without a config.
    #[must_use]
    pub fn insecure(node: SocketAddr) -> Self {
        Self {
            node,
            credentials: None,
            is_locked: false,
        }
    }

    /// A client with the client config at `file`.
    #[must_use]
    pub fn with_config(node: SocketAddr, file: &Path) -> Self {
        Self {
            node,
            credentials: Some(file.to_owned()),
            is_locked: false,
        }
    }

    /// The owner's client of a locked node, whose certificate the client config cannot verify.
    #[must_use]
    pub fn of_locked(node: SocketAddr, file: &Path) -> Self {
        Self {
            node,
            credentials: Some(file.to_owned()),
            is_locked: true,
        }
    }

    /// Runs one command; returns its standard output.
    ///
    /// # Errors
    /// The output of a command that failed, or a message that it took over a minute.
    pub fn call(&self, arguments: &[&str]) -> Result<String, String> {
        self.call_within(CALL, arguments)
    }

    /// Runs one command with another timeout, such as a command that changes several nodes in turn.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_within(&self, limit: Duration, arguments: &[&str]) -> Result<String, String> {
        run(self.command(arguments), limit)
    }

    /// Runs one command that must succeed; returns its standard output.
    ///
    /// # Panics
    /// The command fails; the message is the error of [`Client::call`].
    pub fn must(&self, arguments: &[&str]) -> String {
        self.call(arguments)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The program with its arguments, for [`run`] or [`until`].
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(workspace::cortenctl());
        command
            .args(arguments)
            .env_remove("CORTENCONFIG")
            .env_remove("TALOSCONFIG");
        let node = self.node.to_string();
        match &self.credentials {
            // The endpoint in the config is not the forwarded port.
            Some(file) if self.is_locked => {
                command
                    .arg("--cortenconfig")
                    .arg(file)
                    .args(["--insecure", "-n", &node])
            }
            Some(file) => command.arg("--cortenconfig").arg(file).args(["-e", &node]),
            None => command.args(["--insecure", "-n", &node]),
        };
        command
    }
}

/// Writes a new cluster's configs to `directory`: `controlplane.yaml`, `worker.yaml`,
/// `cortenconfig`. Their endpoint is this host's loopback address, over which the tests reach a
/// node.
///
/// # Panics
/// The client fails.
pub fn generate_config(directory: &Path) {
    generate_config_with(directory, "https://127.0.0.1:6443", &[]);
}

/// [`generate_config`] with another endpoint and more arguments.
///
/// # Panics
/// The client fails.
pub fn generate_config_with(directory: &Path, endpoint: &str, more: &[&str]) {
    let mut command = Command::new(workspace::cortenctl());
    command
        .args(["gen", "config", "test", endpoint])
        .args(["--additional-sans", "127.0.0.1", "--output-dir"])
        .arg(directory)
        .args(more);
    // Without a target disk, a machine without a disk of ours runs from memory.
    if !more.contains(&"--install-disk") {
        command.args(["--install-disk", ""]);
    }
    run(command, CALL).expect("cortenctl gen config");
}

/// Runs a command to its end; returns its standard output.
///
/// # Errors
/// The output of a command that failed, or a message that it took longer than `limit`.
pub fn run(command: Command, limit: Duration) -> Result<String, String> {
    Run::start(command, limit, Stdio::null())?.finish()
}

/// Runs a command until `enough` accepts its standard output, and returns that output. Then sends
/// `keys` and waits for the command's end; without keys the command is killed.
///
/// # Errors
/// The output of a command that ended early or failed, or a message that it took longer than
/// `limit`.
pub fn until(
    limit: Duration,
    command: Command,
    keys: &str,
    enough: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let mut run = Run::start(command, limit, Stdio::piped())?;
    while !enough(&text(&run.out)) {
        if !run.read()? {
            return Err(run.wrong("it ended too early"));
        }
    }
    let seen = text(&run.out);
    if keys.is_empty() {
        return Ok(seen);
    }
    // Standard input stays open: a terminal without input behaves differently.
    if let Some(stdin) = &mut run.child.stdin {
        let pressed = stdin.write_all(keys.as_bytes());
        pressed.map_err(|error| run.wrong(&format!("it accepts no keys: {error}")))?;
    }
    run.finish().map(|_| seen)
}

/// A running command with its output so far.
struct Run {
    /// The command, for messages.
    shown: String,
    child: Child,
    /// Chunks of both outputs. They are read while the command runs, because a full pipe would
    /// block it.
    pieces: Receiver<(Stream, Vec<u8>)>,
    out: Vec<u8>,
    err: Vec<u8>,
    limit: Duration,
    /// The deadline.
    end: Instant,
}

/// An output of a command.
#[derive(Debug, Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

impl Run {
    fn start(mut command: Command, limit: Duration, stdin: Stdio) -> Result<Run, String> {
        let shown = format!("{command:?}");
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{shown}: {error}"))?;
        let (sender, pieces) = channel();
        read(Stream::Stdout, child.stdout.take(), sender.clone());
        read(Stream::Stderr, child.stderr.take(), sender);
        Ok(Run {
            shown,
            child,
            pieces,
            out: Vec::new(),
            err: Vec::new(),
            limit,
            end: Instant::now() + limit,
        })
    }

    /// Waits for the next chunk; false when both outputs are closed.
    fn read(&mut self) -> Result<bool, String> {
        let left = self.end.saturating_duration_since(Instant::now());
        match self.pieces.recv_timeout(left) {
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
            // `recv_timeout` returns a pending chunk even after the deadline.
            Ok(_) if left.is_zero() => return Err(self.late()),
            Err(RecvTimeoutError::Timeout) => return Err(self.late()),
            Ok((Stream::Stdout, piece)) => self.out.extend(piece),
            Ok((Stream::Stderr, piece)) => self.err.extend(piece),
        }
        Ok(true)
    }

    fn finish(mut self) -> Result<String, String> {
        while self.read()? {}
        let status = self.wait()?;
        if status.success() {
            return Ok(text(&self.out));
        }
        Err(self.wrong(&status.to_string()))
    }

    /// Waits for the exit of a command that has closed its outputs.
    fn wait(&mut self) -> Result<ExitStatus, String> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if Instant::now() < self.end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(None) => return Err(self.late()),
                Err(error) => return Err(self.wrong(&error.to_string())),
            }
        }
    }

    fn late(&mut self) -> String {
        self.kill();
        self.wrong(&format!("it did not end within {} s", self.limit.as_secs()))
    }

    /// The error message of a failed run, with the command's output.
    fn wrong(&self, why: &str) -> String {
        let (out, err) = (text(&self.out), text(&self.err));
        format!("{}: {why}: {out}{}", self.shown, err.trim())
    }

    fn kill(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

impl Drop for Run {
    /// On every failure the command ends with the test.
    fn drop(&mut self) {
        self.kill();
    }
}

fn read(stream: Stream, from: Option<impl Read + Send + 'static>, to: Sender<(Stream, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        let Some(mut from) = from else { return };
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let piece = buffer.get(..count).unwrap_or_default().to_vec();
            if to.send((stream, piece)).is_err() {
                break;
            }
        }
    });
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A table as the client prints it: columns are as wide as their widest cell, separated by three
/// blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The headers.
    pub headers: Vec<String>,
    /// The rows, cell by cell.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Splits at the starts of the headers, which may contain single blanks: a cell may be empty,
    /// or contain several blanks.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let mut lines = lines.map(|line| line.chars().collect::<Vec<char>>());
        let header = lines.next().unwrap_or_default();
        let blank = |at: usize| header.get(at).is_none_or(|c| *c == ' ');
        let starts_one = |at: &usize| {
            let first = *at == 0 || (*at > 1 && blank(*at - 1) && blank(*at - 2));
            first && !blank(*at)
        };
        let starts: Vec<usize> = (0..header.len()).filter(starts_one).collect();
        let cells = |line: &Vec<char>| -> Vec<String> {
            let ends = starts.iter().skip(1).copied().chain([line.len()]);
            let cells = starts.iter().zip(ends).map(|(start, end)| {
                let cell = line.get(*start..end.min(line.len()).max(*start));
                let cell: String = cell.unwrap_or_default().iter().collect();
                cell.trim_end().to_owned()
            });
            cells.collect()
        };
        Self {
            headers: cells(&header),
            rows: lines.map(|line| cells(&line)).collect(),
        }
    }

    /// All cells of a column.
    ///
    /// # Panics
    /// The header does not exist.
    #[must_use]
    pub fn column(&self, header: &str) -> Vec<&str> {
        let index = self
            .headers
            .iter()
            .position(|name| name == header)
            .unwrap_or_else(|| panic!("no column {header} in {:?}", self.headers));
        self.rows
            .iter()
            .filter_map(|row| row.get(index))
            .map(String::as_str)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn command_returns_its_output_or_its_error() {
        assert_eq!(run(shell("echo a; echo b >&2"), CALL), Ok("a\n".to_owned()));
        let error = run(shell("echo a; echo b >&2; exit 3"), CALL).unwrap_err();
        assert!(error.ends_with(": exit status: 3: a\nb"), "{error}");
    }

    #[test]
    fn endless_command_is_killed() {
        let lines = |text: &str| text.lines().count() >= 2;
        let forever = "echo a; echo b; exec sleep 1000";
        assert_eq!(
            until(CALL, shell(forever), "", lines),
            Ok("a\nb\n".to_owned())
        );
        // Also for a command that writes all the time, or has closed its outputs.
        let short = Duration::from_millis(50);
        for forever in [
            "while :; do echo a; done",
            "while :; do echo a >&2; done",
            "exec sleep 1000",
            "exec >&- 2>&-; exec sleep 1000",
        ] {
            let error = run(shell(forever), short).unwrap_err();
            assert!(error.contains("it did not end within 0 s"), "{error}");
        }
        let error = until(short, shell("exec sleep 1000"), "q", lines).unwrap_err();
        assert!(error.contains("it did not end within 0 s"), "{error}");
    }

    #[test]
    fn keys_are_sent_once_the_expected_output_appears() {
        let ready = |text: &str| text.contains("ready");
        let program = "echo ready; read key; [ $key = q ]";
        assert_eq!(
            until(CALL, shell(program), "q\n", ready),
            Ok("ready\n".to_owned())
        );
        let error = until(CALL, shell(program), "x\n", ready).unwrap_err();
        assert!(error.contains("exit status: 1"), "{error}");
        let error = until(CALL, shell("echo a"), "q\n", ready).unwrap_err();
        assert!(error.contains("it ended too early: a\n"), "{error}");
    }

    #[test]
    fn tables_are_read_by_header() {
        let table = Table::parse("NODE        TOTAL   LAST CHANGE\n10.0.0.2    972     2m ago\n\n");
        assert_eq!(table.headers, ["NODE", "TOTAL", "LAST CHANGE"]);
        assert_eq!(table.column("TOTAL"), ["972"]);
        assert_eq!(table.column("LAST CHANGE"), ["2m ago"]);
        assert_eq!(table.rows.len(), 1);
    }

    #[test]
    fn table_cells_may_be_empty_or_contain_blanks() {
        let text = "\
NODE        LABEL     NAME
127.0.0.1             └─ a
127.0.0.1   a  b  c   d
127.0.0.1
";
        let table = Table::parse(text);
        assert_eq!(table.column("NODE"), ["127.0.0.1"; 3]);
        assert_eq!(table.column("LABEL"), ["", "a  b  c", ""]);
        assert_eq!(table.column("NAME"), ["└─ a", "d", ""]);
        let none = Table::parse("");
        assert!(none.headers.is_empty() && none.rows.is_empty());
    }
}

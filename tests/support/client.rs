//! `cortenctl`, driven as an operator drives it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace;

/// One call never takes longer: a client that hangs is a failure.
const CALL: Duration = Duration::from_secs(60);

/// How to reach a node, and as whom.
#[derive(Debug, Clone)]
pub struct Client {
    node: SocketAddr,
    credentials: Option<PathBuf>,
}

impl Client {
    /// Without credentials, for a node that has no config yet.
    #[must_use]
    pub fn insecure(node: SocketAddr) -> Self {
        Self {
            node,
            credentials: None,
        }
    }

    /// With the client config at `file`.
    #[must_use]
    pub fn with_config(node: SocketAddr, file: &Path) -> Self {
        Self {
            node,
            credentials: Some(file.to_owned()),
        }
    }

    /// Runs one command; what it printed, or what it complained about.
    ///
    /// # Errors
    /// What a command said on both outputs that failed, or that it took over a minute.
    pub fn call(&self, arguments: &[&str]) -> Result<String, String> {
        self.call_within(CALL, arguments)
    }

    /// The same for a command that may take another time, such as one that changes several nodes in turn.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_within(&self, limit: Duration, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(workspace::cortenctl());
        command
            .args(arguments)
            .env_remove("CORTENCONFIG")
            .env_remove("TALOSCONFIG");
        let node = self.node.to_string();
        match &self.credentials {
            // The config's own endpoint is not the forwarded port.
            Some(file) => command.arg("--cortenconfig").arg(file).args(["-e", &node]),
            None => command.args(["--insecure", "-n", &node]),
        };
        run(command, limit)
    }
}

/// Writes a fresh cluster's configs to `directory`: `controlplane.yaml`,
/// `worker.yaml`, `cortenconfig`. They name this host's loopback address, over
/// which the tests reach a node.
///
/// # Panics
/// When the client cannot.
pub fn generate_config(directory: &Path) {
    generate_config_with(directory, "https://127.0.0.1:6443", &[]);
}

/// [`generate_config`] for another endpoint, with more arguments.
///
/// # Panics
/// When the client cannot.
pub fn generate_config_with(directory: &Path, endpoint: &str, more: &[&str]) {
    let mut command = Command::new(workspace::cortenctl());
    command
        .args(["gen", "config", "test", endpoint])
        .args(["--additional-sans", "127.0.0.1", "--output-dir"])
        .arg(directory)
        .args(more);
    run(command, CALL).expect("cortenctl gen config");
}

fn run(mut command: Command, limit: Duration) -> Result<String, String> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{shown}: {error}"))?;
    // Both streams are read while the child runs, or it could block on one.
    let out = drain(child.stdout.take());
    let err = drain(child.stderr.take());
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ended = child.kill().and_then(|()| child.wait());
                return Err(format!("{shown}: no end within {} s", limit.as_secs()));
            }
            Err(error) => return Err(format!("{shown}: {error}")),
        }
    };
    let out = out.join().unwrap_or_default();
    let err = err.join().unwrap_or_default();
    if status.success() {
        Ok(out)
    } else {
        Err(format!("{shown}: {status}: {out}{}", err.trim()))
    }
}

fn drain(stream: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is still worth showing.
            let _partial = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A table as the client prints it: columns start where their headers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The headers.
    pub headers: Vec<String>,
    /// The rows, cell by cell.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Splits at runs of two or more spaces, as column headers may hold one.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut lines = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(cells);
        Self {
            headers: lines.next().unwrap_or_default(),
            rows: lines.collect(),
        }
    }

    /// All cells of a column.
    ///
    /// # Panics
    /// When there is no such header.
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

fn cells(line: &str) -> Vec<String> {
    line.trim_end()
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_by_header() {
        let table = Table::parse("NODE        TOTAL   LAST CHANGE\n10.0.0.2    972     2m ago\n\n");
        assert_eq!(table.headers, ["NODE", "TOTAL", "LAST CHANGE"]);
        assert_eq!(table.column("TOTAL"), ["972"]);
        assert_eq!(table.column("LAST CHANGE"), ["2m ago"]);
    }
}

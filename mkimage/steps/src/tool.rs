//! The only module of the builder that starts other programs.
//!
//! A tool's environment has `PATH`, `HOME`, a fixed locale and time zone, and the step's variables.
//! The user's shell cannot influence an image.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::error::{Failure, Result};
use crate::interrupt;

/// How long this program may receive a signal later than the tool that the signal ended.
const INTERRUPT: Duration = Duration::from_millis(200);

/// One invocation of an external program.
#[derive(Debug)]
pub struct Tool {
    program: OsString,
    command: Command,
    log: Option<PathBuf>,
}

impl Tool {
    /// A call of `program`, found by path or through `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let mut command = Command::new(&program);
        command
            .env_clear()
            .stdin(Stdio::null())
            .env("LC_ALL", "C")
            .env("TZ", "UTC");
        for name in ["PATH", "HOME"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        Self {
            program,
            command,
            log: None,
        }
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs in `dir`.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Writes all output to `file` while the tool runs (for long builds), instead of keeping it in
    /// memory.
    pub fn log(mut self, file: &Path) -> Self {
        self.log = Some(file.to_owned());
        self
    }

    /// Runs to the end; a non-zero exit is an error that shows the call and its last output.
    pub fn run(self) -> Result<()> {
        self.output().map(drop)
    }

    /// Runs to the end and returns standard output (empty with `log`).
    pub fn output(mut self) -> Result<Vec<u8>> {
        if let Some(path) = &self.log {
            let file = std::fs::File::create(path)
                .with_context(|| format!("creating the log {}", path.display()))?;
            self.command.stdout(file.try_clone()?).stderr(file);
        } else {
            self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let name = self.program.to_string_lossy().into_owned();
        let child = self.command.spawn().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Failure::new(
                    format!("the program {name} is not installed"),
                    "run `make deps`, which installs every host tool of the build",
                )
            } else {
                anyhow::Error::new(error).context(format!("starting {name}"))
            }
        })?;
        let running = interrupt::Child::new(child.id());
        let output = child
            .wait_with_output()
            .with_context(|| format!("waiting for {name}"))?;
        if output.status.signal().is_some() {
            // Ctrl-C reaches both processes; `interrupt` reports it and exits, instead of an error
            // here.
            std::thread::sleep(INTERRUPT);
        }
        drop(running);
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = match &self.log {
            Some(path) => std::fs::read(path).unwrap_or_default(),
            None => [output.stdout, output.stderr].concat(),
        };
        let remedy = match &self.log {
            Some(path) => format!("read the whole log in {}", path.display()),
            None => format!("repeat the command by hand: {:?}", self.command),
        };
        Err(Failure::new(
            format!("{name} ended with {}:\n{}", output.status, tail(&said)),
            remedy,
        ))
    }
}

/// The last lines of a tool's output, enough to see the reason.
fn tail(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(20))
        .map(|line| format!("  {line}\n"))
        .collect()
}

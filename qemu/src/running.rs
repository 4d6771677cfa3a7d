//! A running machine: its process, control connection, console, and waits for its progress.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::args::{Layout, Purpose, arguments, option_path, shell_line};
use crate::disk::{Disk, DiskFormat, DiskMode, log_of};
use crate::firmware::find_uefi;
use crate::sockets::Sockets;
use crate::{Accel, Console, Firmware, Gdb, Machine, Qmp, VmError, answer, spawn, tls};

/// Timeout of the control socket. QEMU opens it within a second, also on a busy host.
const CONTROL: Duration = Duration::from_secs(30);
/// Pause between two attempts of a wait.
const PAUSE: Duration = Duration::from_millis(200);

/// A running machine. Dropping it kills QEMU. If the test that drops it fails, the console log is
/// kept. Its end and the command that repeats the run by hand are printed.
#[derive(Debug)]
pub struct Running {
    name: String,
    dir: PathBuf,
    replay: String,
    api: SocketAddr,
    console: Console,
    second_serial: PathBuf,
    stderr: PathBuf,
    started: Instant,
    qmp: Qmp,
    child: Mutex<Child>,
    sockets: Sockets,
}

impl Running {
    pub(crate) fn start(machine: Machine) -> Result<Self, VmError> {
        for path in machine.inputs() {
            if !path.exists() {
                return Err(VmError::MissingImage {
                    path: path.to_owned(),
                });
            }
        }
        let program = machine.arch.row().program;
        let _there = spawn::find(program)?;
        let dir = fresh_dir(&machine.dir)?;
        let sockets = Sockets::of(&dir)?;
        let port = match machine.api_port {
            Some(port) => port,
            None => free_port()?,
        };
        prepare_logs(&machine)?;
        let layout = Layout {
            console: match &machine.console {
                Some(file) => file.clone(),
                None => dir.join("console.log"),
            },
            qmp: sockets.path("qmp"),
            second_serial: sockets.path("second"),
            firmware: prepare_firmware(&machine, &dir)?,
            overlays: prepare_overlays(&machine, &dir)?,
            api_port: port,
            accel: machine
                .accel
                .unwrap_or_else(|| Accel::probe_for(machine.arch).accel),
        };
        let api = match &machine.tap {
            Some(tap) => SocketAddr::from((tap.address, machine.guest_port)),
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        };
        let args = arguments(&machine, &layout, Purpose::Captured)?;
        let replay = shell_line(program, &arguments(&machine, &layout, Purpose::Replay)?);
        let stderr = dir.join("qemu.log");
        let log = fs::File::create(&stderr).map_err(VmError::file("create", &stderr))?;
        let out = log.try_clone().map_err(VmError::file("open", &stderr))?;
        let started = Instant::now();
        let mut child = spawn::spawn(program, &args, |command| {
            command.stdin(Stdio::null()).stdout(out).stderr(log);
        })?;
        let qmp = match connect(&layout.qmp, &mut child, &stderr) {
            Ok(qmp) => qmp,
            Err(error) => {
                spawn::end(&mut child);
                return Err(error);
            }
        };
        Ok(Self {
            name: machine.name,
            replay,
            api,
            console: Console::new(layout.console),
            second_serial: layout.second_serial,
            stderr,
            started,
            qmp,
            child: Mutex::new(child),
            sockets,
            dir,
        })
    }

    /// The address of the guest's API port for this host.
    #[must_use]
    pub fn api(&self) -> SocketAddr {
        self.api
    }

    /// The machine's directory: console log, QEMU's messages, overlays.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The captured serial console.
    #[must_use]
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// QEMU's control connection.
    #[must_use]
    pub fn qmp(&self) -> &Qmp {
        &self.qmp
    }

    /// QEMU's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .id()
    }

    /// When QEMU was started.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// A shell command that repeats this run with the console on the terminal.
    #[must_use]
    pub fn replay(&self) -> &str {
        &self.replay
    }

    /// Connects to the second serial port.
    ///
    /// # Errors
    /// The machine has no second serial port.
    pub fn second_serial(&self) -> Result<UnixStream, VmError> {
        UnixStream::connect(&self.second_serial)
            .map_err(VmError::file("connect to", &self.second_serial))
    }

    /// Connects to QEMU's debugger stub, which the first call starts. The machine is halted until
    /// [`Gdb::detach`].
    ///
    /// # Errors
    /// As [`Qmp::execute`]; also when the stub cannot be reached.
    pub fn debugger(&self) -> Result<Gdb, VmError> {
        let socket = self.sockets.path("gdb");
        if !socket.exists() {
            let path = option_path(&socket)?;
            let start = format!("gdbserver unix:{path},server=on,wait=off");
            // QMP has no command for the stub, and this one returns its result as text.
            let said = self
                .qmp
                .execute("human-monitor-command", &json!({ "command-line": start }))?;
            if !socket.exists() {
                return Err(VmError::QmpRefused {
                    command: start,
                    answer: said.to_string(),
                });
            }
        }
        Gdb::connect(&socket)
    }

    /// Repeats `attempt` until it succeeds, QEMU ends, or `deadline` passes.
    ///
    /// # Errors
    /// [`VmError::Deadline`] with the last attempt's error, [`VmError::Ended`] as soon as QEMU has
    /// ended.
    pub fn wait_for<T, E: std::fmt::Display>(
        &self,
        what: &str,
        deadline: Duration,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, VmError> {
        let end = Instant::now() + deadline;
        loop {
            let last = match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => error.to_string(),
            };
            self.go_on(what, deadline, end, &last)?;
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether a wait until `end` continues after an attempt with the error `last`.
    fn go_on(
        &self,
        what: &str,
        deadline: Duration,
        end: Instant,
        last: &str,
    ) -> Result<(), VmError> {
        if let Some(status) = self.ended() {
            return Err(ended(status, &self.stderr));
        }
        if Instant::now() >= end {
            return Err(VmError::Deadline {
                what: what.to_owned(),
                deadline,
                last: last.to_owned(),
            });
        }
        Ok(())
    }

    /// Waits until a server in the guest answers on the API port. `ask` is one attempt, with its
    /// timeout. Attempts begin every 100 ms, each in a thread of its own, and the first success
    /// counts. The wait therefore ends when the guest answers, not when QEMU's network repeats a
    /// packet.
    ///
    /// # Errors
    /// As [`Running::wait_for`].
    pub fn wait_answer(
        &self,
        what: &str,
        deadline: Duration,
        ask: fn(SocketAddr, Duration) -> Result<(), String>,
    ) -> Result<Duration, VmError> {
        let end = Instant::now() + deadline;
        answer::first(self.api, ask, |last| self.go_on(what, deadline, end, last))?;
        Ok(self.started.elapsed())
    }

    /// Waits until a TLS server answers on the API port. It does not identify the server: tests use
    /// `cortenctl` for that.
    ///
    /// # Errors
    /// As [`Running::wait_for`].
    pub fn wait_tls(&self, deadline: Duration) -> Result<Duration, VmError> {
        self.wait_answer("TLS answer on the API port", deadline, tls::ask)
    }

    /// Waits until the console contains `text`. For boot loaders and failures before the API
    /// starts.
    ///
    /// # Errors
    /// As [`Running::wait_for`].
    pub fn wait_console(&self, text: &str, deadline: Duration) -> Result<(), VmError> {
        self.wait_for(&format!("`{text}` on the console"), deadline, || {
            let seen = self.console.text();
            if seen.contains(text) {
                Ok(())
            } else {
                Err(self.console.tail(1))
            }
        })
    }

    /// Waits until QEMU ends by itself, as after a clean shutdown.
    ///
    /// # Errors
    /// [`VmError::Deadline`] if it does not end in time.
    pub fn wait_exit(&self, deadline: Duration) -> Result<ExitStatus, VmError> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() >= end {
                return Err(VmError::Deadline {
                    what: "end of QEMU".to_owned(),
                    deadline,
                    last: self.console.tail(1),
                });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// QEMU's exit status if it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten()
    }

    /// Kills QEMU now, as a power failure would.
    pub fn kill(&self) {
        spawn::end(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A description of a failure for a person: console, messages and replay command.
    #[must_use]
    pub fn report(&self) -> String {
        format!(
            "---- machine {}: end of its console ----\n{}\n\
             ---- whole console: {}\n---- to replay: {}\n",
            self.name,
            self.console.tail(60),
            self.console.path().display(),
            self.replay
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        spawn::end(child);
        if std::thread::panicking() {
            eprintln!("{}", self.report());
        }
    }
}

/// Creates the directory empty; returns its absolute path.
fn fresh_dir(dir: &Path) -> Result<PathBuf, VmError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(VmError::file("empty", dir)(error));
        }
        _ => {}
    }
    fs::create_dir_all(dir).map_err(VmError::file("create", dir))?;
    fs::canonicalize(dir).map_err(VmError::file("resolve", dir))
}

/// A port that was free at the time of the call.
fn free_port() -> Result<u16, VmError> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|source| VmError::Port { source })?;
    Ok(listener
        .local_addr()
        .map_err(|source| VmError::Port { source })?
        .port())
}

fn prepare_firmware(machine: &Machine, dir: &Path) -> Result<Option<(PathBuf, PathBuf)>, VmError> {
    let row = machine.arch.row();
    let firmware = machine.firmware.unwrap_or(row.firmware);
    if firmware == Firmware::Bios {
        return match row.has_bios {
            true => Ok(None),
            false => Err(VmError::NoBios { arch: row.name }),
        };
    }
    let files = find_uefi(machine.arch, firmware, Path::exists)?;
    let vars = dir.join("uefi-vars.fd");
    fs::copy(&files.vars, &vars).map_err(VmError::file("create", &vars))?;
    Ok(Some((files.code, vars)))
}

/// Creates the empty logs of writes; QEMU creates none.
fn prepare_logs(machine: &Machine) -> Result<(), VmError> {
    let logged = |disk: &&Disk| disk.mode == DiskMode::Logged;
    for disk in machine.disks.iter().filter(logged) {
        let log = log_of(&disk.path);
        fs::File::create(&log).map_err(VmError::file("create", &log))?;
    }
    Ok(())
}

fn prepare_overlays(machine: &Machine, dir: &Path) -> Result<Vec<PathBuf>, VmError> {
    let mut overlays = Vec::new();
    for disk in machine
        .disks
        .iter()
        .filter(|disk| disk.mode == DiskMode::Overlay)
    {
        let overlay = dir.join(format!("overlay{}.qcow2", overlays.len()));
        let base = fs::canonicalize(&disk.path).map_err(VmError::file("resolve", &disk.path))?;
        let format = match disk.format {
            DiskFormat::Raw => "raw",
            DiskFormat::Qcow2 => "qcow2",
        };
        let mut command = Command::new(spawn::find("qemu-img")?);
        command.args(["create", "-q", "-f", "qcow2", "-F", format, "-b"]);
        let output = command
            .arg(&base)
            .arg(&overlay)
            .args(disk.size_mib.map(|mib| format!("{mib}M")))
            .output()
            .map_err(VmError::file("create", &overlay))?;
        if !output.status.success() {
            return Err(VmError::Command {
                command: "qemu-img create".to_owned(),
                detail: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        overlays.push(overlay);
    }
    Ok(overlays)
}

fn ended(status: ExitStatus, stderr: &Path) -> VmError {
    let stderr = fs::read_to_string(stderr).unwrap_or_default();
    VmError::Ended {
        status: status.to_string(),
        stderr: stderr.trim().to_owned(),
    }
}

fn connect(path: &Path, child: &mut Child, stderr: &Path) -> Result<Qmp, VmError> {
    let end = Instant::now() + CONTROL;
    loop {
        let error = match Qmp::connect(path) {
            Ok(qmp) => return Ok(qmp),
            Err(error) => error,
        };
        if let Ok(Some(status)) = child.try_wait() {
            return Err(ended(status, stderr));
        }
        if Instant::now() >= end {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

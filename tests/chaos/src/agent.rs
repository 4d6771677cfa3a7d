//! The agent: reads commands from a serial port and answers them.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::ptrace;
use rustix::fs::{Mode, OFlags, openat};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal, chroot, fchdir, kill_process, setsid};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// Stack of each thread of a fork bomb in bytes; there are thousands.
const STACK: usize = 64 * 1024;

/// Serves commands; returns when the port is closed.
///
/// Commands, a line each: `list` (pid, parent, state, name of `argv[0]` per line), `cat PATH`, `kill NUMBER PID
/// [TIMES]`, `orphans COUNT`, `bomb CGROUP`, `descriptors PID`, `socket FAMILY`. `freeze PID THREAD` stops all threads
/// of a process but those of this name. An answer is `ok LENGTH` or `no LENGTH`, a newline, and that many bytes.
pub fn serve(proc: &Path, port: &Path) -> io::Result<()> {
    // A session of its own, so that signals to process 1's session do not reach the agent.
    let _already_leader = setsid();
    let proc: OwnedFd = File::open(proc)?.into();
    let port = File::options().read(true).write(true).open(port)?;
    let mut settings = tcgetattr(&port)?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings)?;
    // Tells process 1 that the agent no longer needs the mounts.
    println!("ready");

    let mut answers = port.try_clone()?;
    for line in BufReader::new(port).lines() {
        let line = line?;
        // Process 1 moves to the real root during boot. The agent follows, so that paths have the
        // node's meaning.
        enter_root_of_init(&proc)?;
        let (verdict, text) = match command(line.trim()) {
            Ok(text) => ("ok", text),
            Err(error) => ("no", error.to_string()),
        };
        answers.write_all(format!("{verdict} {}\n{text}", text.len()).as_bytes())?;
    }
    Ok(())
}

fn enter_root_of_init(proc: &OwnedFd) -> io::Result<()> {
    let root = openat(
        proc,
        "1/root",
        OFlags::DIRECTORY | OFlags::RDONLY,
        Mode::empty(),
    )?;
    fchdir(&root)?;
    chroot(".")?;
    Ok(())
}

fn command(line: &str) -> io::Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["list"] => list(),
        ["cat", path] => fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        ["kill", signal, pid] => kill(signal, pid, "1"),
        ["kill", signal, pid, times] => kill(signal, pid, times),
        ["freeze", pid, except] => freeze(pid, except),
        ["socket", family] => socket(family),
        ["orphans", count] => orphans(number(count)?),
        ["bomb", cgroup] => bomb(cgroup),
        ["descriptors", pid] => Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count().to_string()),
        _ => Err(io::Error::other(format!("unknown command `{line}`"))),
    }
}

fn number(word: &str) -> io::Result<i32> {
    word.parse()
        .map_err(|_| io::Error::other(format!("`{word}` is not a number")))
}

/// One line per process: pid, parent, state letter, base name of `argv[0]`. Kernel threads have no
/// `argv` and are omitted; zombies appear with their comm.
fn list() -> io::Result<String> {
    let mut all = String::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A process may have ended since the directory was read.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((head, tail)) = stat.rsplit_once(')') else {
            continue;
        };
        let mut fields = tail.split_whitespace();
        let (state, parent) = (fields.next().unwrap_or("?"), fields.next().unwrap_or("0"));
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let first = arguments
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let first = String::from_utf8_lossy(first).into_owned();
        let name = match (first.rsplit('/').next(), state) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, "Z") => head
                .split_once('(')
                .map_or("?", |(_, comm)| comm)
                .to_owned(),
            _ => continue,
        };
        all.push_str(&format!("{pid} {parent} {state} {name}\n"));
    }
    Ok(all)
}

fn kill(signal: &str, pid: &str, times: &str) -> io::Result<String> {
    let signal = Signal::from_named_raw(number(signal)?)
        .ok_or_else(|| io::Error::other(format!("no signal {signal}")))?;
    let pid =
        Pid::from_raw(number(pid)?).ok_or_else(|| io::Error::other(format!("no process {pid}")))?;
    for _ in 0..number(times)? {
        kill_process(pid, signal)?;
    }
    Ok(String::new())
}

/// Stops the threads of a process until the agent ends, except those of this name. Process 1 cannot be stopped by a
/// signal, so the agent traces the threads.
fn freeze(pid: &str, except: &str) -> io::Result<String> {
    let mut frozen = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        let name = fs::read_to_string(thread.path().join("comm"))?;
        if name.trim() == except {
            continue;
        }
        let id = number(&thread.file_name().to_string_lossy())?;
        let id = nix::unistd::Pid::from_raw(id);
        ptrace::seize(id, ptrace::Options::empty())?;
        ptrace::interrupt(id)?;
        frozen += 1;
    }
    Ok(format!("{frozen}"))
}

/// Opens and closes a socket of an address family, for which the kernel may request a module.
fn socket(family: &str) -> io::Result<String> {
    let family = family
        .parse()
        .map(AddressFamily::from_raw)
        .map_err(|_| io::Error::other(format!("`{family}` is not an address family")))?;
    rustix::net::socket(family, SocketType::STREAM, None)?;
    Ok(String::new())
}

/// Makes `count` orphans that end a little later: process 1 inherits and must reap each of them.
fn orphans(count: i32) -> io::Result<String> {
    // The agent's file is already deleted; the kernel still opens it by this name.
    let own = format!("/proc/{}/exe", std::process::id());
    for _ in 0..count {
        let status = Command::new(&own)
            .args(["--parent", &own])
            .stdin(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!(
                "the parent of an orphan failed: {status}"
            )));
        }
    }
    Ok(String::new())
}

/// Lets a process in the cgroup start threads up to the kernel's limit, and keep them. Returns
/// their number.
fn bomb(cgroup: &str) -> io::Result<String> {
    let own = format!("/proc/{}/exe", std::process::id());
    let mut child = Command::new(own)
        .arg("--bomb")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    fs::write(format!("{cgroup}/cgroup.procs"), child.id().to_string())?;
    // The process must not start threads before it is in the cgroup.
    if let Some(mut go) = child.stdin.take() {
        go.write_all(b"\n")?;
    }
    let mut count = String::new();
    if let Some(threads) = child.stdout.take() {
        BufReader::new(threads).read_line(&mut count)?;
    }
    Ok(count)
}

/// Starts threads until the kernel refuses, prints their number, and stays.
pub fn multiply() -> io::Result<()> {
    io::stdin().read_line(&mut String::new())?;
    let thread = || std::thread::Builder::new().stack_size(STACK);
    let count = (0..).take_while(|_| thread().spawn(rest).is_ok()).count();
    println!("{count}");
    rest();
    Ok(())
}

fn rest() {
    loop {
        std::thread::park();
    }
}

/// Starts a child and exits.
pub fn leave_orphan(own: &str) -> io::Result<()> {
    Command::new(own)
        .arg("--orphan")
        .stdin(Stdio::null())
        .spawn()
        .map(drop)
}

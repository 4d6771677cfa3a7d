//! The host's side of the agent in `tests/chaos`: kills, orphans, /proc.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use qemu::{DirectBoot, Machine, Running};

use crate::initramfs::{self, Entry};
use crate::node::{Node, SOON};
use crate::{images, workspace};

/// Timeout of an answer. The agent answers at once, but a guest without KVM may be slow.
const ANSWER: Duration = Duration::from_secs(60);

/// The signal that a process cannot block.
pub const SIGKILL: u8 = 9;

/// The agent's program: static, because it runs before any library is available.
#[must_use]
pub fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = workspace::target().join("chaos");
        let triple = images::builder_arch().names().rust;
        workspace::cargo(
            &[
                "build",
                "--quiet",
                "--release",
                "-p",
                "chaos",
                "--target",
                triple,
                "--target-dir",
                target.to_str().expect("UTF-8 path"),
            ],
            // Link-time optimisation costs more time than it saves for one small program.
            &[
                ("RUSTFLAGS", "-Ctarget-feature=+crt-static"),
                ("CARGO_PROFILE_RELEASE_LTO", "off"),
            ],
        );
        target.join(triple).join("release/chaos")
    })
}

/// Adds the agent to a machine that boots the image's kernel and initramfs, which are otherwise
/// unchanged. The new initramfs is written to `directory`.
///
/// # Panics
/// The image is missing or `directory` is not writable.
pub fn add(machine: Machine, directory: &Path) -> Machine {
    machine.second_serial().direct(boot(directory))
}

/// The network boot bundle with the agent, whose initramfs is written to `directory`. The machine needs a second serial
/// port.
///
/// # Panics
/// As for [`add`].
#[must_use]
pub fn boot(directory: &Path) -> DirectBoot {
    let image = images::direct();
    let mut entries = initramfs::read(image.initrd.as_deref().expect("an initramfs"));
    wrap_init(&mut entries);
    std::fs::create_dir_all(directory).expect("a directory for the initramfs");
    let initrd = directory.join("initramfs-with-agent");
    initramfs::write(&initrd, &entries);
    DirectBoot {
        initrd: Some(initrd),
        ..image
    }
}

/// Puts the agent before the first program of an initramfs.
///
/// # Panics
/// It has no `/init`.
pub fn wrap_init(entries: &mut Vec<Entry>) {
    let init = entries
        .iter_mut()
        .find(|entry| entry.name == "init")
        .expect("/init in the image");
    "init.real".clone_into(&mut init.name);
    entries.push(initramfs::program(
        "init",
        std::fs::read(program()).expect("the agent's program"),
    ));
}

/// A process of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process id of its parent.
    pub parent: u32,
    /// The kernel's state letter.
    pub state: char,
    /// Base name of its first argument.
    pub name: String,
}

/// A connection to the agent.
#[derive(Debug)]
pub struct Agent {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Agent {
    /// Connects to the agent of a booted machine.
    ///
    /// # Panics
    /// The machine has no second serial port.
    #[must_use]
    pub fn connect(machine: &Running) -> Self {
        let writer = machine
            .second_serial()
            .unwrap_or_else(|error| panic!("{error}"));
        writer.set_read_timeout(Some(ANSWER)).expect("a time limit");
        let reader = BufReader::new(writer.try_clone().expect("a second handle"));
        Self { reader, writer }
    }

    /// Runs one command of the agent.
    ///
    /// # Errors
    /// The error message of the agent.
    ///
    /// # Panics
    /// The agent does not answer, or its answer is invalid.
    pub fn call(&mut self, command: &str) -> Result<String, String> {
        self.writer
            .write_all(format!("{command}\n").as_bytes())
            .expect("the agent's port");
        let mut head = String::new();
        self.reader
            .read_line(&mut head)
            .unwrap_or_else(|error| panic!("no answer from the agent to `{command}`: {error}"));
        let (verdict, length) = head.trim().split_once(' ').unwrap_or_default();
        let length: usize = length
            .parse()
            .unwrap_or_else(|_| panic!("the agent answered `{head}` to `{command}`"));
        let mut body = vec![0; length];
        self.reader
            .read_exact(&mut body)
            .expect("the agent's answer");
        let body = String::from_utf8_lossy(&body).into_owned();
        if verdict == "ok" {
            Ok(body)
        } else {
            Err(format!("{command}: {body}"))
        }
    }

    /// Runs a command that must succeed.
    ///
    /// # Panics
    /// The command fails.
    pub fn run(&mut self, command: &str) -> String {
        self.call(command).unwrap_or_else(|error| panic!("{error}"))
    }

    /// All processes except kernel threads.
    pub fn processes(&mut self) -> Vec<Process> {
        let list = self.run("list");
        list.lines()
            .map(|line| parse(line).unwrap_or_else(|| panic!("`{line}`")))
            .collect()
    }

    /// The processes called `name` that are not zombies.
    pub fn named(&mut self, name: &str) -> Vec<Process> {
        let mut all = self.processes();
        all.retain(|process| process.name == name && process.state != 'Z');
        all
    }

    /// The pid of the only process called `name`.
    ///
    /// # Errors
    /// The number of such processes, when it is not one.
    pub fn only(&mut self, name: &str) -> Result<u32, String> {
        match self.named(name).as_slice() {
            [process] => Ok(process.pid),
            others => Err(format!("{} processes called {name}", others.len())),
        }
    }

    /// Kills the only process of a service, which has the service's name. Waits until it runs with
    /// another pid and the API reports the service as Running.
    ///
    /// # Panics
    /// The service does not restart in time.
    pub fn kill_and_wait(&mut self, node: &Node, name: &str) {
        let old = node.until(&format!("one {name}"), SOON, || self.only(name));
        self.run(&format!("kill {SIGKILL} {old}"));
        node.until(&format!("new {name}"), SOON, || match self.only(name)? {
            pid if pid != old => Ok(()),
            _ => Err(format!("{name} is still process {old}")),
        });
        node.until_running(name);
    }
}

fn parse(line: &str) -> Option<Process> {
    let mut words = line.split_whitespace();
    Some(Process {
        pid: words.next()?.parse().ok()?,
        parent: words.next()?.parse().ok()?,
        state: words.next()?.chars().next()?,
        name: words.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_line_parses() {
        let process = parse("211 1 S containerd").unwrap();
        assert_eq!((process.pid, process.parent, process.state), (211, 1, 'S'));
        assert_eq!(process.name, "containerd");
        assert_eq!(parse("211 1"), None);
    }
}

//! The measurements. Times are in seconds from QEMU's start.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use ::tests::chaos::{self, Agent};
use ::tests::client::Client;
use ::tests::node::{BOOT, Node};
use ::tests::{images, workspace};
use anyhow::{Context, ensure};
use mkimage::output::Output;
use qemu::{DirectBoot, Disk, Machine};

/// Memory of both systems: enough that neither swaps or waits for memory.
pub const MEMORY_MIB: u32 = 1024;

/// Our programs that always run, by process name: machined, process 1, runs as `init`. trustd and registryd run only
/// while a client needs them.
pub const OURS: [&str; 4] = ["init", "udevd", "syslogd", "apid"];

/// The machine of both systems.
pub fn machine(name: &str) -> Machine {
    Machine::new(name, workspace::target().join("vm"))
        .memory_mib(MEMORY_MIB)
        .cpus(2)
}

/// Time until the client gets an answer to `version`: a first TLS answer, then a full handshake and
/// a call.
pub fn corten_boot() -> anyhow::Result<f64> {
    // Builds the client before the clock starts.
    let _client = workspace::cortenctl();
    let machine = machine("bench-corten").direct(images::direct()).start()?;
    let client = Client::insecure(machine.api());
    machine.wait_tls(BOOT)?;
    let answer = client.call(&["version"]).map_err(anyhow::Error::msg);
    answer.with_context(|| machine.report())?;
    Ok(machine.started().elapsed().as_secs_f64())
}

/// Time until sshd sends its banner: a connection and one line, less than Corten's measurement.
pub fn debian_boot(disk: &Path) -> anyhow::Result<f64> {
    let ours = images::direct();
    let append = format!(
        "{} root=/dev/vda rootfstype=xfs rw",
        shared_parameters(&ours.append)
    );
    let machine = machine("bench-debian")
        .direct(DirectBoot {
            kernel: ours.kernel,
            initrd: None,
            append,
        })
        .disk(Disk::raw(disk))
        .guest_port(22)
        .start()?;
    let took = machine.wait_answer("SSH banner", BOOT, banner);
    Ok(took.context("Debian")?.as_secs_f64())
}

/// Makes one attempt to read a banner.
fn banner(address: SocketAddr, patience: Duration) -> Result<(), String> {
    let attempt = || -> std::io::Result<[u8; 4]> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        let mut start = [0; 4];
        stream.read_exact(&mut start)?;
        Ok(start)
    };
    match attempt() {
        Ok(start) if &start == b"SSH-" => Ok(()),
        Ok(start) => Err(format!("not a banner: {start:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The kernel parameters without those of our own programs.
pub fn shared_parameters(append: &str) -> String {
    let ours = |word: &&str| !word.starts_with("corten.") && !word.starts_with("talos.");
    append
        .split_whitespace()
        .filter(ours)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Proportional set size of a daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Its name.
    pub name: String,
    /// PSS in KiB.
    pub pss_kib: u64,
}

/// PSS of every process of an idle, configured node, read by the agent; an error if a program of
/// [`OURS`] does not run.
pub fn daemon_memory(idle: u64) -> anyhow::Result<Vec<Memory>> {
    let dir = workspace::target().join("vm/bench-memory-initramfs");
    let node = Node::start("bench-memory", |m| {
        chaos::add(m, &dir).memory_mib(MEMORY_MIB)
    });
    node.configure();
    // QEMU's network has no time server, and the listener for trustd waits for the time.
    node.apply_patch("machine: {time: {disabled: true}}");
    node.until_running("trustd");
    std::thread::sleep(Duration::from_secs(idle));
    let all = memory(&mut Agent::connect(&node.vm));
    let missing = missing(&all);
    ensure!(
        missing.is_empty(),
        "these do not run on the measured node: {}\n{}",
        missing.join(", "),
        node.vm.report()
    );
    Ok(all)
}

/// PSS of every process of a node except the agent.
pub fn memory(agent: &mut Agent) -> Vec<Memory> {
    let mut all = Vec::new();
    for process in agent.processes() {
        // The agent itself runs as `init --agent`.
        if process.name == "init" && process.pid != 1 {
            continue;
        }
        // The process may have ended since it was listed.
        let Ok(rollup) = agent.call(&format!("cat /proc/{}/smaps_rollup", process.pid)) else {
            continue;
        };
        all.extend(pss(&rollup).map(|pss_kib| Memory {
            name: process.name,
            pss_kib,
        }));
    }
    all
}

/// The programs of [`OURS`] that are not among the processes.
fn missing(processes: &[Memory]) -> Vec<&'static str> {
    let there = |name: &str| processes.iter().any(|process| process.name == name);
    OURS.into_iter().filter(|name| !there(name)).collect()
}

fn pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The size of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Size {
    /// Name for the table.
    pub name: &'static str,
    /// Size in bytes.
    pub bytes: u64,
}

/// The sizes of the output of `make image`.
pub fn sizes() -> Vec<Size> {
    let of = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    let boot = images::direct();
    let initramfs = boot.initrd.as_deref().map_or(0, of);
    let mut all = vec![
        Size {
            name: "kernel",
            bytes: of(&boot.kernel),
        },
        Size {
            name: "initramfs",
            bytes: initramfs,
        },
        Size {
            name: "kernel + initramfs",
            bytes: of(&boot.kernel) + initramfs,
        },
    ];
    // The network boot bundle is the kernel and the initramfs.
    let formats = Output::of(images::builder_arch()).filter(|output| *output != Output::Pxe);
    all.extend(formats.map(|output| Size {
        name: output.name(),
        bytes: of(&images::image(output.suffix())),
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_read_in_kib() {
        let rollup = "55d0-7ffc ---p 0 00:00 0 [rollup]\nRss:   9000 kB\nPss:   4321 kB\n\
                      Pss_Dirty:  100 kB\n";
        assert_eq!(pss(rollup), Some(4321));
        assert_eq!(pss(""), None);
    }

    #[test]
    fn memory_sum_requires_every_corten_process() {
        let run = |name: &str| Memory {
            name: name.to_owned(),
            pss_kib: 1,
        };
        let mut all: Vec<_> = OURS.into_iter().map(run).collect();
        all.push(run("containerd"));
        assert_eq!(missing(&all), [""; 0]);
        all.retain(|process| process.name != "apid");
        assert_eq!(missing(&all), ["apid"]);
    }

    #[test]
    fn only_corten_parameters_are_left_out() {
        let all = "console=ttyS0 corten.platform=metal init_on_alloc=1 talos.x=1";
        assert_eq!(shared_parameters(all), "console=ttyS0 init_on_alloc=1");
    }
}

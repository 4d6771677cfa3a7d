//! The measurements. Times are seconds from QEMU's start.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use ::tests::chaos::{self, Agent};
use ::tests::client::Client;
use ::tests::node::{BOOT, Node};
use ::tests::{images, workspace};
use anyhow::Context;
use qemu::{DirectBoot, Disk, Machine, Running};

/// Same for both: enough that neither swaps or waits for memory.
const MEMORY_MIB: u32 = 1024;

/// Our daemons, by the name they run under; process 1 runs as `init`. registryd runs only for an extension.
pub const OURS: [&str; 6] = ["init", "udevd", "syslogd", "apid", "trustd", "registryd"];

/// As both systems have it.
pub fn machine(name: &str) -> Machine {
    Machine::new(name, workspace::target().join("vm"))
        .memory_mib(MEMORY_MIB)
        .cpus(2)
}

fn ended(machine: Running) -> f64 {
    machine.started().elapsed().as_secs_f64()
}

/// Until `version` is answered: a full TLS handshake and a call, by the client.
pub fn corten_boot() -> anyhow::Result<f64> {
    // Built before the clock starts.
    let _client = workspace::cortenctl();
    let machine = machine("bench-corten").direct(images::direct()).start()?;
    let client = Client::insecure(machine.api());
    machine.wait_for("API answer", BOOT, || client.call(&["version"]))?;
    Ok(ended(machine))
}

/// Until sshd has sent its banner: a connection and one line, less than what
/// is asked of us.
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
    machine
        .wait_for("SSH banner", BOOT, || banner(&machine))
        .context("Debian")?;
    Ok(ended(machine))
}

fn banner(machine: &Running) -> Result<(), String> {
    let attempt = || -> std::io::Result<[u8; 4]> {
        let mut stream = TcpStream::connect(machine.api())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
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

/// The kernel's parameters without those that mean our own programs.
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

/// PSS of every process of an idle, configured node, read by the agent.
pub fn daemon_memory(idle: u64) -> Vec<Memory> {
    let dir = workspace::target().join("vm/bench-memory-initramfs");
    let node = Node::start("bench-memory", |m| {
        chaos::add(m, &dir).memory_mib(MEMORY_MIB)
    });
    node.configure();
    // QEMU's own network has no time server, and trustd waits for the time.
    node.apply_patch("machine: {time: {disabled: true}}");
    std::thread::sleep(Duration::from_secs(idle));
    let mut agent = Agent::connect(&node.vm);
    let mut all = Vec::new();
    for process in agent.processes() {
        // The agent itself runs as `init --agent`.
        if process.name == "init" && process.pid != 1 {
            continue;
        }
        // It may have ended since it was listed.
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

fn pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What an image weighs.
#[derive(Debug, Clone, PartialEq)]
pub struct Size {
    /// Name for the table.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// Sizes of what `make image` wrote.
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
    for (name, ending) in [
        ("UKI", ".efi"),
        ("ISO", ".iso"),
        ("raw disk", ".raw"),
        ("qcow2", ".qcow2"),
        ("VHD", ".vhd"),
        ("VMDK", ".vmdk"),
        ("OVA", ".ova"),
        ("GCP", "-gcp.tar.gz"),
        ("installer", "-installer.tar"),
    ] {
        all.push(Size {
            name,
            bytes: of(&images::image(ending)),
        });
    }
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
    fn only_our_own_parameters_are_left_out() {
        let all = "console=ttyS0 corten.platform=metal init_on_alloc=1 talos.x=1";
        assert_eq!(shared_parameters(all), "console=ttyS0 init_on_alloc=1");
    }
}

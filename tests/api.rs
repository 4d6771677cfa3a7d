//! Promise: the API answers every question that an operator would otherwise log in for, and its
//! answers agree with the machine. One node, every read.

use tests::chaos::{self, Agent};
use tests::client::Table;
use tests::node::{Node, SOON};
use tests::{images, workspace};

/// The services of every control plane node.
const SERVICES: [&str; 6] = [
    "apid",
    "containerd",
    "machined",
    "syslogd",
    "trustd",
    "udevd",
];

#[test]
#[ignore = "make test-vm"]
fn every_read_call_shows_the_state_of_the_node() {
    let dir = workspace::target().join("vm/api-initramfs");
    let node = Node::start("api", |m| chaos::add(m, &dir));
    node.configure();
    let admin = node.admin();
    let ask = |arguments: &[&str]| node.ask(&admin, arguments, SOON);

    let version = ask(&["version"]);
    assert!(
        version.contains(&format!("+corten.{}", images::version())),
        "{version}"
    );

    // QEMU's network has no time server, and trustd waits for the time.
    node.apply_patch("machine: {time: {disabled: true}}");
    node.until("all services running", SOON, || {
        let services = Table::parse(&admin.call(&["service"])?);
        let is_running = |name: &str| {
            let cells = |row: &Vec<String>| row.iter().any(|cell| cell == name);
            let row = services.rows.iter().find(|row| cells(row));
            row.is_some_and(|row| row.iter().any(|cell| cell == "Running"))
        };
        match SERVICES.iter().find(|name| !is_running(name)) {
            None => Ok(()),
            Some(name) => Err(format!("{name} is not: {services:?}")),
        }
    });

    let dmesg = ask(&["dmesg"]);
    assert!(dmesg.contains("Linux version 6.12"), "{dmesg}");

    // The log of a daemon comes back through machined and syslogd.
    let log = ask(&["logs", "containerd"]);
    assert!(log.contains("containerd"), "{log}");

    let mounts = Table::parse(&ask(&["mounts"]));
    for target in ["/", "/run", "/var"] {
        let targets = mounts.column("MOUNTED ON");
        assert!(targets.contains(&target), "{target} missing: {targets:?}");
    }

    // The API and the kernel agree on the running processes.
    let mut agent = Agent::connect(&node.vm);
    let processes = ask(&["processes"]);
    for name in ["containerd", "udevd"] {
        let pid = agent.named(name)[0].pid.to_string();
        assert!(
            processes
                .lines()
                .any(|line| line.contains(name) && line.split_whitespace().any(|word| word == pid)),
            "{name} with pid {pid}:\n{processes}"
        );
    }

    // The memory table's total is the kernel's.
    let table = Table::parse(&ask(&["memory"]));
    let shown: u64 = table.column("TOTAL")[0].parse().unwrap();
    let meminfo = agent.run("cat /proc/meminfo");
    let kib: u64 = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        shown.abs_diff(kib / 1024) <= 1,
        "{shown} MiB shown, {kib} KiB in /proc/meminfo"
    );

    // A call for an unknown service is refused by name.
    let unknown = admin.call(&["logs", "no-such-service"]).unwrap_err();
    assert!(unknown.contains("no-such-service"), "{unknown}");
}

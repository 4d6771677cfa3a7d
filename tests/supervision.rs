//! Promise: a node survives the death of its daemons, and process 1 survives everything, even a
//! fork bomb. An agent inside the image's own initramfs (`tests/chaos`) causes the faults; the API
//! shows the result.

use tests::chaos::{self, Agent, SIGKILL};
use tests::node::{Node, SOON};
use tests::workspace;

/// The daemons that machined starts; `apid` last, because its death ends the test's connection.
const DAEMONS: [&str; 4] = ["udevd", "syslogd", "containerd", "apid"];
/// A value that differs at every boot.
const BOOT_ID: &str = "cat /proc/sys/kernel/random/boot_id";

fn start(name: &str) -> Node {
    let dir = workspace::target()
        .join("vm")
        .join(format!("{name}-initramfs"));
    let node = Node::start(name, |m| chaos::add(m, &dir));
    node.configure();
    node
}

#[test]
#[ignore = "make test-vm"]
fn killed_daemon_restarts() {
    let node = start("supervision");
    let mut agent = Agent::connect(&node.vm);
    for name in DAEMONS {
        agent.kill_and_wait(&node, name);
    }
    // Three times in a row for the daemon of the API.
    for _ in 0..3 {
        agent.kill_and_wait(&node, "apid");
    }
    // A restarted syslogd still serves the daemons' logs.
    let log = node.ask(&node.admin(), &["logs", "containerd"], SOON);
    assert!(log.contains("successfully booted"), "{log}");
}

#[test]
#[ignore = "make test-vm"]
fn kills_and_orphans_do_not_stop_process_one() {
    let node = start("storms");
    let mut agent = Agent::connect(&node.vm);
    let boot = agent.run(BOOT_ID);

    // The kernel protects process 1 from SIGKILL of its own PID namespace. The protection holds
    // only as long as machined does not lose it.
    agent.run(&format!("kill {SIGKILL} 1 10000"));
    node.ask(&node.admin(), &["version"], SOON);

    // A thousand orphans are reparented to process 1 and must not stay as zombies.
    for _ in 0..10 {
        agent.run("orphans 100");
    }
    node.until("all orphans collected", SOON, || {
        let dead: Vec<_> = agent
            .processes()
            .into_iter()
            .filter(|process| process.state == 'Z')
            .collect();
        if dead.is_empty() {
            Ok(())
        } else {
            Err(format!("{} zombies", dead.len()))
        }
    });

    // All daemons at once, three times.
    for _ in 0..3 {
        for name in DAEMONS {
            for process in agent.named(name) {
                // The process may have ended with another daemon.
                let _gone = agent.call(&format!("kill {SIGKILL} {}", process.pid));
            }
        }
    }
    for name in DAEMONS {
        node.until_running(name);
    }
    let init = agent
        .processes()
        .into_iter()
        .find(|process| process.pid == 1)
        .unwrap();
    assert_ne!(init.state, 'Z');
    // The machine did not reboot since; other tests cover the time before the node is up.
    assert_eq!(agent.run(BOOT_ID), boot, "the machine was reset");
}

#[test]
#[ignore = "make test-vm"]
fn a_fork_bomb_in_the_pods_cgroup_stops_neither_the_api_nor_a_restart() {
    let node = start("fork-bomb");
    let mut agent = Agent::connect(&node.vm);
    let pods = "/sys/fs/cgroup/kubepods";
    let max = number(&agent.run(&format!("cat {pods}/pids.max"))).unwrap();
    let got = number(&agent.run(&format!("bomb {pods}"))).unwrap();
    // The first thread is the process itself.
    assert_eq!(got + 1, max, "the kernel's own bound came first");
    node.ask(&node.admin(), &["processes"], SOON);
    // machined can still restart a daemon.
    for name in DAEMONS {
        agent.kill_and_wait(&node, name);
    }
    let kills = agent.run(&format!("cat {pods}/pids.events"));
    assert!(!kills.contains("max 0\n"), "{kills}");
}

fn number(text: &str) -> Result<u32, String> {
    let number = text.trim().parse();
    number.map_err(|_| format!("{text:?} is not a number"))
}

#[test]
#[ignore = "make test-vm"]
fn restarts_leak_no_descriptors_in_process_one() {
    let node = start("restarts");
    let mut agent = Agent::connect(&node.vm);
    let mut kill = |times: u32| {
        for _ in 0..times {
            agent.kill_and_wait(&node, "syslogd");
        }
        number(&agent.run("descriptors 1")).unwrap()
    };
    let before = kill(2);
    let after = kill(10);
    // A call or a connection may be open; each restart has two pipes.
    assert!(after < before + 10, "{before} descriptors became {after}");
}

//! Promise: the kernel gets the modules it requests, and no other program ever runs on the kernel's
//! behalf.

use tests::chaos::{self, Agent};
use tests::node::{Node, SOON};
use tests::workspace;

/// An address family whose module is in the image (`AF_VSOCK`).
const MODULE: &str = "40";
/// An address family that the kernel is built without (`AF_TIPC`).
const ABSENT: &str = "30";

#[test]
#[ignore = "make test-vm"]
fn module_is_loaded_when_the_kernel_requests_it() {
    let dir = workspace::target().join("vm/modules-initramfs");
    let node = Node::start("modules", |m| chaos::add(m, &dir));
    node.wait_maintenance();
    let mut agent = Agent::connect(&node.vm);

    let loaded = |agent: &mut Agent, name: &str| {
        let modules = agent.run("cat /proc/modules");
        modules
            .lines()
            .any(|line| line.split(' ').next() == Some(name))
    };
    // Process 1 and the agent, which keeps the name `init`.
    let before = agent.named("init");
    assert!(
        !loaded(&mut agent, "vsock"),
        "vsock is loaded before a request"
    );
    agent.run(&format!("socket {MODULE}"));
    assert!(
        loaded(&mut agent, "vsock"),
        "the request of the kernel loaded no module"
    );

    let refused = agent.call(&format!("socket {ABSENT}"));
    assert!(refused.is_err(), "a family without a module has a socket");

    // The kernel's helper is the program of machined too: none may be left running.
    let pids = |all: &[chaos::Process]| all.iter().map(|one| one.pid).collect::<Vec<_>>();
    node.until("no helper", SOON, || {
        let now = agent.named("init");
        if pids(&now) == pids(&before) {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    node.ask(&node.insecure(), &["version"], SOON);
}

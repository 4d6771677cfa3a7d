//! Promises: three control plane nodes keep the Kubernetes API available at their shared address while each of them gets
//! another version; a second one does not go down with the first.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tests::client::Client;
use tests::cluster::{self, CLUSTER, Cleanup, NAME, PATIENT, traces, until};
use tests::images;
use tests::kubectl::Kubectl;
use tests::writer::Written;

/// The control plane nodes.
const NODES: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 213, 7, 2),
    Ipv4Addr::new(10, 213, 7, 3),
    Ipv4Addr::new(10, 213, 7, 4),
];
/// The address that they share, and the endpoint of the cluster.
const SHARED: &str = "10.213.7.13";
/// The version of the other image (`tests/clusters`).
const NEXT: &str = "0.2.0";

/// Config of the nodes: the shared address, and patience with slow processors.
fn patch() -> String {
    format!(
        "machine: {{network: {{interfaces: [{{interface: eth0, dhcp: false, vip: {{ip: {SHARED}}}}}]}}}}\n\
         cluster: {{controlPlane: {{endpoint: 'https://{SHARED}:6443'}}, controllerManager: {PATIENT}, scheduler: \
         {PATIENT}, etcd: {{extraArgs: {{heartbeat-interval: '500', election-timeout: '5000'}}}}}}"
    )
}

/// The owner's client, at the API of one node.
fn at(node: Ipv4Addr, config: &Path) -> Client {
    Client::with_config(SocketAddr::new(IpAddr::V4(node), 50000), config)
}

/// The nodes that have the shared address.
fn holders(config: &Path) -> Vec<Ipv4Addr> {
    let has_it = |node: &Ipv4Addr| {
        let addresses = at(*node, config).call(&["get", "addresses"]);
        addresses.is_ok_and(|addresses| addresses.contains(&format!("{SHARED}/32")))
    };
    NODES.into_iter().filter(has_it).collect()
}

fn until_all_work(place: &Path, config: &Path) -> Ipv4Addr {
    // A node that restarts stays Ready for a while: its own API server tells whether it works.
    for node in NODES {
        let own = Kubectl::new(place.join("kubeconfig")).at(format!("https://{node}:6443"));
        until("API servers", || own.call(&["get", "--raw", "/readyz"]));
    }
    let kubectl = Kubectl::new(place.join("kubeconfig"));
    until("three nodes that are Ready", || kubectl.nodes_ready(3));
    until("three members of etcd", || {
        let members = at(NODES[0], config).call(&["etcd", "members"])?;
        let is_full = members.matches("false").count() == NODES.len();
        is_full.then_some(()).ok_or(members)
    });
    until("one node with the shared address", || {
        match holders(config)[..] {
            [one] => Ok(one),
            ref many => Err(format!("{many:?}")),
        }
    })
}

/// The process of etcd on a node; containers share this machine's kernel.
fn member_of(node: &str) -> Pid {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let is_member = |command: &[u8]| {
        let mut words = command.split(|byte| *byte == 0);
        let is_etcd = words.next().is_some_and(|word| word.ends_with(b"etcd"));
        is_etcd && String::from_utf8_lossy(command).contains(&format!("{NAME}-{node}"))
    };
    let mut found = processes.filter_map(|process| {
        let id = process.file_name().to_str()?.parse().ok()?;
        let command = fs::read(process.path().join("cmdline")).ok()?;
        is_member(&command).then(|| Pid::from_raw(id))?
    });
    found.next().expect("a process of etcd")
}

#[test]
#[ignore = "make test-cluster TESTS=control_planes"]
fn api_takes_writes_at_the_shared_address_while_each_control_plane_node_gets_another_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let system = state.join("system");
    fs::copy(images::image("-rootfs.squashfs"), &system).expect("a copy of the image");
    let image = system.display().to_string();
    let cache = images::image("-image-cache.squashfs").display().to_string();
    let patch = patch();
    let from = ["--image", &image, "--image-cache", &cache];
    let nodes = ["--controlplanes", "3", "--workers", "0"];
    let more = [
        "--config-patch-control-plane",
        &patch,
        "--wait-timeout",
        "40m",
    ];
    let told = cluster::create(state, &[&from[..], &nodes, &more].concat(), CLUSTER * 3);
    told.unwrap_or_else(|error| panic!("{error}"));
    let place = state.join(NAME);
    let config = place.join("cortenconfig");
    let kubectl = Kubectl::new(place.join("kubeconfig"));
    let first = until_all_work(&place, &config);

    // A container starts from this file. The nodes that still run have the old one.
    let next = state.join("next");
    fs::copy(images::other("next", "-rootfs.squashfs"), &next).expect("a copy of the image");
    fs::rename(&next, &system).expect("the next version in place");
    let written = Written::during(&kubectl, || {
        // The node with the address goes first, so that the address moves at least once.
        let others = NODES.into_iter().filter(|node| *node != first);
        for node in [first].into_iter().chain(others) {
            let reboot = ["reboot", "--wait", "--drain=false", "--timeout", "20m"];
            let rebooted = at(node, &config).call_within(CLUSTER, &reboot);
            rebooted.unwrap_or_else(|error| panic!("{error}"));
            let release = at(node, &config).call(&["read", "/etc/os-release"]);
            let release = release.expect("the node's version");
            assert!(release.contains(NEXT), "{node}: {release}");
            let holder = until_all_work(&place, &config);
            assert!(node != first || holder != first, "{SHARED} has not moved");
        }
    });
    eprintln!("three nodes got {NEXT}: {written}");
    written.check(&kubectl);

    // etcd would lose its quorum without a second member.
    let reboot = ["reboot", "--wait=false"];
    at(NODES[0], &config)
        .call(&reboot)
        .unwrap_or_else(|error| panic!("{error}"));
    for call in [&reboot[..], &["shutdown", "--wait=false"]] {
        let refused = at(NODES[1], &config).call(call);
        let why = refused.expect_err("a second node goes down");
        assert!(why.contains("reboots or shuts down"), "{why}");
    }
    until_all_work(&place, &config);

    // No other node goes down, but the member of one hangs.
    let member = member_of("controlplane-3");
    kill_process(member, Signal::STOP).expect("a stopped member");
    let refused = at(NODES[1], &config).call(&reboot);
    kill_process(member, Signal::CONT).expect("a member that goes on");
    let why = refused.expect_err("etcd loses its quorum");
    assert!(
        why.contains("may lose its quorum") && why.contains("controlplane-3"),
        "{why}"
    );
    until_all_work(&place, &config);
    for node in NODES {
        let log = at(node, &config).call(&["logs", "machined"]);
        cluster::no_service_was_killed(&log.expect("machined's log"));
    }

    cluster::destroy(state);
    assert_eq!(traces(state), before);
}

//! Promises: a single call turns a node into a cluster, offline, and a snapshot restores its data.
//! A further control plane node and a worker join by their configs alone. Pods use volumes of an NFS server, user
//! namespaces, swap and network policies.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

#[path = "kubernetes/pods.rs"]
mod pods;

use std::path::Path;
use std::time::Duration;

use pods::{
    pods_get_accounts, pods_run_in_user_namespaces_and_swap, pods_share_a_volume_of_an_nfs_server,
    policies_are_enforced,
};
use qemu::{Accel, Disk, DiskMode, Machine, Segment};
use tests::client::generate_config_with;
use tests::cluster::PATIENT;
use tests::disk::NodeDisk;
use tests::images;
use tests::kubectl::Kubectl;
use tests::node::{Node, SOON};
use tests::policies;
use tests::workspace;

/// Timeout of a cluster's start on a machine without hardware virtualisation.
const CLUSTER: Duration = Duration::from_secs(1200);
/// Size of the disk in MiB: images are stored twice, packed and unpacked.
const DISK: u64 = 16384;
/// Port of the Kubernetes API on this host, and on a node whose endpoint this host calls.
const PORT: u16 = 16443;
/// The network of a cluster with several nodes.
const SEGMENT: u16 = 16444;

/// Part of the key of an encrypted volume.
const UUID: &str = "4c4c4544-0033-4d10-8051-b7c04f4b3532";

/// The web server of `make run`.
const WEB: &str = include_str!("../qemu/web.yaml");

/// An address that control plane nodes share, on the only network card.
const SHARED_ADDRESS: &str = "machine: {network: {interfaces: [{deviceSelector: {physical: true}, dhcp: true, \
    vip: {ip: 10.0.2.100}}]}}";

/// kubectl for the cluster of a node.
fn kubectl(node: &Node) -> Kubectl {
    let kubeconfig = node.vm.dir().join("kubeconfig");
    let path = kubeconfig.to_str().expect("UTF-8 path");
    node.admin()
        .must(&["kubeconfig", path, "--force", "--merge=false"]);
    Kubectl::new(kubeconfig).at(format!("https://127.0.0.1:{PORT}"))
}

fn until_nodes_ready(node: &Node, cluster: &Kubectl, count: usize) {
    let what = format!("nodes that are ready: {count}");
    node.until(&what, CLUSTER, || cluster.nodes_ready(count));
}

/// Waits until the web server answers through its Service.
fn until_web_answers(node: &Node, cluster: &Kubectl) {
    let path = "/api/v1/namespaces/default/services/web:80/proxy/health";
    node.until("an answer through the service", CLUSTER, || {
        cluster.check(&["get", "--raw", path], |text| text == "OK")
    });
}

fn start(name: &str, memory: u32, shape: impl FnOnce(Machine) -> Machine) -> Node {
    let image = images::image(".raw");
    let mut boot = images::direct();
    for parameter in Accel::probe_for(images::arch()).accel.kernel_parameters() {
        boot.append.push(' ');
        boot.append.push_str(parameter);
    }
    Node::start(name, |machine| {
        let disk = Disk::raw(image).mode(DiskMode::Overlay).enlarged(DISK);
        shape(machine.direct(boot).disk(disk).memory_mib(memory))
    })
}

#[test]
#[ignore = "make test-kubernetes"]
fn single_node_cluster_starts_offline_and_is_restored_from_a_snapshot() {
    let swap = NodeDisk::blank("kubernetes-swap", 1);
    let node = start("kubernetes", 4096, |machine| {
        let machine = machine.uuid(UUID).disk(Disk::qcow2(swap.path()));
        machine.forward(PORT, PORT)
    });
    let patch = format!("@{}", workspace::root().join("qemu/cluster.yaml").display());
    let port = format!("cluster: {{controlPlane: {{localAPIServerPort: {PORT}}}}}");
    let patches = ["--config-patch", &patch, "--config-patch", &port];
    let own = "--config-patch-control-plane";
    let own = [
        own,
        SHARED_ADDRESS,
        own,
        pods::SETTINGS,
        own,
        policies::ENFORCED,
    ];
    let patches = [&patches[..], &own].concat();
    let more = [&["--kubernetes-images", "bundled"], &patches[..]].concat();
    generate_config_with(node.configs(), &format!("https://127.0.0.1:{PORT}"), &more);
    node.configure();
    let admin = node.admin();
    node.ask(&admin, &["bootstrap"], SOON);
    let again = admin.call(&["bootstrap"]);
    let cluster = kubectl(&node);
    until_nodes_ready(&node, &cluster, 1);
    node.until("the cluster's DNS", CLUSTER, || {
        cluster.available("kube-system", "coredns")
    });
    // The first call may not be on the disk yet when the second arrives; neither creates a second
    // cluster.
    if let Err(refused) = again {
        assert!(refused.contains("AlreadyExists"), "{refused}");
    }

    let image = cluster.image_of("kube-system", "deployment/coredns");
    let web = WEB.replace("IMAGE", &image.expect("the image of CoreDNS"));
    let applied = cluster.apply(&node.vm.dir().join("web.yaml"), &web);
    applied.expect("a web server");
    until_web_answers(&node, &cluster);

    // The only control plane node has the shared address, which is no address of its member of etcd.
    node.until("the shared address", CLUSTER, || {
        let addresses = admin.call(&["get", "addresses"])?;
        let is_there = addresses.contains("10.0.2.100/32");
        is_there.then_some(()).ok_or(addresses)
    });

    // An operator's calls about etcd and the logs of pods.
    let members = admin.must(&["etcd", "members"]);
    assert!(members.contains("https://10.0.2.15:2380"), "{members}");
    let status = admin.must(&["etcd", "status"]);
    assert!(status.contains("3.7"), "{status}");
    let containers = admin.must(&["containers", "--kubernetes"]);
    let scheduler = containers
        .split_whitespace()
        .find(|word| word.contains(":kube-scheduler:"))
        .expect("a container of the scheduler");
    let lines = admin.must(&["logs", "--kubernetes", scheduler, "--tail", "2"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");

    pods_share_a_volume_of_an_nfs_server(&node, &cluster);
    pods_get_accounts(&node, &cluster);
    pods_run_in_user_namespaces_and_swap(&node, &cluster);
    policies_are_enforced(&node, &cluster);

    // The pods of the only node cannot be rescheduled: drain evicts them, and they return with the
    // node.
    let again = ["reboot", "--drain", "--timeout", "20m"];
    admin
        .call_within(CLUSTER * 2, &again)
        .expect("a node that is Ready again");
    until_web_answers(&node, &cluster);
    let cordon = ["get", "nodes", "-o", "jsonpath={.items[0].spec}"];
    let spec = cluster.call(&cordon).expect("the node");
    assert!(!spec.contains("unschedulable"), "{spec}");

    // The snapshot has the cluster's whole state.
    let snapshot = node.vm.dir().join("etcd.snapshot").display().to_string();
    admin.must(&["etcd", "snapshot", &snapshot]);
    let wipe = [
        "reset",
        "--system-labels-to-wipe",
        "EPHEMERAL",
        "--reboot",
        "--graceful=false",
    ];
    node.ask(&admin, &[&wipe[..], &["--wait=false"]].concat(), SOON);
    node.until("a node that waits for etcd", CLUSTER, || {
        admin.call(&["bootstrap", "--recover-from", &snapshot])
    });
    until_nodes_ready(&node, &cluster, 1);
    until_web_answers(&node, &cluster);
}

fn mac(number: u8) -> String {
    format!("52:54:00:00:03:{number:02x}")
}

/// The patch for a node on the segment. QEMU's own network is the same for every node and connects
/// none of them.
fn on_segment(number: u8) -> String {
    let mac = mac(number);
    format!(
        "machine: {{time: {{disabled: true}}, kubelet: {{nodeIP: {{validSubnets: [192.168.99.0/24]}}}}, network: \
         {{hostname: node-{number}, interfaces: [{{deviceSelector: {{hardwareAddr: '{mac}'}}, dhcp: false, \
         addresses: [192.168.99.{number}/24], routes: [{{network: 0.0.0.0/0, gateway: 192.168.99.254, metric: 100}}]}}]}}}}"
    )
}

fn node_of_segment(number: u8, memory: u32) -> Node {
    start(&format!("kubernetes-{number}"), memory, |machine| {
        let segment = Segment {
            port: SEGMENT,
            mac: mac(number),
        };
        let machine = machine.segment(segment);
        // This host calls only the first node.
        match number {
            1 => machine.forward(PORT, 6443),
            _ => machine,
        }
    })
}

/// Adds a node to the cluster with the first node's configs.
fn take_in(node: &Node, configs: &Path, file: &str, number: u8) {
    node.wait_maintenance();
    let file = configs.join(file).display().to_string();
    let patch = on_segment(number);
    node.insecure()
        .must(&["apply-config", "-f", &file, "--config-patch", &patch]);
}

/// The first node of a cluster on the segment. Emulated machines miss the default timeouts of etcd
/// and Kubernetes, and have longer ones here.
fn first_of_segment() -> (Node, Kubectl) {
    let first = node_of_segment(1, 4096);
    let etcd = "{advertisedSubnets: [192.168.99.0/24], \
                extraArgs: {heartbeat-interval: '1000', election-timeout: '10000'}}";
    let patch =
        format!("cluster: {{etcd: {etcd}, controllerManager: {PATIENT}, scheduler: {PATIENT}}}");
    let more = [
        "--kubernetes-images",
        "bundled",
        "--config-patch-control-plane",
        &patch,
    ];
    generate_config_with(first.configs(), "https://192.168.99.1:6443", &more);
    take_in(&first, first.configs(), "controlplane.yaml", 1);
    let admin = first.admin();
    first.until("a node that takes the order", CLUSTER, || {
        admin.call(&["bootstrap"])
    });
    let cluster = kubectl(&first);
    until_nodes_ready(&first, &cluster, 1);
    (first, cluster)
}

#[test]
#[ignore = "make test-kubernetes"]
fn worker_joins_the_cluster_with_its_config() {
    let (first, cluster) = first_of_segment();
    let worker = node_of_segment(2, 2048).with_configs(first.configs().to_owned());
    take_in(&worker, first.configs(), "worker.yaml", 2);
    until_nodes_ready(&first, &cluster, 2);
    let servers = ["get", "kubeprismconfigs", "-o", "yaml"];
    worker.until("the worker's way to the API server", CLUSTER, || {
        let config = worker.admin().call(&servers)?;
        config.contains("192.168.99.1").then_some(()).ok_or(config)
    });
    // The API server of one node reaches the kubelet of another.
    let on_worker = "jsonpath={.items[?(@.spec.nodeName=='node-2')].metadata.name}";
    let pods = cluster.call(&["get", "pods", "-A", "-o", on_worker]);
    let pods = pods.expect("the worker's pods");
    let mut pods = pods.split_whitespace();
    let flannel = pods.find(|pod| pod.starts_with("kube-flannel"));
    let flannel = flannel.expect("flannel runs on every node");
    let logs = ["logs", "-n", "kube-system", flannel, "--tail", "1"];
    first.until("logs from another node", CLUSTER, || {
        cluster.check(&logs, |text| !text.is_empty())
    });
}

#[test]
#[ignore = "make test-kubernetes"]
fn control_plane_node_joins_with_its_config_and_a_reset_removes_it_from_etcd() {
    let (first, cluster) = first_of_segment();
    let admin = first.admin();
    let until_voters = |count: usize| {
        first.until(&format!("{count} voting members"), CLUSTER, || {
            let members = admin.call(&["etcd", "members"])?;
            let voters = members.matches("false").count();
            (voters == count).then_some(()).ok_or(members)
        });
    };
    let second = node_of_segment(2, 3072).with_configs(first.configs().to_owned());
    take_in(&second, first.configs(), "controlplane.yaml", 2);
    until_voters(2);
    until_nodes_ready(&first, &cluster, 2);
    // Each node's own calls are balanced over both API servers.
    let servers = ["get", "kubeprismconfigs", "-o", "yaml"];
    first.until("the way to both API servers", CLUSTER, || {
        let config = admin.call(&servers)?;
        let is_both = config.contains("192.168.99.1") && config.contains("192.168.99.2");
        is_both.then_some(()).ok_or(config)
    });
    let leave = ["reset", "--wait=false", "--reboot"];
    second.ask(&second.admin(), &leave, SOON);
    until_voters(1);
    let nodes = cluster.call(&["get", "nodes"]);
    nodes.expect("a cluster that goes on");
}

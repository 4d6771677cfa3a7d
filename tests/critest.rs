//! Runs critest, the tests of the interface of container runtimes, against the containerd of a node, except those that
//! `critest/skipped.toml` names with a reason.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::cluster::{self, CLUSTER, Cleanup, NAME, REGISTRY, traces, until};
use tests::ginkgo::{Report, Skips, built};
use tests::registry::{Images, Registry};
use tests::{images, workspace};

/// Registries of the images.
const NAMES: [&str; 3] = ["gcr.io", "k8s.gcr.io", "registry.k8s.io"];
/// Network of the pods. A node gets its own from Kubernetes, which does not run here.
const PODS: &str = r#"{
    "cniVersion": "1.0.0",
    "name": "critest",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": "10.88.0.0/16" }]],
                "routes": [{ "dst": "0.0.0.0/0" }]
            }
        },
        { "type": "portmap", "capabilities": { "portMappings": true } }
    ]
}"#;

fn source(name: &str) -> PathBuf {
    workspace::root().join("tests/critest").join(name)
}

/// The node's first process, as this machine numbers it: one below another PID namespace.
fn first_process() -> Option<u32> {
    let numbers = fs::read_dir("/proc").expect("processes").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_first = |number: &u32| {
        let of = |file: &str| fs::read_to_string(format!("/proc/{number}/{file}"));
        let status = of("status").unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let cgroup = of("cgroup").unwrap_or_default();
        numbers.is_some_and(|numbers| numbers.trim() == format!("{number}\t1"))
            && cgroup.contains(NAME)
    };
    { numbers }.find(is_first)
}

/// Runs the tests in the namespaces of the node; returns ginkgo's report. `var` is the node's /var.
fn run_tests(node: u32, var: &Path, skips: &Skips) -> serde_json::Value {
    let place = var.join("critest");
    fs::create_dir_all(place.join("tmp")).expect("a directory");
    for program in ["critest", "ipcmk", "sleep"] {
        fs::copy(built().join(program), place.join(program)).expect("a program of the tests");
    }
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={node}"))
        .args(["--mount", "--net", "--ipc", "--pid", "/var/critest/critest"])
        .args([
            "--runtime-endpoint=unix:///run/containerd/containerd.sock",
            "--ginkgo.json-report=/var/critest/report.json",
            "--ginkgo.no-color",
            "--ginkgo.silence-skips",
            "--ginkgo.timeout=1h",
        ])
        .args(
            skips
                .patterns()
                .map(|pattern| format!("--ginkgo.skip={pattern}")),
        )
        .env_clear()
        .env("PATH", "/var/critest:/usr/bin")
        .env("TMPDIR", "/var/critest/tmp");
    let log = workspace::target().join("critest.log");
    let file = fs::File::create(&log).expect("a log");
    // The report tells what failed.
    let _failed = command.stdout(file).status().expect("nsenter runs");
    let report = fs::read(place.join("report.json"));
    let report = report.unwrap_or_else(|error| panic!("{error}; see {}", log.display()));
    serde_json::from_slice(&report).expect("the report of the tests")
}

#[test]
#[ignore = "make test-cluster TESTS=critest"]
fn containerd_of_a_node_passes_the_tests_of_container_runtimes() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let registry = state.join("registry");
    Images::create(&registry).add_all(&source("images.toml"), &built().join("layers"));
    let mirrors = NAMES.map(|name| {
        format!(
            "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: {name}\n\
             endpoints: [{{url: 'http://{REGISTRY}'}}]\n"
        )
    });
    let mirrors = mirrors.join("---\n");
    let image = images::image("-rootfs.squashfs").display().to_string();
    let create = ["--image", &image, "--workers", "0", "--wait", "api"];
    let create = [&create[..], &["--config-patch", &mirrors]].concat();
    let told = cluster::create(state, &create, CLUSTER);
    told.unwrap_or_else(|error| panic!("{error}"));

    let address: SocketAddr = REGISTRY.parse().expect("an address");
    let served = Registry::serve(&registry, address);
    let node = first_process().expect("the first process of the node");
    let inside = |path: &str| PathBuf::from(format!("/proc/{node}/root")).join(path);
    until("containerd", || {
        let socket = inside("run/containerd/containerd.sock");
        socket.exists().then_some(()).ok_or_else(String::new)
    });
    fs::write(inside("etc/cni/net.d/10-critest.conflist"), PODS).expect("a network for pods");
    let var = state
        .join(NAME)
        .join(format!("nodes/{NAME}-controlplane-1/var"));
    let skips = Skips::read(&source("skipped.toml"));
    let report = run_tests(node, &var, &skips);
    drop(served);
    let report = Report::of(&report, &skips, "");
    eprintln!(
        "{} passed, {} not run:",
        report.passed.len(),
        report.skipped.len()
    );
    for (test, reason) in &report.skipped {
        eprintln!("{test}: {reason}");
    }
    cluster::destroy(state);
    assert_eq!(traces(state), before);
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    let not_reached: Vec<&str> = report.not_reached().collect();
    assert!(not_reached.is_empty(), "{not_reached:#?}");
    assert!(report.passed.len() > 100, "{:?}", report.passed);
}

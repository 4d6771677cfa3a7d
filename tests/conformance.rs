//! Runs the conformance tests of Kubernetes, except those that `conformance/skipped.toml` names with a reason. The
//! result is written to docs/conformance.md.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tests::client;
use tests::cluster::{self, CALL, CLUSTER, CONTROL_PLANE, Cleanup, NAME, REGISTRY, traces};
use tests::ginkgo::{CONFORMANCE, Report, Skips, built, passed_before, pattern};
use tests::kubectl::Kubectl;
use tests::registry::{Images, Registry};
use tests::{images, workspace};

/// Both nodes run pods, since some tests need two, and take the tests' images from the registry.
const CONFIG: &str = "
cluster: {allowSchedulingOnControlPlanes: true}
---
apiVersion: v1alpha1
kind: RegistryMirrorConfig
name: registry.k8s.io
endpoints: [{url: 'http://REGISTRY'}]
";

fn source(name: &str) -> PathBuf {
    workspace::root().join("tests/conformance").join(name)
}

/// Number of tests at the same time: the cluster needs the other half of the processors. Tests marked Serial run alone.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |all| all.get().div_ceil(2))
}

/// Runs the tests of which `focus` is a part of the name, without those that match a pattern of `without`; returns
/// ginkgo's report.
fn run_tests(kubeconfig: &Path, focus: &str, without: &[String], directory: &Path) -> Value {
    let mut command = Command::new(built().join("ginkgo"));
    let kubectl = env::var_os("CORTEN_KUBECTL").expect("CORTEN_KUBECTL is a kubectl");
    let limit = env::var("LIMIT").unwrap_or_else(|_| "5h".to_owned());
    // An earlier cluster had the same address and other resources.
    let cache = tempfile::tempdir().expect("a directory");
    command
        .env("KUBECACHEDIR", cache.path())
        .arg(format!("--procs={}", at_once()))
        .arg(format!("--focus={focus}"))
        .args(without.iter().map(|pattern| format!("--skip={pattern}")))
        .arg(format!("--timeout={limit}"))
        .args(["--no-color", "--silence-skips", "--json-report=report.json"])
        .arg(format!("--output-dir={}", directory.display()))
        .arg(built().join("e2e.test"))
        .args(["--", "--provider=skeleton"])
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--kubectl-path={}", Path::new(&kubectl).display()));
    let log = fs::File::create(directory.join("log")).expect("a log");
    // The report tells what failed.
    let _failed = command.stdout(log).status().expect("ginkgo runs");
    let report = fs::read(directory.join("report.json")).expect("the report of the tests");
    serde_json::from_slice(&report).expect("the report of the tests")
}

/// Makes the cluster, and serves the images of the tests.
fn cluster_with_images(state: &Path) -> Registry {
    let registry = state.join("registry");
    Images::create(&registry).add_all(&source("images.toml"), &built().join("layers"));
    let image = images::image("-rootfs.squashfs").display().to_string();
    let cache = images::image("-image-cache.squashfs").display().to_string();
    let config = CONFIG.replace("REGISTRY", REGISTRY);
    let from = ["--image", &image, "--image-cache", &cache];
    let create = [&from[..], &["--config-patch", &config]].concat();
    cluster::create(state, &create, CLUSTER).expect("a cluster");
    let address: SocketAddr = REGISTRY.parse().expect("an address");
    Registry::serve(&registry, address)
}

#[test]
#[ignore = "make conformance"]
fn verb_runs_the_image_of_the_tests_and_keeps_log_and_report() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let served = cluster_with_images(state);
    let mut verb = Command::new(workspace::cortenctl());
    let config = state.join(NAME).join("cortenconfig");
    verb.current_dir(state)
        .arg("--cortenconfig")
        .arg(config)
        .args(["-n", CONTROL_PLANE]);
    verb.args(["conformance", "kubernetes", "--mode", "certified"]);
    let told = client::run(verb, CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("Test Suite Passed"), "{told}");
    let results = state.join("v1.37/corten");
    let log = fs::read_to_string(results.join("e2e.log")).expect("the log");
    assert!(told.contains(&log), "{log}");
    let report = fs::read_to_string(results.join("junit_01.xml")).expect("the report");
    assert!(
        report.contains("[sig-architecture] Conformance Tests"),
        "{report}"
    );
    drop(served);
    let kubectl = Kubectl::new(state.join(NAME).join("kubeconfig"));
    let left = kubectl.call(&[
        "get",
        "namespace/conformance",
        "--ignore-not-found",
        "-o",
        "name",
    ]);
    assert_eq!(left.expect("an answer"), "");
    cluster::destroy(state);
    assert_eq!(traces(state), before);
}

#[test]
#[ignore = "make conformance"]
fn container_cluster_passes_the_conformance_tests() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let served = cluster_with_images(state);
    let skips = Skips::read(&source("skipped.toml"));
    let kubeconfig = state.join(NAME).join("kubeconfig");
    let versions = Kubectl::new(kubeconfig.clone()).call(&["version", "-o", "json"]);
    let versions: Value = serde_json::from_str(&versions.expect("the versions")).expect("versions");
    let version = versions.pointer("/serverVersion/gitVersion");
    let version = version.and_then(Value::as_str).expect("a version");
    let focus = env::var("FOCUS").unwrap_or_default();
    let is_whole = focus.is_empty();
    let focus = if is_whole { r"\[Conformance\]" } else { &focus };
    let page = workspace::root().join("docs/conformance.md");
    let text = fs::read_to_string(&page).expect("the page");
    let mut earlier = passed_before(&text, version);
    if !is_whole {
        earlier.clear();
    }
    let passed = earlier.keys().map(|test| pattern(test));
    let without: Vec<String> = skips.patterns().chain(passed).collect();
    let results = workspace::target().join("conformance");
    fs::create_dir_all(&results).expect("a directory for the results");
    let report = run_tests(&kubeconfig, focus, &without, &results);
    drop(served);
    let report = Report::of(&report, &skips, CONFORMANCE);
    let mut missed: Vec<&str> = report.not_reached().collect();
    missed.retain(|test| !earlier.contains_key(*test));
    // A run of some tests, or of a given time, leaves others out.
    if !is_whole || env::var_os("LIMIT").is_some() {
        missed.clear();
    }
    if is_whole {
        let image = cluster::call(state, &["-n", cluster::WORKER, "version"], CALL);
        let image = image.expect("the node's version");
        let commit = { image.lines().rev() }.find_map(|line| line.trim().strip_prefix("SHA:"));
        let commit = commit.expect("the node's commit").trim();
        let text = report.page(version, commit, earlier);
        fs::write(page, text).expect("the page");
    }
    cluster::destroy(state);
    assert_eq!(traces(state), before);
    assert!(missed.is_empty(), "not run: {missed:#?}");
    assert!(!report.passed.is_empty(), "no test matches {focus}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
}

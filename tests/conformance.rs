//! Runs the conformance tests of Kubernetes, except those that `conformance/skipped.toml` names with a reason. The
//! result is written to docs/conformance.md.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

mod conformance {
    pub(crate) mod report;
}

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use conformance::report::{Report, Skips};
use serde_json::Value;
use tests::cluster::{self, CLUSTER, Cleanup, NAME, traces};
use tests::kubectl::Kubectl;
use tests::registry::{Images, Registry};
use tests::{images, workspace};

/// The registry's address on the network of the nodes: that of this machine.
const REGISTRY: &str = "10.213.7.1:5000";
/// Both nodes run pods, since some tests need two, and take the tests' images from the registry.
const CONFIG: &str = "
cluster: {allowSchedulingOnControlPlanes: true}
---
apiVersion: v1alpha1
kind: RegistryMirrorConfig
name: registry.k8s.io
endpoints: [{url: 'http://REGISTRY'}]
";

/// The directory that `conformance/build` filled.
fn built() -> PathBuf {
    let directory = env::var_os("CORTEN_CONFORMANCE").expect("CORTEN_CONFORMANCE is a directory");
    PathBuf::from(directory)
}

fn source(name: &str) -> PathBuf {
    workspace::root().join("tests/conformance").join(name)
}

/// Fills the directory of a registry with the images of the tests.
fn make_images(directory: &Path) {
    let list = fs::read_to_string(source("images.toml")).expect("the list of images");
    let list: Value = toml::from_str(&list).expect("the list of images");
    let images = Images::create(directory);
    let texts = |image: &Value, field: &str| -> Vec<String> {
        let texts = image.get(field).and_then(Value::as_array).expect("a list");
        let texts = texts.iter().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    let all = list.get("image").and_then(Value::as_array);
    for image in all.expect("images") {
        let layers: Vec<PathBuf> = texts(image, "layers")
            .iter()
            .map(|name| built().join("layers").join(format!("{name}.tar")))
            .collect();
        let mut run = image.get("run").cloned().expect("how it runs");
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let run_fields = run.as_object_mut().expect("how it runs");
        run_fields.insert("Env".to_owned(), [path].as_slice().into());
        images.add("registry.k8s.io", &texts(image, "names"), &layers, &run);
    }
}

/// Number of tests at the same time: the cluster needs the other half of the processors. Tests marked Serial run alone.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |all| all.get().div_ceil(2))
}

/// Runs the tests of which `focus` is a part of the name; returns ginkgo's report.
fn run_tests(kubeconfig: &Path, focus: &str, skips: &Skips, directory: &Path) -> Value {
    let mut command = Command::new(built().join("ginkgo"));
    let kubectl = env::var_os("CORTEN_KUBECTL").expect("CORTEN_KUBECTL is a kubectl");
    command
        .arg(format!("--procs={}", at_once()))
        .arg(format!("--focus={focus}"))
        .args(skips.patterns().map(|pattern| format!("--skip={pattern}")))
        .args([
            "--no-color",
            "--silence-skips",
            "--timeout=5h",
            "--json-report=report.json",
        ])
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

#[test]
#[ignore = "make conformance"]
fn container_cluster_passes_the_conformance_tests() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let registry = state.join("registry");
    make_images(&registry);
    let skips = Skips::read(&source("skipped.toml"));

    let image = images::image("-rootfs.squashfs").display().to_string();
    let cache = images::image("-image-cache.squashfs").display().to_string();
    let config = CONFIG.replace("REGISTRY", REGISTRY);
    let from = ["--image", &image, "--image-cache", &cache];
    let create = [&from[..], &["--config-patch", &config]].concat();
    let told = cluster::create(state, &create, CLUSTER);
    told.unwrap_or_else(|error| panic!("{error}"));

    let address: SocketAddr = REGISTRY.parse().expect("an address");
    let served = Registry::serve(&registry, address);
    let kubeconfig = state.join(NAME).join("kubeconfig");
    let version = Kubectl::new(kubeconfig.clone()).call(&["version", "-o", "json"]);
    let focus = env::var("FOCUS").unwrap_or_default();
    let is_whole = focus.is_empty();
    let focus = if is_whole { r"\[Conformance\]" } else { &focus };
    let results = workspace::target().join("conformance");
    fs::create_dir_all(&results).expect("a directory for the results");
    let report = run_tests(&kubeconfig, focus, &skips, &results);
    drop(served);
    let report = Report::of(&report, &skips);
    if is_whole {
        let page = report.page(&version.expect("the versions"));
        fs::write(workspace::root().join("docs/conformance.md"), page).expect("the page");
    }
    cluster::destroy(state);
    assert_eq!(traces(state), before);
    assert!(report.passed > 0, "no test matches {focus}");
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
}

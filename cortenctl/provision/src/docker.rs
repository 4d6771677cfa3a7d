//! Nodes as containers of Docker, made with its command line.
//!
//! The command line follows the operator's context, rights and remote hosts as the operator does. Every object carries
//! the label of its cluster, so `destroy` finds them without a plan.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::place::Place;
use super::plan::{NodePlan, Plan};

/// The program.
const PROGRAM: &str = "docker";
/// Label of everything that belongs to a cluster; its value is the cluster's name.
const LABEL: &str = "corten.cluster";
/// The label of a network with the directory of its cluster.
const OWNER: &str = "corten.directory";
/// Beginning of the line in which `docker load` names an image.
const LOADED: &str = "Loaded image: ";
/// Arguments of `docker run` that a node needs: it mounts, makes cgroups, and runs containers itself. Its root file
/// system is read-only; `/run` is new at each start, STATE and EPHEMERAL live as long as the container. A reboot ends the
/// container, and Docker starts it again.
const NODE: [&str; 16] = [
    "--detach",
    "--privileged",
    "--security-opt",
    "seccomp=unconfined",
    "--cgroupns",
    "private",
    "--read-only",
    "--tmpfs",
    "/run",
    "--volume",
    "/system/state",
    "--volume",
    "/var",
    "--restart",
    "unless-stopped",
    "--env=USERDATA",
];

/// Runs the program, and returns what it prints.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow!(
            "this machine has no program {PROGRAM}: install it, or choose another --provisioner"
        ),
        _ => anyhow!("{PROGRAM}: {error}"),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(text(&output.stdout))
}

fn docker(arguments: &[&str]) -> anyhow::Result<String> {
    let verb = arguments.first().copied().unwrap_or_default();
    run(Command::new(PROGRAM).args(arguments)).with_context(|| format!("{PROGRAM} {verb}"))
}

/// Checks that Docker works and that its nodes get the cgroups they need.
///
/// # Errors
/// Docker does not answer, or it has no cgroup v2.
pub(super) fn check() -> anyhow::Result<()> {
    let version = docker(&["info", "--format", "{{.CgroupVersion}}"])?;
    ensure!(
        version == "2",
        "Docker uses cgroup v{version}, and nodes need version 2: start its machine with the kernel parameter \
         cgroup_no_v1=all"
    );
    Ok(())
}

/// The name of the image: that of a reference, or the one in an archive, which Docker loads.
///
/// # Errors
/// The archive has no image.
pub(super) fn image(given: &Path) -> anyhow::Result<String> {
    let given = given.to_str().context("--image: the name is not UTF-8")?;
    if !Path::new(given).is_file() {
        return Ok(given.to_owned());
    }
    let said = docker(&["load", "--quiet", "--input", given])?;
    let name = said.lines().find_map(|line| line.strip_prefix(LOADED));
    name.map(str::to_owned)
        .with_context(|| format!("--image {given}: Docker found no image with a name: {said}"))
}

/// Whether Docker has objects of a cluster.
///
/// # Errors
/// Docker refuses.
pub(super) fn exists(cluster: &str) -> anyhow::Result<bool> {
    Ok(!(containers(cluster)?.is_empty() && networks(cluster)?.is_empty()))
}

/// The directory of the cluster that a network belongs to; `None` without one.
///
/// # Errors
/// Docker refuses.
pub(super) fn owner(cluster: &str) -> anyhow::Result<Option<String>> {
    let format = format!("{{{{.Label \"{OWNER}\"}}}}");
    let found = docker(&["network", "ls", "--format", &format, &filter(cluster)])?;
    let first = found.lines().next().unwrap_or_default();
    Ok((!first.is_empty()).then(|| first.to_owned()))
}

/// Makes the cluster's network.
///
/// # Errors
/// Docker refuses, such as for an overlap with another network.
pub(super) fn make_network(place: &Place, plan: &Plan) -> anyhow::Result<()> {
    let subnet = format!("--subnet={}", plan.network());
    let gateway = format!("--gateway={}", plan.gateway);
    let label = label(&plan.name);
    let owner = format!("--label={OWNER}={}", place.mark());
    docker(&[
        "network",
        "create",
        &subnet,
        &gateway,
        &label,
        &owner,
        &plan.cgroup(),
    ])
    .map(drop)
}

/// Starts a node.
///
/// # Errors
/// Docker refuses.
pub(super) fn start(place: &Place, plan: &Plan, node: &NodePlan) -> anyhow::Result<()> {
    let config = fs::read(place.config(node)).context("reading the machine config")?;
    let image = plan.image.to_str().context("the image has no name")?;
    let mut command = Command::new(PROGRAM);
    command
        .arg("run")
        .args(NODE)
        .arg(label(&plan.name))
        .args(["--name", &node.name, "--hostname", &node.name])
        .args(["--network", &plan.cgroup()])
        .args(["--ip", &node.address.to_string()])
        // The program takes the value from its own environment, where no other user sees it.
        .env("USERDATA", STANDARD.encode(config));
    if let Some(cache) = &plan.image_cache {
        let cache = cache.to_str().context("--image-cache: not UTF-8")?;
        command.arg(format!("--volume={cache}:/system/imagecache:ro"));
    }
    command.arg(image);
    run(&mut command)
        .map(drop)
        .with_context(|| format!("starting {}", node.name))
}

/// Whether the node runs.
pub(super) fn runs(node: &str) -> bool {
    let state = docker(&["inspect", "--format", "{{.State.Running}}", node]);
    state.is_ok_and(|state| state == "true")
}

/// The last lines of the node's console.
///
/// # Errors
/// There is no such container.
pub(super) fn last_lines(node: &str, count: usize) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(PROGRAM);
    command.args(["logs", "--tail", &count.to_string(), node]);
    // It prints what the node wrote to standard error to its own.
    let output = command.stdin(Stdio::null()).output()?;
    let lines = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8_lossy(&lines);
    Ok(lines.lines().map(str::to_owned).collect())
}

/// The command that shows the node's console.
pub(super) fn console(node: &str) -> String {
    format!("{PROGRAM} logs {node}")
}

/// Removes the containers of a cluster with their volumes, and its network. Idempotent.
///
/// # Errors
/// Docker refuses.
pub(super) fn remove(cluster: &str) -> anyhow::Result<()> {
    for (remove, found) in [
        (&["rm", "--force", "--volumes"][..], containers(cluster)?),
        (&["network", "rm"], networks(cluster)?),
    ] {
        if !found.is_empty() {
            let found: Vec<&str> = found.lines().collect();
            docker(&[remove, &found].concat())?;
        }
    }
    Ok(())
}

fn label(cluster: &str) -> String {
    format!("--label={LABEL}={cluster}")
}

fn filter(cluster: &str) -> String {
    format!("--filter=label={LABEL}={cluster}")
}

fn containers(cluster: &str) -> anyhow::Result<String> {
    docker(&["ps", "--all", "--quiet", &filter(cluster)])
}

fn networks(cluster: &str) -> anyhow::Result<String> {
    docker(&["network", "ls", "--quiet", &filter(cluster)])
}

//! `cluster create`: makes a whole cluster, or removes everything that it made.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use corten_client::failure::Failure;
use corten_client::interrupts::Interrupts;
use corten_client::table::{print, printable};
use corten_generate::args::KubernetesImages;

use super::backend::Backend;
use super::place::Place;
use super::plan::{Plan, Provisioner, Shape, Wish};
use super::{configs, destroy, vm, wait};
use crate::args::{self, ClusterCreate, WaitFor};

/// Controllers that pods need: the kubelet sets their limits on every pod, and runc fails without the controller.
const POD_CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Parameters of the filter of bridges; they exist once it is in the kernel.
const BRIDGE_FILTER: &str = "/proc/sys/net/bridge";
/// Number of console lines that are shown when a node fails.
const LAST_LINES: usize = 12;

pub(super) async fn run(args: &ClusterCreate) -> Result<(), Failure> {
    let images = images(args)?;
    let provisioner = provisioner(args)?;
    let backend = Backend::of(&args.cluster.name, provisioner)?;
    backend.check_rights()?;
    let mut plan = Plan::of(wish(args, provisioner)?).map_err(Failure::usage)?;
    check_images(args.wait, images, &plan)?;
    let place = Place::of(args.cluster.state.as_deref(), &plan.name)?;
    backend.check_free(&plan).await?;
    if let Some(warning) = check_controllers(&backend.missing_controllers(&plan)?, args.wait)? {
        eprintln!("warning: {warning}");
    }
    if let Some(warning) = check_bridge_filter(provisioner, Path::new(BRIDGE_FILTER)) {
        eprintln!("warning: {warning}");
    }
    plan.image = backend.image(&plan.image)?;
    // From here on, a failure must remove what was made, and so must a signal: steps of `make` block this thread.
    let mut interrupts = Interrupts::take()?;
    place.begin(&plan)?;
    let made = tokio::select! {
        made = make((args, images), &plan, &place, &backend) => made,
        _ = interrupts.next() => Err(Failure::call("interrupted")),
    };
    let Err(failure) = made else {
        return Ok(());
    };
    show_consoles(&plan, &place, &backend);
    eprintln!("removing the incomplete cluster");
    if let Err(error) = destroy::remove(&backend, &plan.name, &place, false).await {
        let again = destroy::command(&args.cluster);
        eprintln!("the cluster is not removed completely: {error:#}; try again: {again}");
    }
    Err(failure)
}

/// Checks that virtual machines have the images that their configs name.
///
/// # Errors
/// Kubernetes is waited for, and the disk image lacks its images.
fn check_images(wait: WaitFor, images: KubernetesImages, plan: &Plan) -> Result<(), Failure> {
    let needs = wait > WaitFor::Api && images == KubernetesImages::Bundled;
    if !needs || !matches!(plan.provisioner, Provisioner::Qemu(_)) {
        return Ok(());
    }
    let shown = plan.image.display();
    match vm::has_images(&plan.image) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::usage(format!(
            "--image {shown}: the disk has no container images of Kubernetes; build it with --with-images, name upstream \
             ones with --kubernetes-version, or wait for the node API alone with --wait api"
        ))),
        Err(error) => Err(Failure::usage(format!("--image {shown}: {error:#}"))),
    }
}

/// The warning about missing cgroup controllers, if any.
///
/// # Errors
/// A controller is missing that pods need, and the operator waits for pods.
fn check_controllers(missing: &[&str], wait: WaitFor) -> Result<Option<String>, Failure> {
    if missing.is_empty() {
        return Ok(None);
    }
    let needed = POD_CONTROLLERS.iter().any(|one| missing.contains(one));
    let missing = missing.join(", ");
    match needed && wait == WaitFor::Ready {
        true => Err(Failure::call(format!(
            "the cgroup controllers {missing} are not available to nodes, so no pod can start; start this machine with \
             the kernel parameter cgroup_no_v1=all, or make nodes without pods by --wait bootstrapped"
        ))),
        false => Ok(Some(format!(
            "the cgroup controllers {missing} are not available to nodes, so their limits have no effect; cgroup v1 may \
             use these controllers"
        ))),
    }
}

/// The warning about a missing filter of bridges, if any. Nodes that are containers cannot load it.
fn check_bridge_filter(provisioner: Provisioner, parameters: &Path) -> Option<&'static str> {
    let is_missing = !matches!(provisioner, Provisioner::Qemu(_)) && !parameters.exists();
    is_missing.then_some(
        "the kernel module br_netfilter is not loaded, so pods cannot reach a Service whose pod runs on the same node; \
         call `modprobe br_netfilter`",
    )
}

fn wish(args: &ClusterCreate, provisioner: Provisioner) -> Result<Wish, Failure> {
    let real = |path: &PathBuf, flag: &str| {
        fs::canonicalize(path)
            .map_err(|error| Failure::usage(format!("{flag} {}: {error}", path.display())))
    };
    let cache = args.image_cache.as_ref();
    let image = match provisioner {
        // It may be a name.
        Provisioner::Docker => args.image.clone(),
        Provisioner::Namespaces | Provisioner::Qemu(_) => real(&args.image, "--image")?,
    };
    Ok(Wish {
        name: args.cluster.name.clone(),
        provisioner,
        image,
        image_cache: cache.map(|path| real(path, "--image-cache")).transpose()?,
        subnet: args.cidr,
        control_planes: args.controlplanes,
        workers: args.workers,
    })
}

/// How the nodes are made.
///
/// # Errors
/// A flag belongs to another provisioner.
fn provisioner(args: &ClusterCreate) -> Result<Provisioner, Failure> {
    let shape = &args.shape;
    let given = [
        ("--cpus", shape.cpus.is_some()),
        (
            "--memory-control-plane",
            shape.memory_control_plane.is_some(),
        ),
        ("--memory-worker", shape.memory_worker.is_some()),
        ("--disk-size", shape.disk_size.is_some()),
    ];
    let is_qemu = args.provisioner == args::Provisioner::Qemu;
    if let Some((flag, _)) = given.iter().find(|(_, given)| *given && !is_qemu) {
        return Err(Failure::usage(format!(
            "{flag}: containers share the processors, memory and disk of this machine; leave it out, or choose \
             --provisioner qemu"
        )));
    }
    let cache = args.image_cache.as_deref();
    match args.provisioner {
        args::Provisioner::Namespaces => Ok(Provisioner::Namespaces),
        args::Provisioner::Docker if cache.is_some_and(Path::is_file) => Err(Failure::usage(
            "--image-cache: Docker mounts a directory, not a file with a file system: extract it with unsquashfs",
        )),
        args::Provisioner::Docker => Ok(Provisioner::Docker),
        args::Provisioner::Qemu if cache.is_some() => Err(Failure::usage(
            "--image-cache: a virtual machine has the image cache of its disk image; build that with --with-images, and \
             leave the flag out",
        )),
        args::Provisioner::Qemu => Ok(Provisioner::Qemu(Shape {
            cpus: shape.cpus.unwrap_or(2),
            control_plane_mib: shape.memory_control_plane.unwrap_or(4096),
            worker_mib: shape.memory_worker.unwrap_or(2048),
            disk_mib: shape.disk_size.unwrap_or(16384),
        })),
    }
}

async fn make(
    (args, images): (&ClusterCreate, KubernetesImages),
    plan: &Plan,
    place: &Place,
    backend: &Backend,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let say = |text: &str| eprintln!("{:>4} s  {text}", begun.elapsed().as_secs());
    say("writing the secrets and configs of the cluster");
    configs::write((args, images), plan, place)?;
    say(&format!("making the network {}", plan.network()));
    backend.make(place, plan).await?;
    for one in &plan.nodes {
        say(&format!("starting {} at {}", one.name, one.address));
        backend.start(place, plan, one)?;
    }
    let limit = args.wait_timeout;
    for one in &plan.nodes {
        // A worker gets its certificate from a control plane node; those come first in the plan.
        let version = wait::api(place, backend, one, limit).await?;
        say(&format!("{} answers, version {version}", one.name));
    }
    if args.wait >= WaitFor::Bootstrapped {
        let first = plan.first()?;
        wait::bootstrap(place, backend, first, limit).await?;
        say(&format!("etcd starts on {}", first.name));
    }
    if args.wait >= WaitFor::Ready {
        wait::ready(plan, place, backend, limit, say).await?;
        say("every node is Ready");
    }
    Ok(print(&next(args, place))?)
}

/// The operator's next commands, one a line.
fn next(args: &ClusterCreate, place: &Place) -> String {
    let client = place.client_config();
    let mut lines = format!("cortenctl --cortenconfig {} version\n", client.display());
    if args.wait == WaitFor::Ready {
        let kubeconfig = place.kubeconfig();
        lines.push_str(&format!(
            "kubectl --kubeconfig {} get nodes\n",
            kubeconfig.display()
        ));
    }
    lines + &destroy::command(&args.cluster) + "\n"
}

/// Source of the Kubernetes images in the configs.
///
/// # Errors
/// Kubernetes is waited for, but the configs would name no images.
fn images(args: &ClusterCreate) -> Result<KubernetesImages, Failure> {
    let is_bundled = match args.provisioner {
        args::Provisioner::Namespaces | args::Provisioner::Docker => args.image_cache.is_some(),
        args::Provisioner::Qemu => args.kubernetes_version.is_none(),
    };
    let usual = match is_bundled {
        true => KubernetesImages::Bundled,
        false => KubernetesImages::Upstream,
    };
    let images = args.kubernetes_images.unwrap_or(usual);
    match (images, &args.kubernetes_version) {
        (KubernetesImages::Bundled, Some(_)) => Err(Failure::usage(
            "--kubernetes-version: bundled images have one version; leave it out, or choose --kubernetes-images upstream",
        )),
        (KubernetesImages::Upstream, None) if args.wait > WaitFor::Api => Err(Failure::usage(
            "nodes have no images of Kubernetes: give them with --image-cache, name upstream ones with \
             --kubernetes-version, or wait for the node API alone with --wait api",
        )),
        _ => Ok(images),
    }
}

/// Prints the last console lines of each node, before they are removed.
fn show_consoles(plan: &Plan, place: &Place, backend: &Backend) {
    for one in &plan.nodes {
        let lines = backend.last_lines(place, one, LAST_LINES);
        for line in lines.unwrap_or_default() {
            eprintln!("{}: {}", one.name, printable(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ClusterCreate,
    }

    fn args(line: &str) -> ClusterCreate {
        let words = ["create", "--image", "/i"].into_iter();
        let line = Line::try_parse_from(words.chain(line.split_whitespace()));
        line.unwrap().args
    }

    fn asked(line: &str) -> Result<KubernetesImages, Failure> {
        images(&args(line))
    }

    #[test]
    fn waiting_for_kubernetes_without_images_is_a_usage_error() {
        for line in [
            "",
            "--wait bootstrapped",
            "--image-cache /c --kubernetes-version 1.37.0",
        ] {
            assert!(matches!(asked(line), Err(Failure::Usage(_))), "{line}");
        }
        for (line, images) in [
            ("--wait api", KubernetesImages::Upstream),
            ("--kubernetes-version 1.37.0", KubernetesImages::Upstream),
            ("--image-cache /c", KubernetesImages::Bundled),
            ("--provisioner qemu", KubernetesImages::Bundled),
            (
                "--provisioner qemu --kubernetes-version 1.37.0",
                KubernetesImages::Upstream,
            ),
        ] {
            assert_eq!(asked(line).unwrap(), images, "{line}");
        }
    }

    #[test]
    fn flags_of_the_other_provisioner_are_usage_errors() {
        for (line, flag) in [
            ("--cpus 4", "--cpus"),
            ("--memory-worker 512", "--memory-worker"),
            ("--provisioner qemu --image-cache /c", "--image-cache"),
        ] {
            let Err(Failure::Usage(why)) = provisioner(&args(line)) else {
                panic!("{line}");
            };
            assert!(why.starts_with(flag), "{line}: {why}");
        }
        let made = provisioner(&args("--provisioner qemu --cpus 4 --memory-worker 512")).unwrap();
        let expected = Shape {
            cpus: 4,
            control_plane_mib: 4096,
            worker_mib: 512,
            disk_mib: 16384,
        };
        assert_eq!(made, Provisioner::Qemu(expected));
    }

    #[test]
    fn cluster_without_the_controllers_of_pods_is_refused_unless_it_needs_no_pods() {
        let warning = check_controllers(&["cpu", "memory"], WaitFor::Bootstrapped).unwrap();
        assert!(warning.unwrap().contains("cpu, memory"));
        let Err(Failure::Call(error)) = check_controllers(&["io", "memory"], WaitFor::Ready) else {
            panic!("no pod can start");
        };
        assert!(error.to_string().contains("cgroup_no_v1=all"), "{error}");
        // Only a limit is lost.
        assert!(
            check_controllers(&["io"], WaitFor::Ready)
                .unwrap()
                .is_some()
        );
        assert!(check_controllers(&[], WaitFor::Ready).unwrap().is_none());
    }

    #[test]
    fn missing_filter_of_bridges_is_named_unless_nodes_load_their_own() {
        let (missing, present) = (Path::new("/nonexistent"), Path::new("/"));
        let warning = check_bridge_filter(Provisioner::Docker, missing).unwrap();
        assert!(warning.contains("modprobe br_netfilter"), "{warning}");
        assert_eq!(check_bridge_filter(Provisioner::Namespaces, present), None);
        let machines = provisioner(&args("--provisioner qemu")).unwrap();
        assert_eq!(check_bridge_filter(machines, missing), None);
    }
}

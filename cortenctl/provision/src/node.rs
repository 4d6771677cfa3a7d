//! A node's processes on this machine. The outer process starts the container or the virtual machine, and waits for it.
//! The inner process of a container assembles the node's root file system and becomes its machined.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_client::failure::Failure;
use corten_sys::mount::{self, MountFlags};
use corten_sys::{container, loopdev};

use super::cgroups::Groups;
use super::network::Network;
use super::place::Place;
use super::plan::{NodePlan, Plan, Provisioner};
use super::vm;

/// Name of the link inside a node.
const LINK: &str = "eth0";
/// Path of machined in a node's root file system.
const INIT: &str = "/usr/bin/init";
/// Signal that the first process of a container dies of when it calls reboot(2) to restart (pid_namespaces(7)).
const RESTARTED: i32 = 1;
const SWITCHED_OFF: i32 = 2;
/// Limit of starts of a node that reboots: then it is not started again.
const MOST_RESTARTS: u32 = 20;

const STRICT: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// Devices of a container: those without state of the machine. The kernel log belongs to the machine, so the
/// container's is empty.
const DEVICES: [(&str, u32, u32); 9] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
    ("kmsg", 1, 3),
    ("fuse", 10, 229),
    ("tun", 10, 200),
];
/// Directories and links below `/dev`.
const DEVICE_DIRECTORIES: [&str; 3] = ["pts", "shm", "net"];
const DEVICE_LINKS: [(&str, &str); 6] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
    ("../tun", "net/tun"),
];

/// Arguments that both processes need.
struct Subject {
    place: Place,
    plan: Plan,
    node: NodePlan,
    groups: Groups,
}

fn subject(directory: PathBuf, name: &str) -> anyhow::Result<Subject> {
    let place = Place::at(directory);
    let plan = place.plan()?;
    let node = plan.nodes.iter().find(|node| node.name == name).cloned();
    Ok(Subject {
        node: node.with_context(|| {
            format!("the cluster has no node {name}: `cortenctl cluster show` lists its nodes")
        })?,
        groups: Groups::of(plan.cgroup())?,
        place,
        plan,
    })
}

/// The outer processes that this command started.
#[derive(Debug, Default)]
pub(super) struct Started(RefCell<BTreeMap<String, Child>>);

impl Started {
    /// Starts the outer process of a node, and returns at once.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start(&self, place: &Place, node: &NodePlan) -> anyhow::Result<()> {
        let child = start(place, node)?;
        self.0.borrow_mut().insert(node.name.clone(), child);
        Ok(())
    }

    /// Whether the node has ended and is not started again.
    pub(super) fn has_ended(&self, node: &str) -> bool {
        let mut all = self.0.borrow_mut();
        let child = all.get_mut(node);
        child.is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))))
    }
}

fn start(place: &Place, node: &NodePlan) -> anyhow::Result<Child> {
    let console = File::options()
        .append(true)
        .create(true)
        .open(place.console(node))?;
    // QEMU is a program of this machine.
    let path = std::env::var_os("PATH").unwrap_or_default();
    this_program("run-node", place.path(), &node.name)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console)
        .spawn()
        .with_context(|| format!("starting {}", node.name))
}

fn this_program(verb: &str, directory: &Path, node: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["cluster", verb])
        .arg(directory)
        .arg(node)
        .env_clear();
    command
}

/// The outer process: starts the node, a container again after each reboot, until the node shuts down.
///
/// # Errors
/// The node cannot be started, or it ends unlike a node.
pub(super) async fn outside(directory: PathBuf, name: &str) -> Result<(), Failure> {
    let subject = subject(directory, name)?;
    container::leave_terminal().context("leaving the terminal")?;
    if let Provisioner::Qemu(shape) = subject.plan.provisioner {
        let (groups, node) = (&subject.groups, &subject.node);
        // QEMU inherits the cgroup.
        groups.enter_node(name).context("entering the cgroup")?;
        vm::run(&subject.place, &subject.plan, node, shape).await?;
        eprintln!("{name}: shut down");
        return Ok(());
    }
    subject
        .groups
        .enter_starters()
        .context("entering the cgroup")?;
    for _ in 0..MOST_RESTARTS {
        subject.groups.renew(name)?;
        let status = once(&subject).await?;
        match status.signal() {
            Some(RESTARTED) => eprintln!("{name}: restarts"),
            Some(SWITCHED_OFF) => {
                eprintln!("{name}: shut down");
                return Ok(());
            }
            _ => return Err(Failure::call(format!("{name}: ended with {status}"))),
        }
    }
    Err(Failure::call(format!(
        "{name}: restarted {MOST_RESTARTS} times, and is not started again"
    )))
}

/// Runs the container once.
async fn once(subject: &Subject) -> anyhow::Result<ExitStatus> {
    let (plan, node) = (&subject.plan, &subject.node);
    let (told, start) = mpsc::channel();
    let (path, name) = (subject.place.path().to_owned(), node.name.clone());
    // The thread has namespaces of its own, and its children die with it; so it waits for the container.
    let thread = thread::spawn(move || -> anyhow::Result<ExitStatus> {
        container::separate().context("making namespaces")?;
        let mut child = this_program("enter-node", &path, &name)
            .stdin(Stdio::piped())
            .spawn()
            .context("starting the container")?;
        let _ = told.send((child.id(), child.stdin.take()));
        end_of(&mut child)
    });
    let begun = tokio::task::spawn_blocking(move || start.recv()).await?;
    if let Ok((pid, Some(mut stdin))) = begun {
        let network = Network::open()?;
        network.remove(&node.link).await?;
        // Unique on this machine, until the link is in the node's namespace.
        let inside = format!("{}i", node.link);
        network
            .add_cable(&node.link, &plan.bridge, &inside, pid)
            .await?;
        stdin
            .write_all(b"\n")
            .context("signalling the container to continue")?;
    }
    let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
    ended.map_err(|_| anyhow!("the thread of the container panicked"))?
}

fn end_of(child: &mut Child) -> anyhow::Result<ExitStatus> {
    child.wait().context("waiting for the container")
}

/// The inner process, the first of the container: becomes the node's machined.
///
/// # Errors
/// The root file system cannot be assembled; the outer process shows the error.
pub(super) async fn inside(directory: PathBuf, name: &str) -> Result<(), Failure> {
    if std::process::id() != 1 {
        return Err(Failure::usage(
            "only `cortenctl cluster create` runs this verb, as the first process of a container",
        ));
    }
    container::die_with_parent()
        .context("binding the container to the life of the outer process")?;
    // Wait until the outer process has moved the link inside.
    let mut go = [0];
    io::stdin()
        .read_exact(&mut go)
        .context("the outer process has ended")?;
    let subject = subject(directory, name)?;
    let node = &subject.node;
    subject
        .groups
        .enter_node(&node.name)
        .context("entering the cgroup")?;
    container::separate_cgroups().context("making a cgroup namespace")?;
    corten_sys::host::set_hostname(&node.name).context("setting the host name")?;
    connect(&subject).await.context("setting up the network")?;
    container::separate_mounts().context("separating mounts")?;
    let config = fs::read(subject.place.config(node));
    let config = config.context("reading the machine config")?;
    let root = assemble(&subject)?;
    container::enter_root(&root).context("entering the root")?;
    let error = Command::new(INIT)
        .arg0("/sbin/init")
        .env_clear()
        .env("PATH", "/usr/bin")
        .env("PLATFORM", "container")
        .env("USERDATA", STANDARD.encode(config))
        .stdin(Stdio::null())
        .exec();
    Err(Failure::call(format!("{INIT}: {error}")))
}

async fn connect(subject: &Subject) -> anyhow::Result<()> {
    let (plan, node) = (&subject.plan, &subject.node);
    let network = Network::open()?;
    network.rename(&format!("{}i", node.link), LINK).await?;
    network.set_up("lo").await?;
    network.configure(LINK, node.address, plan.prefix).await?;
    network.route_through(plan.gateway).await
}

/// Mounts the node's root file system, and the file systems in it.
fn assemble(subject: &Subject) -> anyhow::Result<PathBuf> {
    let own = subject.place.node(&subject.node);
    let root = own.join("root");
    let at = |path: &str| root.join(path);
    let read_only = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_image(&subject.plan.image, &root, read_only)?;
    let made = |target: &str, kind: &str, flags: MountFlags, data: &str| {
        mount::mount(Path::new(kind), &at(target), kind, flags, data)
            .with_context(|| format!("mounting {kind} on /{target} of the node"))
    };
    made("dev", "tmpfs", MountFlags::NOSUID, "mode=0755,size=64m")?;
    make_devices(&at("dev")).context("making the node's devices")?;
    made("proc", "proc", STRICT, "")?;
    made("sys", "sysfs", STRICT, "")?;
    made("run", "tmpfs", STRICT, "mode=0755")?;
    for (name, target, flags) in [
        ("state", "system/state", STRICT),
        ("var", "var", MountFlags::NOSUID | MountFlags::NODEV),
    ] {
        bind(&own.join(name), &at(target), flags)?;
    }
    if let Some(cache) = &subject.plan.image_cache {
        mount_image(cache, &at("system/imagecache"), MountFlags::RDONLY | STRICT)?;
    }
    Ok(root)
}

/// Mounts a file with a file system, or a directory.
fn mount_image(image: &Path, target: &Path, flags: MountFlags) -> anyhow::Result<()> {
    if image.is_dir() {
        return bind(image, target, flags);
    }
    let shown = || image.display().to_string();
    let (device, _held) = loopdev::attach_read_only(image).with_context(shown)?;
    let mut why = Vec::new();
    for kind in ["squashfs", "ext4"] {
        match mount::mount(&device, target, kind, flags, "") {
            Ok(()) => return Ok(()),
            Err(error) => why.push(format!("{kind}: {error}")),
        }
    }
    Err(anyhow!(
        "{} cannot be mounted ({})",
        shown(),
        why.join(", ")
    ))
}

fn bind(source: &Path, target: &Path, flags: MountFlags) -> anyhow::Result<()> {
    let bound = mount::mount(source, target, "", MountFlags::BIND, "");
    let bound = bound.and_then(|()| mount::remount(target, MountFlags::BIND | flags));
    bound.with_context(|| format!("mounting {} in the node", source.display()))
}

fn make_devices(dev: &Path) -> io::Result<()> {
    for directory in DEVICE_DIRECTORIES {
        fs::create_dir(dev.join(directory))?;
    }
    for (name, major, minor) in DEVICES {
        container::make_device(&dev.join(name), major, minor)?;
    }
    for (target, link) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, dev.join(link))?;
    }
    Ok(())
}

//! Network and mount namespaces for tests on the real kernel.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing step is a failing test"
)]

use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use futures_util::TryStreamExt as _;
use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, setns, unshare};
use rtnetlink::{Handle, LinkUnspec, LinkVeth};

/// Runs a test in a network namespace of its own. Without the privilege for one the test is skipped, with a message
/// that cargo does not capture.
pub fn alone(test: impl Future<Output = ()>) {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => block_on(test),
        Err(Errno::EPERM) => skip("a network namespace: run as root, or under `unshare -Ur`"),
        Err(error) => panic!("no network namespace: {error}"),
    }
}

/// Runs a test with a private tmpfs volume, in a mount namespace of its own; `options` are mount options (tmpfs(5)).
/// Without the privilege for one the test is skipped.
pub fn on_a_volume(options: &str, test: impl FnOnce(&Path) + Send) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let alone = || {
        match unshare(CloneFlags::CLONE_NEWNS) {
            Ok(()) => {}
            Err(Errno::EPERM) => {
                return skip("a mount namespace: run as root, or under `unshare -Ur`");
            }
            Err(error) => panic!("no mount namespace: {error}"),
        }
        let none: Option<&str> = None;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        nix::mount::mount(none, "/", none, private, none).unwrap();
        nix::mount::mount(none, path, Some("tmpfs"), MsFlags::empty(), Some(options)).unwrap();
        test(path);
    };
    let name = thread::current().name().unwrap_or_default().to_owned();
    // The namespace and its mounts end with the thread.
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name);
        thread.spawn_scoped(scope, alone).unwrap().join().unwrap();
    });
}

/// A loop device on a file; detached on drop.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches the file; `None`, with a message, if this host has no loop devices.
    pub fn of(image: &Path) -> Option<LoopDevice> {
        let attached = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output();
        match attached {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                Some(LoopDevice(path.into()))
            }
            _ => {
                kernel_lacks("loop devices");
                None
            }
        }
    }

    /// Path of the device.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Updates the size of the device to that of the file.
    pub fn resize(&self) {
        self.losetup("--set-capacity");
    }

    fn losetup(&self, act: &str) {
        let done = Command::new("losetup").arg(act).arg(&self.0).status();
        assert!(done.unwrap().success(), "losetup {act}");
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.losetup("--detach");
    }
}

/// Reports on the real standard error that this test, or a part of it, did not run. Where tests must not be skipped, as
/// in CI, it panics.
pub fn skip(needed: &str) {
    assert!(
        std::env::var_os("CORTEN_NO_SKIP").is_none(),
        "needs {needed}"
    );
    say(needed);
}

/// Same as [`skip`], for a feature that this host's kernel lacks, and never panics. A test that boots the image's
/// kernel covers the feature.
pub fn kernel_lacks(needed: &str) {
    say(&format!("a kernel with {needed}"));
}

fn say(needed: &str) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    let text = format!("\nSKIPPED in {name}: needs {needed}\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(task)
}

/// Another machine: a network namespace in which a test can act.
#[derive(Debug)]
pub struct Neighbour(pub File);

impl Neighbour {
    /// Creates a network namespace.
    #[expect(clippy::new_without_default, reason = "it makes a namespace")]
    pub fn new() -> Neighbour {
        let namespace = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Neighbour(namespace.join().unwrap())
    }

    /// Runs a closure there; it must need no runtime or bring its own.
    pub fn acts<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let act = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            what()
        };
        thread::scope(|scope| scope.spawn(act).join().unwrap())
    }

    /// Same as [`Neighbour::acts`], with a netlink handle.
    pub fn asks(&self, what: impl AsyncFnOnce(Handle) + Send) {
        self.acts(|| block_on(async { what(kernel()).await }));
    }
}

/// A netlink handle in the current namespace.
pub fn kernel() -> Handle {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    handle
}

/// A veth pair to a neighbour: `plug` is here, with this hardware address, and `far` is there.
pub async fn cable(mac: [u8; 6]) -> Neighbour {
    let handle = kernel();
    let veth = LinkVeth::new("plug", "far").address(mac.to_vec()).build();
    handle.link().add(veth).execute().await.unwrap();
    let neighbour = Neighbour::new();
    let moved = LinkUnspec::new_with_name("far").setns_by_fd(neighbour.0.as_raw_fd());
    handle.link().set(moved.build()).execute().await.unwrap();
    neighbour
}

/// Adds addresses with the usual prefix lengths to a link and brings it up.
pub async fn give(handle: &Handle, link: &str, addresses: &[&str]) {
    let found = handle.link().get().match_name(link.to_owned()).execute();
    let found: Vec<_> = found.try_collect().await.unwrap();
    let index = found[0].header.index;
    for address in addresses {
        let address: IpAddr = address.parse().unwrap();
        let length = if address.is_ipv4() { 24 } else { 64 };
        let add = handle.address().add(index, address, length);
        add.execute().await.unwrap();
    }
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await.unwrap();
}

//! Tests against a real containerd (`make test-containerd`): `CORTEN_GO` is the output of the build step "go". Requires
//! root; tests that run containers also need a host whose C library is at least as new as the image's. The pull uses
//! the registry of the image cache, which `CORTEN_NODE`, the program with the daemons, serves.

mod config;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use corten_base::events::Events;
use corten_base::testing::skip;
use corten_config::registries::Registries;
use corten_extension::archive::testing::{Image, PLAIN, digest as content_digest, file, tar};
use corten_extension::archive::{self, Wanted};
use corten_supervisor::health::{HealthCheck, Probe};
use corten_supervisor::supervisor::container::{Bundle, Runtime};
use corten_supervisor::supervisor::limits::{Backoff, Limits, Restart, Start};
use corten_supervisor::supervisor::{Outside, Places, Supervisor, logs};
use corten_supervisor::view::Control;
use corten_supervisor::{Container, Mount, Root, Runner, ServiceSpec};
use corten_sys::child::CapabilitySet;
use corten_sys::process::Signal;
use tokio::time::{sleep, timeout};

use super::*;

const PATIENCE: Duration = Duration::from_secs(120);
/// Prints its privileges, and exits on SIGTERM.
const PROGRAM: &str = "trap 'echo bye; exit 5' TERM
grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status
touch /written 2>/dev/null && echo writable || echo read-only
cat /proc/self/oom_score_adj
echo up; while :; do sleep 1; done";

struct Daemon {
    programs: PathBuf,
    directory: PathBuf,
    child: Child,
}

impl Daemon {
    fn start(programs: PathBuf, directory: PathBuf) -> Daemon {
        let child = Daemon::spawn(&programs, &directory);
        Daemon {
            programs,
            directory,
            child,
        }
    }

    fn spawn(programs: &Path, directory: &Path) -> Child {
        let log = std::fs::File::create(directory.join("log")).unwrap();
        std::fs::write(directory.join("config.toml"), "version = 3\n").unwrap();
        Command::new(programs.join("containerd"))
            .arg("--config")
            .arg(directory.join("config.toml"))
            .arg("--address")
            .arg(directory.join("sock"))
            .arg("--state")
            .arg(directory.join("state"))
            .arg("--root")
            .arg(directory.join("root"))
            .env(
                "PATH",
                format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display()),
            )
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Kills the process without warning, as the kernel's OOM killer does.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = Daemon::spawn(&self.programs, &self.directory);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that is killed when the test ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn bundle(directory: &Path) -> Bundle {
    let seen = |path: &str| Mount {
        destination: path.to_owned(),
        source: path.to_owned(),
        kind: "bind".to_owned(),
        options: vec!["rbind".to_owned(), "ro".to_owned()],
    };
    let make = |name: &str| {
        let path = directory.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let output = directory.join("output");
    std::fs::write(&output, "").unwrap();
    Bundle {
        container: Container {
            root: Root::Directory(make("lower")),
            writable_root: false,
            host_processes: false,
            writable_sysfs: false,
            args: ["/usr/bin/sh", "-c", PROGRAM].map(str::to_owned).to_vec(),
            environment: Vec::new(),
            environment_file: None,
            mounts: ["/usr", "/lib", "/lib64"].map(seen).to_vec(),
            masked_paths: None,
            readonly_paths: None,
            propagation: "rslave".to_owned(),
            uid: 0,
            capabilities: CapabilitySet::CHOWN,
            memory_max: None,
            log_to_console: false,
        },
        environment: vec!["PATH=/usr/bin".to_owned()],
        oom_score_adj: 321,
        cgroup: "corten-test/x".to_owned(),
        upper: make("upper"),
        work: make("work"),
        output,
    }
}

async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let reached = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let reached = timeout(PATIENCE, reached).await;
    reached.unwrap_or_else(|_| panic!("{what} does not happen"))
}

fn step() -> PathBuf {
    let step =
        std::env::var_os("CORTEN_GO").expect("CORTEN_GO names the output of the step \"go\"");
    step.into()
}

/// The same, if runc runs here: it is not linked statically.
fn step_with_runc() -> Option<PathBuf> {
    let step = step();
    let mut runc = Command::new(step.join("runc"));
    let runc = runc.arg("--version").stdout(Stdio::null());
    if !runc.status().unwrap().success() {
        skip("a C library at least as new as the image's");
        return None;
    }
    Some(step)
}

#[tokio::test]
#[ignore = "needs root and CORTEN_GO, the output of the step that builds containerd"]
async fn real_containerd_runs_takes_over_and_removes_a_container() {
    let Some(step) = step_with_runc() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(step, directory.path().to_owned());
    let containerd = Containerd::new(&directory.path().join("sock"));
    let bundle = bundle(directory.path());
    let start = || async { containerd.start("x", &bundle).await.ok() };
    let first = eventually("the start", start).await;
    assert!(!first.taken_over);
    let check = HealthCheck {
        probe: Probe::Grpc(directory.path().join("sock")),
        initial_delay: PATIENCE,
        interval: PATIENCE,
        timeout: PATIENCE,
        restart_after: None,
    };
    assert_eq!(check.run().await, Ok(()));
    let said = || async {
        let text = std::fs::read_to_string(&bundle.output).unwrap();
        text.ends_with("up\n").then_some(text)
    };
    let text = eventually("its first words", said).await;
    let wanted = "CapEff:\t0000000000000001\nNoNewPrivs:\t1\nSeccomp:\t2\nread-only\n321\nup\n";
    assert_eq!(text, wanted);

    daemon.kill();
    check.run().await.unwrap_err();
    containerd.wait("x").await.unwrap_err();
    daemon.start_again();
    let left = bundle.upper.join("left");
    std::fs::write(&left, "").unwrap();
    let again = eventually("the take-over", start).await;
    assert_eq!((again.pid, again.taken_over), (first.pid, true));
    assert!(left.exists());

    let asked = containerd.clone();
    let ended = tokio::spawn(async move { asked.wait("x").await });
    containerd.signal("x", Signal::TERM).await.unwrap();
    assert_eq!(timeout(PATIENCE, ended).await.unwrap().unwrap().unwrap(), 5);
    // A stopped container is replaced, and its writes go with it.
    let third = containerd.start("x", &bundle).await.unwrap();
    assert!(!third.taken_over && third.pid != first.pid);
    assert!(!left.exists());

    let kept = containerd.remove_others(|id| id == "x").await.unwrap();
    assert!(kept.is_empty(), "{kept:?}");
    assert_eq!(containerd.remove_others(|_| false).await.unwrap(), ["x"]);
    assert!(containerd.containers(SYSTEM).await.unwrap().is_empty());
    containerd.remove("x").await.unwrap();
    let gone = containerd.wait("x").await.unwrap_err();
    assert_eq!(gone.code(), tonic::Code::NotFound);
    assert!(
        std::fs::read_to_string(&bundle.output)
            .unwrap()
            .contains("bye\n")
    );
}

#[tokio::test]
#[ignore = "needs root and CORTEN_GO, the output of the step that builds containerd"]
async fn service_in_a_real_container_logs_and_outlives_containerd() {
    let Some(step) = step_with_runc() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let bundle = bundle(directory.path());
    let places = Places {
        cgroups: directory.path().join("cgroup"),
        notify: directory.path().join("notify"),
        stage: directory.path().join("stage"),
        containers: directory.path().join("containers"),
    };
    let outside = Outside {
        runtime: Arc::new(Containerd::new(&directory.path().join("sock"))),
        reap: || Ok(None),
    };
    let (sender, mut lines) = logs::queue();
    let supervisor =
        Supervisor::new(Vec::new(), places, outside, sender, Events::default()).unwrap();
    supervisor.declare(ServiceSpec {
        id: "y".into(),
        runner: Runner::Container(Box::new(bundle.container)),
        depends_on: Vec::new(),
        needs: Vec::new(),
        limits: Limits {
            start: Start::AtOnce,
            ready: Some(PATIENCE),
            health: None,
            stop: PATIENCE,
            restart: Restart::Always,
            backoff: Backoff {
                first: Duration::from_millis(100),
                longest: Duration::from_millis(100),
                forgiven_after: PATIENCE,
            },
        },
        oom_score_adj: 321,
        cgroup: "corten-test/y".to_owned(),
    });
    // The supervisor retries until containerd runs.
    let mut daemon = Daemon::start(step, directory.path().to_owned());
    let mut until_said = async |words: &str| {
        let said = async { while lines.next_line().await.1 != words {} };
        timeout(PATIENCE, said).await.unwrap();
    };
    until_said("up").await;
    daemon.kill();
    daemon.start_again();
    let stopped = supervisor.control("y", Control::Stop);
    timeout(PATIENCE, stopped).await.unwrap().unwrap();
    until_said("bye").await;
    let views = supervisor.views();
    let last = views[0].events.last().unwrap();
    assert_eq!(last.message, "Service finished: exit code 5");
}

/// A registry with the images of a cache, which `hosts` names for all names.
fn registry(node: &OsStr, cache: &Path, hosts: &Path) -> Program {
    let registry = Command::new(node)
        .args(["registryd", "serve", "--listen", "127.0.0.1:3199", "--root"])
        .arg(cache)
        .spawn()
        .unwrap();
    std::fs::create_dir_all(hosts.join("_default")).unwrap();
    let text = "[host.\"http://127.0.0.1:3199\"]\ncapabilities = [\"pull\", \"resolve\"]\n";
    std::fs::write(hosts.join("_default/hosts.toml"), text).unwrap();
    Program(registry)
}

#[tokio::test]
#[ignore = "needs root, CORTEN_GO, the output of the step that builds containerd, and CORTEN_NODE"]
async fn extension_is_pulled_kept_unchanged_and_removed() {
    let node = std::env::var_os("CORTEN_NODE").expect("CORTEN_NODE names the daemons' program");
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let manifest = "version: v1alpha1\nmetadata: {name: hello, version: '1'}\n";
    let layer = tar(&[
        file("manifest.yaml", manifest),
        file("rootfs/usr/local/a", "x"),
    ]);
    let mut image = Image::default();
    let digest = image.add(corten_api::ARCH, &[(PLAIN, layer)]);
    let cache = at("cache");
    let kept = cache.join("manifests/registry.example.org/team/hello/digest");
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::create_dir_all(cache.join("blob")).unwrap();
    for blob in &image.blobs {
        let name = content_digest(blob);
        let place = if name == digest {
            kept.join(&name)
        } else {
            cache.join("blob").join(&name)
        };
        std::fs::write(place, blob).unwrap();
    }
    let hosts = at("hosts");
    let registry = registry(&node, &cache, &hosts);

    let _daemon = Daemon::start(step(), directory.path().to_owned());
    let containerd = Containerd {
        socket: at("sock"),
        hosts,
    };
    let listens = || async { containerd.has_image(SYSTEM, &digest).await.ok() };
    assert!(!eventually("containerd", listens).await);
    let name = format!("registry.example.org/team/hello@{digest}");
    let none = Registries::default();
    let pull = async |purpose| {
        let (steps, _) = tokio::sync::mpsc::channel(1);
        let pulled = containerd.pull(SYSTEM, &name, purpose, &none, steps);
        timeout(PATIENCE, pulled).await.unwrap().unwrap();
        containerd.image(SYSTEM, &name).await.unwrap().unwrap()
    };
    let installer = pull(Purpose::Installer).await;
    assert!(installer.is_pulled_installer() && installer.digest == digest);
    let kept = [name.clone()];
    containerd
        .remove_digest(SYSTEM, &digest, &kept)
        .await
        .unwrap();
    // Another pull of the same name replaces the labels and the time.
    let extension = pull(Purpose::Extension).await;
    assert!(!extension.is_pulled_installer() && extension.updated > installer.updated);
    assert_eq!(extension.created, installer.created);
    containerd
        .remove_digest(SYSTEM, &digest, &[])
        .await
        .unwrap();
    assert!(containerd.image(SYSTEM, &name).await.unwrap().is_none());
    pull(Purpose::Extension).await;
    drop(registry);
    assert!(containerd.has_image(SYSTEM, &digest).await.unwrap());

    let scratch = at("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let wanted = Wanted {
        architecture: corten_api::ARCH,
        digest: Some(&digest),
    };
    let store = at("root/io.containerd.content.v1.content");
    let found = archive::read(&store, wanted, &scratch).unwrap();
    assert_eq!(found.manifest.metadata.name, "hello");

    containerd
        .remove_other_extensions(&[&digest])
        .await
        .unwrap();
    assert!(containerd.has_image(SYSTEM, &digest).await.unwrap());
    containerd.remove_other_extensions(&[]).await.unwrap();
    assert!(!containerd.has_image(SYSTEM, &digest).await.unwrap());
}

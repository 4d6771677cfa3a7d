//! The supervisor with real children. Each test has a process of its own, because reaping takes every child of the
//! process.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corten_base::alone::in_a_process;
use corten_base::panics;
use corten_base::testing::skip;
use corten_sys::child::CapabilitySet;
use corten_sys::process as sys;
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, waitpid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Handle};
use tokio::time::{sleep, timeout};

use super::limits::{Backoff, Limits, Restart, Start};
use super::testing::{Fake, spec};
use super::*;
use crate::view::ServiceState;
use crate::{Process, Runner, SystemCalls, TOOLS_CGROUP, Tool, tool as named};

/// A test that waits this long waits for an event that never comes.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs a test of this module in a process and a runtime of its own.
fn alone(test: &str, body: impl AsyncFnOnce()) {
    if !rustix::process::geteuid().is_root() {
        return skip("root, to confine children");
    }
    in_a_process(&format!("supervisor::real_tests::{test}"), || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(body());
    });
}

struct World {
    supervisor: Supervisor,
    places: Places,
    directory: tempfile::TempDir,
}

fn world(reap: fn() -> std::io::Result<Option<Reaped>>) -> World {
    let directory = tempfile::tempdir().unwrap();
    let places = Places {
        cgroups: directory.path().join("cgroup"),
        notify: directory.path().join("notify"),
        stage: directory.path().join("stage"),
        containers: directory.path().join("containers"),
    };
    for cgroup in [TOOLS_CGROUP, "system/x"] {
        fs::create_dir_all(places.cgroups.join(cgroup)).unwrap();
        fs::write(places.cgroups.join(cgroup).join("cgroup.procs"), "").unwrap();
    }
    let runtime = Arc::new(Fake::default());
    let outside = Outside { runtime, reap };
    let (logs, _) = logs::queue();
    let supervisor =
        Supervisor::new(Vec::new(), places.clone(), outside, logs, Events::default()).unwrap();
    World {
        supervisor,
        places,
        directory,
    }
}

/// A service "x" that restarts immediately, forever.
fn service(argv: &[&str]) -> ServiceSpec {
    ServiceSpec {
        runner: Runner::Process(Process {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            uid: 0,
            capabilities: CapabilitySet::empty(),
            no_new_privs: true,
            env: Vec::new(),
            system_calls: SystemCalls::All,
            sandbox: None,
        }),
        limits: Limits {
            start: Start::AtOnce,
            ready: None,
            health: None,
            stop: DEADLINE,
            restart: Restart::Always,
            backoff: Backoff {
                first: Duration::ZERO,
                longest: Duration::from_millis(10),
                forgiven_after: Duration::ZERO,
            },
        },
        ..spec("x")
    }
}

impl World {
    async fn until(&self, what: &str, is: impl Fn(&ServiceView) -> bool) {
        let mut views = self.supervisor.watch();
        let reached = views.wait_for(|views| views.iter().any(&is));
        let reached = timeout(DEADLINE, reached).await.map(drop);
        assert!(reached.is_ok(), "{what}: {:?}", self.supervisor.views());
    }

    async fn stopped(&self) {
        self.supervisor.stop("x");
        let finished = |view: &ServiceView| view.state == ServiceState::Finished;
        self.until("finished", finished).await;
    }

    /// Runs a tool that is not in the table.
    async fn run(&self, tool: Tool, arguments: &[&str]) -> Result<(), String> {
        let (done, ended) = oneshot::channel();
        let arguments = arguments.iter().map(|&word| Argument::word(word)).collect();
        let job = tool::Job {
            tool,
            arguments,
            done,
        };
        self.supervisor.orders.send(Order::Run(job)).unwrap();
        timeout(DEADLINE, ended).await.unwrap().unwrap()
    }
}

async fn until(is: impl Fn() -> bool) {
    let reached = async {
        while !is() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, reached).await.unwrap();
}

/// Asserts that there is no child, dead or alive.
fn assert_no_child() {
    let any = waitpid(None, Some(WaitPidFlag::WNOHANG));
    assert_eq!(any, Err(Errno::ECHILD));
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// All paths below a directory.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            left.extend(path.is_dir().then(|| path.clone()));
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Number of open file descriptors of this process.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Resident memory of this process in bytes (proc_pid_statm(5)).
fn memory() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

#[test]
fn thousand_restarts_leak_no_resources() {
    alone("thousand_restarts_leak_no_resources", async || {
        let world = world(sys::reap);
        let starts = world.directory.path().join("starts");
        let script = format!("echo >> {}", starts.display());
        let counted = || fs::metadata(&starts).map_or(0, |data| data.len());
        // The supervisor's task, and the listener on the notify socket.
        let at_rest = || tasks() == 2;
        world
            .supervisor
            .declare(service(&["/bin/sh", "-c", &script]));
        until(|| counted() >= 100).await;
        world.stopped().await;
        until(at_rest).await;
        let before = (descriptors(), entries(world.directory.path()));
        let memory_before = memory();
        world.supervisor.start("x");
        until(|| counted() >= 1100).await;
        world.stopped().await;
        until(at_rest).await;
        assert_no_child();
        let after = (descriptors(), entries(world.directory.path()));
        assert_eq!(after, before);
        let history = world.supervisor.views()[0].events.len();
        assert!(history <= 64, "{history}");
        // A leak of two KiB per start would exceed this; the allocator itself keeps up to one MiB on a busy host.
        let grown = memory().saturating_sub(memory_before);
        assert!(grown < 2 << 20, "{grown} bytes");
    });
}

#[test]
fn descriptor_exhaustion_delays_a_service_start_and_is_reported() {
    let name = "descriptor_exhaustion_delays_a_service_start_and_is_reported";
    alone(name, async || {
        let world = world(sys::reap);
        let limit = getrlimit(Resource::Nofile);
        let none = Rlimit {
            current: Some(0),
            ..limit
        };
        setrlimit(Resource::Nofile, none).unwrap();
        world.supervisor.declare(service(&["/bin/sleep", "1000"]));
        let told = |view: &ServiceView| {
            view.events.iter().any(|event| {
                event.message.contains("Too many open files")
                    && event.message.contains("starting again in")
            })
        };
        world.until("told", told).await;
        setrlimit(Resource::Nofile, limit).unwrap();
        world.until("up", |view| view.healthy == Some(true)).await;
        world.stopped().await;
        assert_no_child();
    });
}

#[test]
fn failed_start_leaves_no_child_process() {
    alone("failed_start_leaves_no_child_process", async || {
        let world = world(|| Ok(None));
        let spec = service(&["/bin/sleep", "1000"]);
        let Runner::Process(process) = &spec.runner else {
            panic!("{spec:?}")
        };
        let (logs, _queue) = logs::queue();
        let limit = getrlimit(Resource::Nofile);
        let mut refused = 0;
        let pid = loop {
            // Each required file descriptor is once the first that is missing.
            let fewer = Rlimit {
                current: Some(3 + refused),
                ..limit
            };
            setrlimit(Resource::Nofile, fewer).unwrap();
            let started = process::spawn(&spec, process, None, &world.places, &logs);
            setrlimit(Resource::Nofile, limit).unwrap();
            match started {
                Ok(pid) => break pid,
                Err(error) => {
                    let number = error.raw_os_error().or_else(|| {
                        let emfile = error.to_string().contains("Too many open files");
                        emfile.then_some(Errno::EMFILE as i32)
                    });
                    assert_eq!(number, Some(Errno::EMFILE as i32), "{error}");
                    assert_no_child();
                    refused += 1;
                }
            }
        };
        assert!(refused > 5, "{refused}");
        sys::signal(pid, sys::Signal::KILL).unwrap();
        waitpid(None, None).unwrap();
        assert_no_child();
    });
}

#[test]
fn hung_tool_is_killed_and_a_failing_tool_reports_the_reason() {
    let name = "hung_tool_is_killed_and_a_failing_tool_reports_the_reason";
    alone(name, async || {
        let world = world(sys::reap);
        let tool = |program| Tool {
            program,
            time: DEADLINE,
            ..named("mkfs.xfs").unwrap()
        };
        world.run(tool("true"), &[]).await.unwrap();
        let procs = world.places.cgroups.join(TOOLS_CGROUP).join("cgroup.procs");
        assert_eq!(fs::read_to_string(procs).unwrap(), "0", "its cgroup");
        let failed = world.run(tool("ls"), &["/no/such"]).await.unwrap_err();
        let wanted = "ls ended with exit code 2: ";
        assert!(failed.starts_with(wanted), "{failed}");
        assert!(failed.contains("/no/such"), "{failed}");
        let hangs = Tool {
            time: Duration::from_millis(50),
            ..tool("sleep")
        };
        let killed = world.run(hangs, &["1000"]).await.unwrap_err();
        let wanted = "sleep was killed after its timeout of 0.05 s";
        assert!(killed.starts_with(wanted), "{killed}");
        let missing = world.run(tool("no-such-tool"), &[]).await.unwrap_err();
        assert!(missing.starts_with("cannot run no-such-tool"), "{missing}");
        let unknown = world.supervisor.run("sh", Vec::new()).await.unwrap_err();
        assert_eq!(unknown, "sh is not declared");
        until(|| tasks() == 1).await;
        assert_no_child();
    });
}

#[test]
fn crashed_supervisor_is_noticed_and_blocks_no_caller() {
    let name = "crashed_supervisor_is_noticed_and_blocks_no_caller";
    alone(name, async || {
        panics::install_hook();
        let world = world(|| panic!("a bug"));
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGCHLD).unwrap();
        let ends = async {
            world.supervisor.lost().await;
            let silence = timeout(Duration::from_millis(50), world.supervisor.answers());
            silence.await.unwrap_err();
            world.supervisor.stop_all().await;
            world
                .supervisor
                .run("mkfs.xfs", Vec::new())
                .await
                .unwrap_err();
        };
        timeout(DEADLINE, ends).await.unwrap();
    });
}

#[test]
fn on_demand_process_gets_the_socket_when_a_client_connects() {
    alone(
        "on_demand_process_gets_the_socket_when_a_client_connects",
        async || {
            let world = world(sys::reap);
            let seen = world.directory.path().join("seen");
            let script = format!("ls -l /proc/self/fd/0 >> {}", seen.display());
            let mut spec = service(&["/usr/bin/sh", "-c", &script]);
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            spec.limits.start = Start::OnDemand(address);
            world.supervisor.declare(spec);
            let listens =
                |view: &ServiceView| view.state == ServiceState::Running && view.pid.is_none();
            world.until("listening", listens).await;
            assert!(!seen.exists());
            // The script accepts nothing, so the connection starts it again.
            let _client = TcpStream::connect(address).unwrap();
            let lines = || fs::read_to_string(&seen).map_or(0, |text| text.lines().count());
            until(|| lines() > 1).await;
            assert!(fs::read_to_string(&seen).unwrap().contains("socket:"));
            world.stopped().await;
            TcpListener::bind(address).unwrap();
        },
    );
}

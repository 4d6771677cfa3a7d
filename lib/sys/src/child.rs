//! Starting a child with less than its parent has: user, capabilities, cgroup, OOM score, files, system calls.
#![expect(
    unsafe_code,
    reason = "what happens between fork and exec is set by CommandExt::pre_exec"
)]

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitySets;

use crate::sandbox::{Root, Sandbox};
use crate::seccomp::Filter;

pub use rustix::thread::CapabilitySet;

/// What a child may do and where it lives.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// User id.
    pub uid: u32,
    /// Group id; there are no supplementary groups.
    pub gid: u32,
    /// Every capability it, or anything it starts, can ever have.
    pub capabilities: CapabilitySet,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privs: bool,
    /// `/proc/self/oom_score_adj`, -1000..=1000.
    pub oom_score_adj: i32,
    /// The `cgroup.procs` file of its cgroup.
    pub cgroup_procs: Option<PathBuf>,
    /// It is in a network namespace of its own, where nothing is: no address, no link that is up, nobody to talk to.
    pub own_network: bool,
    /// The files it sees; `None`: all of its parent's.
    pub root: Option<Root>,
    /// The system calls it may make; `None`: all.
    pub system_calls: Option<Filter>,
}

/// Where a child's words go: the ends of pipes, made by who reads the others, so that nothing can fail any more
/// once the child is there.
#[derive(Debug)]
pub struct Output {
    /// For its standard output.
    pub stdout: OwnedFd,
    /// For its standard error.
    pub stderr: OwnedFd,
}

/// Starts `program` in a session of its own, with only `environment` and input from /dev/null. Returns once the
/// program has replaced the fork, so a missing file is an error here: its process id, which is also its session's
/// and process group's. Nothing ends it; reap it with [`crate::process::reap`].
///
/// # Errors
/// The program cannot be run, or a confinement cannot be applied (then nothing is started).
pub fn start(
    program: &OsString,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    output: Output,
    confinement: &Confinement,
) -> io::Result<u32> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output.stdout)
        .stderr(output.stderr);
    let mut prepared = Prepared::new(confinement)?;
    // SAFETY: between fork and exec of a threaded process only async-signal-safe work is allowed:
    // Prepared::apply makes plain syscalls on values and descriptors made before the fork, and
    // allocates nothing.
    unsafe { command.pre_exec(move || prepared.apply()) };
    Ok(command.spawn()?.id())
}

/// All that must exist before the fork.
struct Prepared {
    cgroup_procs: Option<File>,
    oom_score_adj: String,
    uid: Uid,
    gid: Gid,
    keep: CapabilitySet,
    no_new_privs: bool,
    own_network: bool,
    sandbox: Option<Sandbox>,
    system_calls: Option<Filter>,
}

impl Prepared {
    fn new(confinement: &Confinement) -> io::Result<Prepared> {
        let open = |path: &PathBuf| OpenOptions::new().write(true).open(path);
        Ok(Prepared {
            cgroup_procs: confinement.cgroup_procs.as_ref().map(open).transpose()?,
            oom_score_adj: confinement.oom_score_adj.to_string(),
            uid: Uid::from_raw(confinement.uid),
            gid: Gid::from_raw(confinement.gid),
            keep: confinement.capabilities,
            no_new_privs: confinement.no_new_privs,
            own_network: confinement.own_network,
            sandbox: confinement.root.as_ref().map(Sandbox::new).transpose()?,
            system_calls: confinement.system_calls.clone(),
        })
    }

    /// Runs in the child. The order matters: each step still needs the privileges the later ones take.
    fn apply(&mut self) -> io::Result<()> {
        rustix::process::setsid()?;
        if let Some(procs) = &mut self.cgroup_procs {
            procs.write_all(b"0")?;
        }
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
        let score = rustix::fs::open(
            c"/proc/self/oom_score_adj",
            flags,
            rustix::fs::Mode::empty(),
        )?;
        rustix::io::write(&score, self.oom_score_adj.as_bytes())?;
        if self.own_network {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
        }
        if let Some(sandbox) = &self.sandbox {
            sandbox.enter()?;
        }
        self.drop_privileges()?;
        if self.no_new_privs {
            rustix::thread::set_no_new_privs(true)?;
        }
        match &self.system_calls {
            Some(filter) => filter.load(),
            None => Ok(()),
        }
    }

    fn drop_privileges(&self) -> io::Result<()> {
        for capability in CapabilitySet::all().iter() {
            if !self.keep.contains(capability) {
                match rustix::thread::remove_capability_from_bounding_set(capability) {
                    // Newer than this kernel: nothing to drop.
                    Err(rustix::io::Errno::INVAL) | Ok(()) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(self.gid, self.gid, self.gid)?;
        rustix::thread::set_thread_res_uid(self.uid, self.uid, self.uid)?;
        let held = rustix::thread::capabilities(None)?;
        let keep = self.keep & held.permitted;
        rustix::thread::set_capabilities(
            None,
            CapabilitySets {
                effective: keep,
                permitted: keep,
                inheritable: keep,
            },
        )?;
        // Root gets its bounding set at exec anyway; any other user only what is ambient.
        if !self.uid.is_root() {
            for capability in keep.iter() {
                rustix::thread::configure_capability_in_ambient_set(capability, true)?;
            }
        }
        Ok(())
    }
}

//! Starts children with restricted rights: user, capabilities, cgroup, OOM score, files and system calls.
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

/// The rights and resources of a child.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// User id.
    pub uid: u32,
    /// Group id; the child has no supplementary groups.
    pub gid: u32,
    /// Upper bound on the capabilities of the child and its descendants.
    pub capabilities: CapabilitySet,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privs: bool,
    /// `/proc/self/oom_score_adj`, -1000..=1000.
    pub oom_score_adj: i32,
    /// Path of the `cgroup.procs` file of its cgroup.
    pub cgroup_procs: Option<PathBuf>,
    /// Whether the child gets an empty network namespace: no address and no link that is up.
    pub own_network: bool,
    /// The files it sees; `None`: all files of its parent.
    pub root: Option<Root>,
    /// The system calls it may make; `None`: all.
    pub system_calls: Option<Filter>,
}

/// The standard streams of a child. Its output goes to the write ends of pipes. The reader creates them before the
/// start, so that no step can fail after it.
#[derive(Debug)]
pub struct Streams {
    /// Standard input, such as a listening socket; `None`: /dev/null.
    pub stdin: Option<OwnedFd>,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
}

/// Starts `program` in a new session, with only `environment`.
///
/// Returns after exec, so a missing file is an error here. The result is the process id, which is also the id of the
/// session and of the process group. Dropping it does not end the child; reap it with [`crate::process::reap`].
///
/// # Errors
/// The program cannot be executed, or a restriction cannot be applied; then no child runs.
pub fn start(
    program: &OsString,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    streams: Streams,
    confinement: &Confinement,
) -> io::Result<u32> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .current_dir("/")
        .stdin(streams.stdin.map_or_else(Stdio::null, Stdio::from))
        .stdout(streams.stdout)
        .stderr(streams.stderr);
    let mut prepared = Prepared::new(confinement)?;
    // SAFETY: between fork and exec of a threaded process only async-signal-safe work is allowed. Prepared::apply makes
    // plain syscalls on values and descriptors made before the fork, and allocates nothing.
    unsafe { command.pre_exec(move || prepared.apply()) };
    Ok(command.spawn()?.id())
}

/// Everything that is allocated before the fork.
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

    /// Runs in the child after the fork. The order matters: each step needs privileges that later steps drop.
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
                    // A capability newer than this kernel: nothing to drop.
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
        // At exec root gets its bounding set anyway; another user gets only its ambient set.
        if !self.uid.is_root() {
            for capability in keep.iter() {
                rustix::thread::configure_capability_in_ambient_set(capability, true)?;
            }
        }
        Ok(())
    }
}

//! Starts a process from its declaration.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use corten_sys::child::{self, Confinement, Streams};
use corten_sys::sandbox::{Access, Bind, Link, Root};
use corten_sys::seccomp::Filter;
use corten_types::environment::ENVIRONMENT;
use tokio::net::unix::pipe;

use super::{Places, logs};
use crate::{NOTIFY_SOCKET, Process, Sandbox, ServiceSpec, SystemCalls};

/// Starts the service's process with its output connected to its log. A service that starts on demand gets its listening
/// socket as standard input. Returns the PID.
pub(super) fn spawn(
    spec: &ServiceSpec,
    process: &Process,
    socket: Option<OwnedFd>,
    places: &Places,
    logs: &logs::Sender,
) -> io::Result<u32> {
    let notify = places.notify_socket(&spec.id);
    let mut words = process.argv.iter().map(OsString::from);
    let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
    let arguments: Vec<_> = words.collect();
    let own = process.env.iter();
    let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
    let mut environment: Vec<(OsString, OsString)> = ENVIRONMENT
        .into_iter()
        .chain(own)
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    if spec.limits.ready.is_some() {
        environment.push((NOTIFY_SOCKET.into(), notify.as_os_str().into()));
    }
    let confinement = confinement(spec, process, places)?;
    let (mut streams, pipes) = streams()?;
    streams.stdin = socket;
    let pid = child::start(&program, &arguments, &environment, streams, &confinement)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    for pipe in pipes {
        tokio::spawn(logs::pump(spec.id.clone(), pipe, logs.clone(), false));
    }
    Ok(pid)
}

/// Standard streams of a child: no input, and pipes for the output, of which this also returns the reading ends. All fallible steps happen before the child exists; after a later
/// failure it would run on unsupervised.
///
/// # Errors
/// No file descriptors are left.
pub(super) fn streams() -> io::Result<(Streams, [pipe::Receiver; 2])> {
    let (stdout, from_stdout) = pipe::pipe()?;
    let (stderr, from_stderr) = pipe::pipe()?;
    let streams = Streams {
        stdin: None,
        stdout: stdout.into_blocking_fd()?,
        stderr: stderr.into_blocking_fd()?,
    };
    Ok((streams, [from_stdout, from_stderr]))
}

/// The full confinement of the process.
fn confinement(spec: &ServiceSpec, process: &Process, places: &Places) -> io::Result<Confinement> {
    let program = Path::new(process.argv.first().ok_or(io::ErrorKind::InvalidInput)?);
    let notify = places.notify_socket(&spec.id);
    Ok(Confinement {
        uid: process.uid,
        gid: process.uid,
        capabilities: process.capabilities,
        no_new_privs: process.no_new_privs,
        oom_score_adj: spec.oom_score_adj,
        cgroup_procs: Some(places.cgroups.join(&spec.cgroup).join("cgroup.procs")),
        own_network: false,
        root: process.sandbox.map(|sandbox| {
            let notify = Bind::new(notify, Access::Read);
            root(&sandbox, program, vec![notify], &places.stage)
        }),
        system_calls: filter(process.system_calls)?,
    })
}

/// Builds the filter in the parent, since a child must not allocate between fork and exec.
pub(super) fn filter(calls: SystemCalls) -> io::Result<Option<Filter>> {
    match calls {
        SystemCalls::All => Ok(None),
        SystemCalls::Server => Filter::server().map(Some),
        SystemCalls::Tool => Filter::tool().map(Some),
        SystemCalls::Daemon => Filter::daemon().map(Some),
        SystemCalls::ModuleLoader => Filter::module_loader().map(Some),
    }
}

/// Root of a sandboxed process: the declared paths, its program, and `others`.
pub(super) fn root(sandbox: &Sandbox, program: &Path, others: Vec<Bind>, stage: &Path) -> Root {
    let parts = sandbox.sees.iter().map(|part| Bind {
        path: part.path.into(),
        access: part.access,
        follows: part.follows,
    });
    let is_seen = sandbox
        .sees
        .iter()
        .any(|part| program.starts_with(part.path));
    let own = (!is_seen).then(|| Bind::new(program, Access::Run));
    let link = |(path, target): &(&str, &str)| Link {
        path: path.into(),
        target: target.into(),
    };
    Root {
        stage: stage.to_owned(),
        binds: parts.chain(others).chain(own).collect(),
        links: sandbox.links.iter().map(link).collect(),
        empty: sandbox.empty.iter().map(Into::into).collect(),
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;

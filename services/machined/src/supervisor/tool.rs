//! Programs of the image that run once and end: `mkfs.xfs`, `udevd modprobe` and their like.

use std::ffi::OsString;
use std::io;

use corten_sys::child::{CapabilitySet, Child, Confinement};
use corten_sys::process::Exit;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::services::{ENVIRONMENT, REGISTRYD};

/// What is kept of a tool's words; they go into one message.
const MOST_WORDS: u64 = 4096;

/// What a tool needs: one loads modules, one writes files of its own, the others work on devices and file systems
/// as root.
fn capabilities(program: &str) -> CapabilitySet {
    match program {
        "udevd" => CapabilitySet::SYS_MODULE,
        REGISTRYD => CapabilitySet::empty(),
        _ => CapabilitySet::SYS_ADMIN.union(CapabilitySet::DAC_OVERRIDE),
    }
}

/// A tool to be run, and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) done: oneshot::Sender<Result<(), String>>,
}

/// A tool that runs.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    words: oneshot::Receiver<String>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Starts the tool. Who waits is told when it cannot be started.
pub(super) fn start(job: Job) -> Option<(u32, Running)> {
    let Job {
        program,
        arguments,
        done,
    } = job;
    match spawn(&program, &arguments) {
        Ok((pid, words)) => Some((
            pid,
            Running {
                name: program,
                words,
                done,
            },
        )),
        Err(error) => {
            let _ = done.send(Err(format!("cannot run {program}: {error}")));
            None
        }
    }
}

/// Tells who waits how the tool ended.
pub(super) fn ended(running: Running, exit: Exit) {
    if exit == Exit::Code(0) {
        let _ = running.done.send(Ok(()));
        return;
    }
    tokio::spawn(async move {
        let words = running.words.await.unwrap_or_default();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let failure = format!("{} ended with {exit}: {words}", running.name);
        let _ = running.done.send(Err(failure));
    });
}

fn spawn(program: &str, arguments: &[String]) -> io::Result<(u32, oneshot::Receiver<String>)> {
    let path = OsString::from(format!("/usr/bin/{program}"));
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let environment: Vec<(OsString, OsString)> = ENVIRONMENT
        .iter()
        .map(|(key, value)| (OsString::from(key), OsString::from(value)))
        .collect();
    let confinement = Confinement {
        uid: 0,
        gid: 0,
        capabilities: capabilities(program),
        no_new_privs: true,
        oom_score_adj: 0,
        cgroup_procs: None,
        root: None,
        system_calls: None,
    };
    let child = Child::start(&path, &arguments, &environment, &confinement)?;
    let open =
        |end: Option<std::os::fd::OwnedFd>| end.map(pipe::Receiver::from_owned_fd).transpose();
    let out = open(child.stdout.map(Into::into))?;
    let err = open(child.stderr.map(Into::into))?;
    let (sender, words) = oneshot::channel();
    tokio::spawn(async move {
        let (_, complaint) = tokio::join!(read(out), read(err));
        let _ = sender.send(complaint);
    });
    Ok((child.pid, words))
}

/// Reads to the end, so that the tool never blocks on a full pipe; keeps the beginning.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else {
        return String::new();
    };
    let mut kept = Vec::new();
    let _ = (&mut pipe).take(MOST_WORDS).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).into_owned()
}

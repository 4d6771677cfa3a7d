//! One-shot programs of the image: `mkfs.xfs`, `udevd modprobe` and others (`services/tools.rs`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use corten_sys::child::{self, Confinement};
use corten_sys::process::{Exit, Signal, signal_group};
use corten_sys::sandbox::{Access, Bind};
use corten_types::environment::ENVIRONMENT;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::oneshot;

use super::{Places, process};
use crate::{Argument, TOOLS_CGROUP, Tool};

/// Maximum length of a tool's output to keep, in bytes; it goes into one message.
const MOST_WORDS: usize = 4096;

/// A tool to run, and the caller to notify.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) tool: Tool,
    pub(super) arguments: Vec<Argument>,
    pub(super) done: oneshot::Sender<Result<(), String>>,
}

/// A running tool.
#[derive(Debug)]
pub(super) struct Running {
    tool: Tool,
    /// Time at which it is killed; `None` once it was.
    until: Option<Instant>,
    words: oneshot::Receiver<String>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Running tools by PID.
#[derive(Debug, Default)]
pub(super) struct Tools(HashMap<u32, Running>);

impl Tools {
    /// Starts the tool. A failure to start goes to the caller.
    pub(super) fn start(&mut self, job: Job, places: &Places) {
        let Job {
            tool,
            arguments,
            done,
        } = job;
        match spawn(&tool, &arguments, places) {
            Ok((pid, words)) => {
                let running = Running {
                    tool,
                    until: Instant::now().checked_add(tool.time),
                    words,
                    done,
                };
                self.0.insert(pid, running);
            }
            Err(error) => {
                let program = tool.program;
                let _ = done.send(Err(format!("cannot run {program}: {error}")));
            }
        }
    }

    /// Time at which [`Tools::kill_late`] has work to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.values().filter_map(|running| running.until).min()
    }

    /// Kills tools whose time limit has passed; they are reaped like any child.
    pub(super) fn kill_late(&mut self, now: Instant) {
        for (pid, running) in &mut self.0 {
            if running.until.is_some_and(|until| until <= now) {
                running.until = None;
                // The process may have ended meanwhile.
                let _ = signal_group(*pid, Signal::KILL);
            }
        }
    }

    /// Notifies the caller of a tool's end, if this child is a tool.
    pub(super) fn ended(&mut self, pid: u32, exit: Exit) {
        let Some(running) = self.0.remove(&pid) else {
            return;
        };
        if exit == Exit::Code(0) {
            let _ = running.done.send(Ok(()));
            return;
        }
        let Tool { program, time, .. } = running.tool;
        let how = match running.until {
            Some(_) => format!("ended with {exit}"),
            None => format!("was killed after its timeout of {} s", time.as_secs_f32()),
        };
        tokio::spawn(async move {
            let words = running.words.await.unwrap_or_default();
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = running.done.send(Err(format!("{program} {how}: {words}")));
        });
    }
}

fn spawn(
    tool: &Tool,
    arguments: &[Argument],
    places: &Places,
) -> io::Result<(u32, oneshot::Receiver<String>)> {
    // The first file systems are made before the boot creates the node's directories.
    fs::create_dir_all(&places.stage)?;
    let confinement = confinement(tool, arguments, places)?;
    let program = path(tool).into_os_string();
    let arguments: Vec<OsString> = arguments
        .iter()
        .map(|argument| argument.as_ref().into())
        .collect();
    let environment: Vec<(OsString, OsString)> = ENVIRONMENT
        .iter()
        .map(|(key, value)| (OsString::from(key), OsString::from(value)))
        .collect();
    let (streams, [out, err]) = process::streams()?;
    let pid = child::start(&program, &arguments, &environment, streams, &confinement)?;
    let (sender, words) = oneshot::channel();
    tokio::spawn(async move {
        let (_, complaint) = tokio::join!(read(out), read(err));
        let _ = sender.send(complaint);
    });
    Ok((pid, words))
}

fn path(tool: &Tool) -> PathBuf {
    Path::new("/usr/bin").join(tool.program)
}

/// The full confinement of the tool.
fn confinement(tool: &Tool, arguments: &[Argument], places: &Places) -> io::Result<Confinement> {
    let files = arguments.iter().filter_map(|argument| match argument {
        Argument::Word(_) => None,
        Argument::Reads(path) => Some(Bind::new(path, Access::Read)),
        Argument::Device(path) => Some(Bind::new(path, Access::Devices)),
        Argument::Fills(path) => Some(Bind::new(path, Access::Write)),
    });
    let root = process::root(&tool.sandbox, &path(tool), files.collect(), &places.stage);
    Ok(Confinement {
        uid: tool.uid,
        gid: tool.uid,
        capabilities: tool.capabilities,
        no_new_privs: true,
        oom_score_adj: 0,
        cgroup_procs: Some(places.cgroups.join(TOOLS_CGROUP).join("cgroup.procs")),
        own_network: true,
        root: Some(root),
        system_calls: process::filter(tool.system_calls)?,
    })
}

/// Reads to the end, so that the tool never blocks on a full pipe. Keeps the end of the output: a tool reports its
/// failure last (xfs_repair(8) first reports each phase and every finding).
async fn read(mut pipe: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut is_cut = false;
    let mut some = [0; 1024];
    while let Ok(length @ 1..) = pipe.read(&mut some).await {
        kept.extend_from_slice(some.get(..length).unwrap_or_default());
        let older = kept.len().saturating_sub(MOST_WORDS);
        is_cut |= older > 0;
        kept.drain(..older);
    }
    let words = String::from_utf8_lossy(&kept);
    if is_cut {
        format!("... {words}")
    } else {
        words.into_owned()
    }
}

#[cfg(test)]
#[path = "tool_tests.rs"]
mod tests;

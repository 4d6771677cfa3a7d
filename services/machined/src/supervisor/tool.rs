//! Programs of the image that run once and end: `mkfs.xfs`, `udevd modprobe` and their like (`services/tools.rs`).

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Instant;

use corten_sys::child::{self, Confinement};
use corten_sys::process::{Exit, Signal, signal_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::oneshot;

use super::process;
use crate::services::{ENVIRONMENT, TOOLS_CGROUP, Tool};

/// What is kept of a tool's words, in bytes; they go into one message.
const MOST_WORDS: usize = 4096;

/// A tool to be run, and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) tool: Tool,
    pub(super) arguments: Vec<String>,
    pub(super) done: oneshot::Sender<Result<(), String>>,
}

/// A tool that runs.
#[derive(Debug)]
pub(super) struct Running {
    tool: Tool,
    /// When it is killed; `None`: it was.
    until: Option<Instant>,
    words: oneshot::Receiver<String>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Those that run, by process id.
#[derive(Debug, Default)]
pub(super) struct Tools(HashMap<u32, Running>);

impl Tools {
    /// Starts the tool. Who waits is told when it cannot be started.
    pub(super) fn start(&mut self, job: Job, cgroups: &Path) {
        let Job {
            tool,
            arguments,
            done,
        } = job;
        match spawn(&tool, &arguments, cgroups) {
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

    /// When [`Tools::kill_late`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.values().filter_map(|running| running.until).min()
    }

    /// Kills those whose time is up; their end is reaped as any other.
    pub(super) fn kill_late(&mut self, now: Instant) {
        for (pid, running) in &mut self.0 {
            if running.until.is_some_and(|until| until <= now) {
                running.until = None;
                // It may have ended meanwhile.
                let _ = signal_group(*pid, Signal::KILL);
            }
        }
    }

    /// Tells who waits how a tool ended, if this child is one.
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
            None => format!(
                "was killed, as it had not ended after {} s",
                time.as_secs_f32()
            ),
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
    arguments: &[String],
    cgroups: &Path,
) -> io::Result<(u32, oneshot::Receiver<String>)> {
    let path = OsString::from(format!("/usr/bin/{}", tool.program));
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let environment: Vec<(OsString, OsString)> = ENVIRONMENT
        .iter()
        .map(|(key, value)| (OsString::from(key), OsString::from(value)))
        .collect();
    let confinement = Confinement {
        uid: 0,
        gid: 0,
        capabilities: tool.capabilities,
        no_new_privs: true,
        oom_score_adj: 0,
        cgroup_procs: Some(cgroups.join(TOOLS_CGROUP).join("cgroup.procs")),
        root: None,
        system_calls: None,
    };
    let (output, [out, err]) = process::output()?;
    let pid = child::start(&path, &arguments, &environment, output, &confinement)?;
    let (sender, words) = oneshot::channel();
    tokio::spawn(async move {
        let (_, complaint) = tokio::join!(read(out), read(err));
        let _ = sender.send(complaint);
    });
    Ok((pid, words))
}

/// Reads to the end, so that the tool never blocks on a full pipe; keeps the last words: why it fails a tool says
/// after what it did (xfs_repair(8) tells of each phase, and of all it finds).
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
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tool_that_says_much_is_quoted_with_its_last_words() {
        let much = "Phase 1 - find and verify superblock...\n".repeat(10_000);
        let words = read(format!("{much}fatal error: no memory").as_bytes()).await;
        assert!(words.starts_with("... "), "{words}");
        assert!(words.ends_with("...\nfatal error: no memory"), "{words}");
        assert_eq!(words.len(), MOST_WORDS + 4);
        assert_eq!(read(&b"no such file"[..]).await, "no such file");
    }
}

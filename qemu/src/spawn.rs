//! Starts emulator processes so that none outlives this program, even after `kill -9`.
//!
//! Each has its own process group, so a Ctrl-C at the terminal reaches only this program.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::VmError;

type Request = (Command, Sender<std::io::Result<Child>>);

/// Each process asks the kernel for SIGKILL when its parent dies. For the kernel the parent is a *thread*, and a test's
/// thread ends before the machine that it shares with other tests. So one thread that lives as long as the program
/// starts all processes.
fn spawner() -> &'static Sender<Request> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in requests {
                let started = command.spawn();
                if let Err(unheard) = answer.send(started)
                    && let Ok(mut child) = unheard.0
                {
                    end(&mut child);
                }
            }
        });
        sender
    })
}

/// Starts `program` under the rules above. `setup` sets the standard streams.
pub(crate) fn spawn(
    program: &str,
    args: &[String],
    setup: impl FnOnce(&mut Command),
) -> Result<Child, VmError> {
    let path = find(program)?;
    // setpriv is part of util-linux, which every Debian system has.
    let mut command = match find("setpriv") {
        Ok(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(path);
            command
        }
        Err(_) => Command::new(path),
    };
    command.args(args).process_group(0);
    setup(&mut command);
    let failed = |detail: String| VmError::Command {
        command: program.to_owned(),
        detail,
    };
    let (answer, started) = channel();
    spawner()
        .send((command, answer))
        .map_err(|_| failed("spawner thread is gone".to_owned()))?;
    started
        .recv()
        .map_err(|_| failed("spawner thread is gone".to_owned()))?
        .map_err(|error| failed(error.to_string()))
}

/// Kills the child's process group and reaps the child.
pub(crate) fn end(child: &mut Child) {
    if let Ok(None) = child.try_wait()
        && let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && kill_process_group(group, Signal::KILL).is_err()
    {
        // The group has ended already; the child may still be unreaped.
        let _gone = child.kill();
    }
    let _status = child.wait();
}

/// Looks `program` up in `PATH`.
pub(crate) fn find(program: &str) -> Result<std::path::PathBuf, VmError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| VmError::MissingTool {
            program: program.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn child_outlives_the_spawning_thread_but_not_its_handle() {
        let asked = std::thread::spawn(|| {
            spawn("sleep", &["60".to_owned()], |command| {
                command.stdout(Stdio::null());
            })
        });
        let mut child = asked.join().unwrap().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(
            child.try_wait().unwrap().is_none(),
            "killed with the asking thread"
        );
        end(&mut child);
        assert!(child.try_wait().unwrap().is_some());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = spawn("no-such-emulator", &[], |_| {})
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no-such-emulator") && error.contains("make deps"),
            "{error}"
        );
    }
}

//! Processes as PID 1 sees them: reaping and signals.

use std::io;

use rustix::process::{Pid, WaitOptions};

pub use rustix::process::Signal;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// A child that has been reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Its process id, which the kernel may reuse from now on.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
}

/// Reaps one ended child, own or adopted; `None` when there is none.
///
/// It collects the exit status of *any* child. So the caller must be the only waiter, and must not start children on
/// another thread meanwhile ([`crate::child::start`] waits for its `exec`).
///
/// # Errors
/// The kernel's error; having no children is not an error.
pub fn reap() -> io::Result<Option<Reaped>> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let exit = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => continue,
                };
                return Ok(Some(Reaped {
                    pid: pid.as_raw_nonzero().get().unsigned_abs(),
                    exit,
                }));
            }
            Ok(None) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Signals one process.
///
/// # Errors
/// The process does not exist.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    Ok(rustix::process::kill_process(to_pid(pid)?, signal)?)
}

/// Signals the process group led by `pid`.
///
/// # Errors
/// The group does not exist.
pub fn signal_group(pid: u32, signal: Signal) -> io::Result<()> {
    Ok(rustix::process::kill_process_group(to_pid(pid)?, signal)?)
}

/// Signals every process except the caller and PID 1.
///
/// # Errors
/// No process exists to signal.
pub fn signal_all(signal: Signal) -> io::Result<()> {
    let number = nix::sys::signal::Signal::try_from(signal.as_raw())?;
    Ok(nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(-1),
        number,
    )?)
}

fn to_pid(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_zero_is_refused() {
        assert_eq!(
            signal_group(0, Signal::TERM).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}

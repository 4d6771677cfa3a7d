//! Ending the machine's run.

use std::io;

use rustix::system::RebootCommand;

/// How the machine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Start again.
    Restart,
    /// Switch the power off.
    PowerOff,
}

/// Restarts or switches off at once; what was not flushed ([`sync`]) is lost. Returns only on failure.
///
/// # Errors
/// `EPERM` without CAP_SYS_BOOT.
pub fn end(how: End) -> io::Result<()> {
    let command = match how {
        End::Restart => RebootCommand::Restart,
        End::PowerOff => RebootCommand::PowerOff,
    };
    Ok(rustix::system::reboot(command)?)
}

/// Flushes every file system. One whose disk or server is dead makes it wait for ever.
pub fn sync() {
    rustix::fs::sync();
}

/// From now on ctrl-alt-del sends SIGINT to PID 1 instead of restarting at once.
///
/// # Errors
/// `EPERM` without CAP_SYS_BOOT.
pub fn soften_ctrl_alt_del() -> io::Result<()> {
    Ok(rustix::system::reboot(RebootCommand::CadOff)?)
}

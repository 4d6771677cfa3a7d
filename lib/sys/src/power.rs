//! Restart and power-off of the machine.

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

/// Restarts or powers off at once; data that was not flushed ([`sync`]) is lost. Returns only on failure.
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

/// Flushes every file system. The call never returns while a disk or file server is dead.
pub fn sync() {
    rustix::fs::sync();
}

/// Makes ctrl-alt-del send SIGINT to PID 1 instead of restarting at once.
///
/// # Errors
/// `EPERM` without CAP_SYS_BOOT.
pub fn soften_ctrl_alt_del() -> io::Result<()> {
    Ok(rustix::system::reboot(RebootCommand::CadOff)?)
}

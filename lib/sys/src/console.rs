//! The standard streams of PID 1.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// Makes `device` standard input, output and error of this process.
///
/// # Errors
/// The device cannot be opened, for example because the machine has no console.
pub fn attach(device: &Path) -> io::Result<()> {
    let console = OpenOptions::new().read(true).write(true).open(device)?;
    rustix::stdio::dup2_stdin(&console)?;
    rustix::stdio::dup2_stdout(&console)?;
    rustix::stdio::dup2_stderr(&console)?;
    Ok(())
}

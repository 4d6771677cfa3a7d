//! The errors of virtual machines.

use std::path::PathBuf;
use std::time::Duration;

/// The reason why a machine could not be started, reached or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// A host program is not installed.
    #[error("host program `{program}` is missing; `make deps` installs it")]
    MissingTool {
        /// Name looked up in `PATH`.
        program: String,
    },
    /// No known path has a firmware file.
    #[error("no {what} found (looked at {looked}); `make deps` installs it")]
    MissingFirmware {
        /// Kind of firmware.
        what: &'static str,
        /// Comma-separated list of the known paths.
        looked: String,
    },
    /// BIOS was requested on an architecture without BIOS.
    #[error("a machine with {arch} has no BIOS; choose UEFI")]
    NoBios {
        /// The architecture.
        arch: &'static str,
    },
    /// An image, kernel or initramfs named by the caller does not exist.
    #[error("{} does not exist; `make image` builds it", path.display())]
    MissingImage {
        /// Path as given.
        path: PathBuf,
    },
    /// A file operation in the machine's directory failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// Verb and object, such as "create".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A path cannot be expressed in a QEMU option.
    #[error("path {} is not valid UTF-8", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// A host program could not be started or failed.
    #[error("`{command}` failed: {detail}")]
    Command {
        /// Program and arguments.
        command: String,
        /// Exit status and standard error.
        detail: String,
    },
    /// QEMU ended without a request.
    #[error("QEMU ended by itself ({status}): {stderr}")]
    Ended {
        /// Exit status.
        status: String,
        /// Standard error of QEMU.
        stderr: String,
    },
    /// A wait reached its deadline.
    #[error("no {what} within {} s; last answer: {last}", deadline.as_secs())]
    Deadline {
        /// Awaited condition.
        what: String,
        /// Length of the wait.
        deadline: Duration,
        /// Error of the last attempt.
        last: String,
    },
    /// The QMP connection broke.
    #[error("QMP connection lost while doing `{command}`")]
    QmpLost {
        /// The command in flight.
        command: String,
        /// Error of the operating system, if there is one.
        source: std::io::Error,
    },
    /// QEMU refused a QMP command.
    #[error("QEMU refused `{command}`: {answer}")]
    QmpRefused {
        /// The command.
        command: String,
        /// QEMU's `desc`.
        answer: String,
    },
    /// The connection to QEMU's debugger stub broke.
    #[error("connection to QEMU's debugger stub lost while asking `{request}`")]
    GdbLost {
        /// The request in flight.
        request: String,
        /// Error of the operating system, or a violation of the protocol.
        source: std::io::Error,
    },
    /// QEMU's debugger stub refused a request.
    #[error("QEMU's debugger stub refused `{request}`: {answer}")]
    GdbRefused {
        /// The request.
        request: String,
        /// Error reply of the stub.
        answer: String,
    },
    /// No free local port, or no socket could be created.
    #[error("cannot reserve a local port")]
    Port {
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl VmError {
    /// Wraps a file operation's failure; for `map_err`.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}

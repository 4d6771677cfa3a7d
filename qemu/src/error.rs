//! What can go wrong with a virtual machine.

use std::path::PathBuf;
use std::time::Duration;

/// Why a machine could not be started, reached or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// A host program is not installed.
    #[error("host program `{program}` is missing; `make deps` installs it")]
    MissingTool {
        /// Name as looked up in `PATH`.
        program: String,
    },
    /// No firmware file was found at any of the known places.
    #[error("no {what} found (looked at {looked}); `make deps` installs it")]
    MissingFirmware {
        /// Which firmware.
        what: &'static str,
        /// Comma-separated list of the places.
        looked: String,
    },
    /// BIOS was asked for where there is none.
    #[error("a machine with {arch} has no BIOS; choose UEFI")]
    NoBios {
        /// The architecture.
        arch: &'static str,
    },
    /// An image, kernel or initramfs named by the caller does not exist.
    #[error("{} does not exist; `make image` builds it", path.display())]
    MissingImage {
        /// The path as given.
        path: PathBuf,
    },
    /// A file operation in the machine's directory failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// Verb and object, "create" for instance.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A path cannot be written in a QEMU option.
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
        /// Exit status and what it wrote to standard error.
        detail: String,
    },
    /// QEMU ended although nobody asked it to.
    #[error("QEMU ended by itself ({status}): {stderr}")]
    Ended {
        /// Exit status.
        status: String,
        /// What QEMU wrote to standard error.
        stderr: String,
    },
    /// A wait reached its deadline.
    #[error("no {what} within {} s; last answer: {last}", deadline.as_secs())]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        deadline: Duration,
        /// What the last attempt said.
        last: String,
    },
    /// The QMP connection broke.
    #[error("QMP connection lost while doing `{command}`")]
    QmpLost {
        /// The command in flight.
        command: String,
        /// The system's answer, if there was one.
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
        /// The system's answer, or what was wrong with the stub's.
        source: std::io::Error,
    },
    /// QEMU's debugger stub refused a request.
    #[error("QEMU's debugger stub refused `{request}`: {answer}")]
    GdbRefused {
        /// The request.
        request: String,
        /// What the stub said.
        answer: String,
    },
    /// No free local port, or no socket at all.
    #[error("cannot reserve a local port")]
    Port {
        /// The system's answer.
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

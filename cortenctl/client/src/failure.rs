//! The failures of the program and their exit codes.

use std::io;
use std::process::ExitCode;

use crate::table::printable;

/// A failure of the program.
#[derive(Debug)]
pub enum Failure {
    /// The command line is invalid: exit code 2.
    Usage(String),
    /// A file, a call or a node failed: exit code 1.
    Call(anyhow::Error),
    /// Nodes failed, and all errors have been printed: exit code 1.
    Told,
}

impl Failure {
    /// An invalid command line, with the reason.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }

    /// A failed call or file, with the reason.
    pub fn call(text: impl Into<String>) -> Failure {
        Failure::Call(anyhow::Error::msg(text.into()))
    }

    /// The failure as a part of another error.
    pub fn sentence(self) -> String {
        match self {
            Failure::Usage(why) => why,
            Failure::Call(error) => format!("{error:#}"),
            Failure::Told => "it does not answer".to_owned(),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Call(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Call(error.into())
    }
}

/// Prints the failure on stderr and returns the exit code.
pub fn exit_code(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => {
            eprintln!("error: {}", printable(&text));
            ExitCode::from(2)
        }
        Err(Failure::Told) => ExitCode::FAILURE,
        // `cortenctl logs -f x | head` is no failure.
        Err(Failure::Call(error)) if closed_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure::Call(error)) => {
            // The text may have several lines, which this program made and not a node.
            let text = format!("{error:#}");
            let lines: Vec<String> = text.lines().map(printable).collect();
            eprintln!("error: {}", lines.join("\n"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line on stderr for every failed node, and returns the failure for the exit code.
pub fn finish(failed: &[(String, String)]) -> Result<(), Failure> {
    for (node, why) in failed {
        eprintln!("error: {}: {}", printable(node), printable(why));
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::Told)
    }
}

fn closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

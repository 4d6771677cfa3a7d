//! Errors, with advice to the user.

use std::error::Error as _;
use std::fmt::{self, Display};

use crate::PATIENCE;

/// Length limit of a quoted message, in characters.
const SHORT: usize = 500;

/// Failure of an operation on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// A part of an access is invalid.
    #[error("cannot use {field} of the access to Kubernetes: {why}; issue the access again")]
    Access {
        /// The invalid part.
        field: &'static str,
        /// The defect.
        why: String,
    },
    /// A kubeconfig is invalid.
    #[error("cannot use the kubeconfig: {why}; write a new kubeconfig")]
    Kubeconfig {
        /// The defect.
        why: String,
    },
    /// A name cannot be part of an API path.
    #[error(
        "cannot request {object}: {field} is not valid in an API path; use only letters, digits, '-', '.' and ':'"
    )]
    Name {
        /// The object, as far as it is known.
        object: String,
        /// The field with the invalid text.
        field: &'static str,
    },
    /// An annotation for machined's ownership has foreign contents.
    #[error(
        "cannot read the ownership records of machined on node {node}: {field} is not {expected}; remove the field \
         from the node"
    )]
    Ownership {
        /// Name of the node.
        node: String,
        /// The field of the node.
        field: &'static str,
        /// Expected contents.
        expected: &'static str,
    },
    /// The server does not accept the definition of a kind.
    #[error(
        "cannot use {object}: it is not established: {why}; correct the definition or try again"
    )]
    NotServed {
        /// The definition.
        object: String,
        /// Conditions of the definition.
        why: String,
    },
    /// A request failed.
    #[error("cannot {action} {object}: {cause}")]
    Request {
        /// The action, as a verb.
        action: &'static str,
        /// The object of the action.
        object: String,
        /// Cause of the failure.
        cause: Cause,
    },
}

/// Cause of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The server answered with an error. The code is 0 if the answer has none.
    Refused {
        /// HTTP status code.
        code: u16,
        /// Message of the server.
        message: String,
    },
    /// The request timed out.
    NoAnswer,
    /// The server was unreachable, or its answer is not from a Kubernetes API.
    Broken(String),
}

impl ClusterError {
    pub(crate) fn access(field: &'static str, why: impl Display) -> ClusterError {
        let why = why.to_string();
        ClusterError::Access { field, why }
    }

    pub(crate) fn kubeconfig(why: impl Display) -> ClusterError {
        let why = why.to_string();
        ClusterError::Kubeconfig { why }
    }

    pub(crate) fn request(
        action: &'static str,
        object: &(dyn Display + Sync),
        why: impl Display,
    ) -> ClusterError {
        ClusterError::Request {
            action,
            object: object.to_string(),
            cause: Cause::Broken(why.to_string()),
        }
    }

    pub(crate) fn failed(
        action: &'static str,
        object: &(dyn Display + Sync),
        error: kube::Error,
    ) -> ClusterError {
        ClusterError::Request {
            action,
            object: object.to_string(),
            cause: Cause::from(error),
        }
    }

    /// HTTP status code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            ClusterError::Request {
                cause: Cause::Refused { code, .. },
                ..
            } => Some(*code),
            _ => None,
        }
    }
}

impl From<kube::Error> for Cause {
    fn from(error: kube::Error) -> Cause {
        match error {
            kube::Error::Api(status) => Cause::Refused {
                code: status.code,
                message: refusal(&status.message),
            },
            error => Cause::Broken(chain(&error)),
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Refused { code, message } => {
                let advice = match code {
                    401 => "check that the cluster's CA issued the client certificate",
                    403 => "give the user of the client certificate this permission",
                    404 => "check that the object and its kind are in the cluster",
                    409 => {
                        "another client changed the object or owns the field; compare both versions"
                    }
                    429 | 500.. => {
                        "try again; if the error persists, read the log of kube-apiserver"
                    }
                    _ => "correct the object",
                };
                write!(f, "{message} (code {code}); {advice}")
            }
            Cause::NoAnswer => {
                let seconds = PATIENCE.as_secs();
                write!(
                    f,
                    "no answer within {seconds} s; check whether kube-apiserver runs"
                )
            }
            Cause::Broken(why) => {
                write!(
                    f,
                    "{why}; check whether kube-apiserver runs at this address"
                )
            }
        }
    }
}

/// The failed parts of a `/readyz` answer. It has one line per part, with a minus for parts that are not ready
/// (Kubernetes, "API health endpoints").
fn refusal(message: &str) -> String {
    let bad: Vec<&str> = message
        .lines()
        .filter(|line| line.starts_with("[-]"))
        .collect();
    let message = if bad.is_empty() {
        short(message)
    } else {
        short(&bad.join(", "))
    };
    if message.is_empty() {
        "refused without a reason".to_owned()
    } else {
        message
    }
}

/// An untrusted text, shortened to one line.
pub(crate) fn short(text: &str) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    let mut all = text.trim().chars().map(one_line);
    let mut short: String = all.by_ref().take(SHORT).collect();
    if all.next().is_some() {
        short.push('…');
    }
    short
}

/// An error with all its causes.
fn chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    short(&text)
}

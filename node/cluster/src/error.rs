//! What can fail, and what a user can do about it.

use std::error::Error as _;
use std::fmt::{self, Display};

use crate::PATIENCE;

/// Of a foreign text, so much is in a message.
const SHORT: usize = 500;

/// Why something could not be done in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// A part of an access cannot be used.
    #[error("cannot use {field} of the access to Kubernetes: {why}; issue the access anew")]
    Access {
        /// The part.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A kubeconfig cannot be used.
    #[error("cannot use the kubeconfig: {why}; write the kubeconfig anew")]
    Kubeconfig {
        /// What is wrong with it.
        why: String,
    },
    /// An object cannot have such a name in the paths of the API.
    #[error(
        "cannot ask for {object}: {field} is no part of a path; give it letters, digits, '-', '.' and ':' alone"
    )]
    Name {
        /// The object, as far as it can be told.
        object: String,
        /// The field with the wrong text.
        field: &'static str,
    },
    /// A node has an annotation that another wrote where machined writes its own.
    #[error(
        "cannot tell what machined owns on node {node}: {field} is not {expected}; remove it from the node"
    )]
    Ownership {
        /// The node.
        node: String,
        /// The field of the node.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The server does not take to the definition of a kind.
    #[error(
        "cannot use {object}: it is not established: {why}; correct the definition, or try again"
    )]
    NotServed {
        /// The definition.
        object: String,
        /// What its conditions say.
        why: String,
    },
    /// A request failed.
    #[error("cannot {action} {object}: {cause}")]
    Request {
        /// What was to be done, as a verb.
        action: &'static str,
        /// With which object.
        object: String,
        /// Why not.
        cause: Cause,
    },
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The server answered with an error. Its code is 0 when the answer does not tell it.
    Refused {
        /// The code of HTTP.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The server gave no answer in time.
    NoAnswer,
    /// The server was not reached, or what it said is no answer of a Kubernetes API.
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

    /// The code with which the server refused.
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
                    401 => "check that the cluster's authority issued the client certificate",
                    403 => "grant it to the user of the client certificate",
                    404 => "check that the object and its kind are in the cluster",
                    409 => "another changed the object or owns the field; compare the two",
                    429 | 500.. => "try again, and see the log of kube-apiserver if it stays",
                    _ => "correct the object",
                };
                write!(f, "{message} (code {code}); {advice}")
            }
            Cause::NoAnswer => {
                let seconds = PATIENCE.as_secs();
                write!(
                    f,
                    "no answer within {seconds} s; see whether kube-apiserver runs"
                )
            }
            Cause::Broken(why) => {
                write!(f, "{why}; see whether kube-apiserver runs at this address")
            }
        }
    }
}

/// `/readyz` answers with a line for each part, those that are not ready with a minus (Kubernetes, "API health
/// endpoints"): these alone are of interest.
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

/// A foreign text on one line, and not all of it.
pub(crate) fn short(text: &str) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    let mut all = text.trim().chars().map(one_line);
    let mut short: String = all.by_ref().take(SHORT).collect();
    if all.next().is_some() {
        short.push('…');
    }
    short
}

/// An error with all that caused it.
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

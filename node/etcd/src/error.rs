//! Errors of a call.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::refusal::Refusal;

/// Limit of a quoted message from etcd or the transport, in characters.
const LONGEST: usize = 500;

/// A failed connection to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The endpoint, as it was given.
    pub endpoint: String,
    /// Reason of the failure.
    pub why: String,
    /// Whether the host refused the connection, because no program listens there.
    pub is_refused: bool,
}

/// Failure of a call.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// A file of the credentials cannot be read.
    #[error(
        "cannot read {file:?} for a connection to etcd; only a control plane node with etcd has it"
    )]
    Credentials {
        /// The file.
        file: PathBuf,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// The list of endpoints is empty.
    #[error(
        "cannot connect to etcd: no endpoint is given; name at least one member's host and port"
    )]
    NoEndpoint,
    /// No endpoint is usable.
    #[error(
        "cannot connect to etcd: {}; check that etcd runs there, and that the same CA signed its certificates \
         and ours",
        list(.0)
    )]
    Connect(Vec<Attempt>),
    /// etcd refused the call.
    #[error("cannot {what}: etcd at {endpoint} refused: {said}; {}", refusal.advice())]
    Refused {
        /// Description of the call.
        what: &'static str,
        /// Endpoint of the member.
        endpoint: String,
        /// Meaning of the refusal.
        refusal: Refusal,
        /// etcd's message.
        said: String,
    },
    /// The connection failed before an answer. The call may have taken effect.
    #[error(
        "cannot {what}: the connection to etcd at {endpoint} failed: {why}; check that etcd runs there, then try again"
    )]
    Lost {
        /// Description of the call.
        what: &'static str,
        /// Endpoint of the member.
        endpoint: String,
        /// Message of the transport.
        why: String,
    },
    /// The call timed out. It may have taken effect.
    #[error(
        "cannot {what}: etcd at {endpoint} did not answer within {within:?}; check its log and its disk, then try again"
    )]
    Silent {
        /// Description of the call.
        what: &'static str,
        /// Endpoint of the member.
        endpoint: String,
        /// Timeout of the call.
        within: Duration,
    },
    /// The answer is incomplete.
    #[error(
        "cannot {what}: the answer of etcd at {endpoint} cannot be used: {why}; check that a supported version of etcd \
         listens there"
    )]
    Broken {
        /// Description of the call.
        what: &'static str,
        /// Endpoint of the member.
        endpoint: String,
        /// Defect of the answer.
        why: &'static str,
    },
    /// Another client held the lock for the whole time, or etcd did not answer.
    #[error(
        "cannot lock {name}: etcd at {endpoint} did not grant it within {within:?} because another client holds it; \
         try again later"
    )]
    LockHeld {
        /// Name of the lock.
        name: String,
        /// Endpoint of the member.
        endpoint: String,
        /// Time spent waiting.
        within: Duration,
    },
    /// The lock's lease expired while waiting.
    #[error(
        "cannot lock {name}: its lease at {endpoint} expired because etcd could not be reached for its renewal; try \
         again"
    )]
    LockLost {
        /// Name of the lock.
        name: String,
        /// Endpoint of the member.
        endpoint: String,
    },
}

impl EtcdError {
    /// Meaning of a refusal; `None` for other errors.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            EtcdError::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        }
    }

    /// The learner has not caught up with the leader; it can be promoted later.
    #[must_use]
    pub fn is_not_in_sync(&self) -> bool {
        self.refusal() == Some(Refusal::NotInSync)
    }

    /// No member has that id, for example because it was removed already.
    #[must_use]
    pub fn is_member_not_found(&self) -> bool {
        self.refusal() == Some(Refusal::MemberNotFound)
    }

    /// The member already has a vote.
    #[must_use]
    pub fn is_not_a_learner(&self) -> bool {
        self.refusal() == Some(Refusal::NotALearner)
    }

    /// A member with that id or one of those peer URLs already exists.
    #[must_use]
    pub fn is_already_member(&self) -> bool {
        self.refusal() == Some(Refusal::AlreadyMember)
    }

    /// Too few members run: the change would cost the cluster its quorum.
    #[must_use]
    pub fn is_not_enough_started(&self) -> bool {
        self.refusal() == Some(Refusal::NotEnoughStarted)
    }

    /// A member was unreachable in the last seconds, so etcd rejects changes of the membership.
    #[must_use]
    pub fn is_unhealthy(&self) -> bool {
        self.refusal() == Some(Refusal::Unhealthy)
    }

    /// Only the leader can do this, and another member leads.
    #[must_use]
    pub fn is_not_leader(&self) -> bool {
        self.refusal() == Some(Refusal::NotLeader)
    }

    /// The connected member is a learner, which cannot do this.
    #[must_use]
    pub fn is_from_learner(&self) -> bool {
        self.refusal() == Some(Refusal::OfALearner)
    }

    /// Every endpoint refused the connection, so that no member runs there. A host that does not answer proves nothing.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        match self {
            EtcdError::Connect(attempts) => attempts.iter().all(|attempt| attempt.is_refused),
            _ => false,
        }
    }

    /// A retry may succeed without intervention.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            EtcdError::Connect(_)
            | EtcdError::Lost { .. }
            | EtcdError::Silent { .. }
            | EtcdError::LockHeld { .. }
            | EtcdError::LockLost { .. } => true,
            EtcdError::Refused { refusal, .. } => refusal.is_temporary(),
            EtcdError::Credentials { .. } | EtcdError::NoEndpoint | EtcdError::Broken { .. } => {
                false
            }
        }
    }

    /// The reason alone, for the list of endpoints.
    pub(crate) fn reason(&self) -> String {
        match self {
            EtcdError::Refused { said, .. } => format!("etcd refused: {said}"),
            EtcdError::Lost { why, .. } => why.clone(),
            _ => self.to_string(),
        }
    }
}

fn list(attempts: &[Attempt]) -> String {
    let each = attempts
        .iter()
        .map(|Attempt { endpoint, why, .. }| format!("{endpoint}: {why}"));
    each.collect::<Vec<_>>().join("; ")
}

/// An error with its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        next = cause.source();
    }
    said(&text, "it gives no reason")
}

/// An untrusted message, made safe for one line of a log.
pub(crate) fn said(words: &str, otherwise: &str) -> String {
    let words: String = words
        .chars()
        .take(LONGEST)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match words.trim() {
        "" => otherwise.to_owned(),
        words => words.to_owned(),
    }
}

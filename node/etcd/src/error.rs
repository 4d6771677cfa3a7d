//! What can go wrong with a call.

use std::fmt::Write as _;
use std::time::Duration;

use crate::refusal::Refusal;

/// So much of what the other side says is shown, in characters.
const LONGEST: usize = 500;

/// An endpoint that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The endpoint, as it was given.
    pub endpoint: String,
    /// Why it could not be used.
    pub why: String,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// There is nobody to ask.
    #[error(
        "cannot connect to etcd: no endpoint is given; name at least one member's host and port"
    )]
    NoEndpoint,
    /// No endpoint could be used.
    #[error(
        "cannot connect to etcd: {}; check that etcd runs there, and that its certificates and ours are of one authority",
        list(.0)
    )]
    Connect(Vec<Attempt>),
    /// etcd answered, and refused.
    #[error("cannot {what}: etcd at {endpoint} refused: {said}; {}", refusal.advice())]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Who was asked.
        endpoint: String,
        /// What the refusal means.
        refusal: Refusal,
        /// etcd's own words.
        said: String,
    },
    /// The connection failed before an answer. What was asked may have happened all the same.
    #[error(
        "cannot {what}: the connection to etcd at {endpoint} failed: {why}; check that etcd runs there, then try again"
    )]
    Lost {
        /// What was asked.
        what: &'static str,
        /// Who was asked.
        endpoint: String,
        /// What the transport says.
        why: String,
    },
    /// No answer in time. What was asked may have happened all the same.
    #[error(
        "cannot {what}: etcd at {endpoint} did not answer within {within:?}; check its log and its disk, then try again"
    )]
    Silent {
        /// What was asked.
        what: &'static str,
        /// Who was asked.
        endpoint: String,
        /// How long was waited.
        within: Duration,
    },
    /// The answer lacks what etcd's answers have.
    #[error(
        "cannot {what}: the answer of etcd at {endpoint} cannot be used: {why}; check that etcd listens there, of a version that is supported"
    )]
    Broken {
        /// What was asked.
        what: &'static str,
        /// Who was asked.
        endpoint: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another has held the lock all the time, or etcd did not answer.
    #[error(
        "cannot lock {name}: etcd at {endpoint} did not give it within {within:?}, so another holds it; try again later"
    )]
    LockHeld {
        /// The lock's name.
        name: String,
        /// Who was asked.
        endpoint: String,
        /// How long was waited.
        within: Duration,
    },
    /// The lease of a lock ended while the lock was waited for.
    #[error(
        "cannot lock {name}: its lease at {endpoint} ended, because etcd could not be asked to keep it; try again"
    )]
    LockLost {
        /// The lock's name.
        name: String,
        /// Who was asked.
        endpoint: String,
    },
}

impl EtcdError {
    /// What etcd's refusal means, if it refused.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            EtcdError::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        }
    }

    /// The learner has not caught up with the leader: it can be promoted later.
    #[must_use]
    pub fn is_not_in_sync(&self) -> bool {
        self.refusal() == Some(Refusal::NotInSync)
    }

    /// No member has that id: it was removed already.
    #[must_use]
    pub fn is_member_not_found(&self) -> bool {
        self.refusal() == Some(Refusal::MemberNotFound)
    }

    /// The member votes already.
    #[must_use]
    pub fn is_not_a_learner(&self) -> bool {
        self.refusal() == Some(Refusal::NotALearner)
    }

    /// A member with that id or one of those peer URLs is there already.
    #[must_use]
    pub fn is_already_member(&self) -> bool {
        self.refusal() == Some(Refusal::AlreadyMember)
    }

    /// The change would cost the cluster its quorum, for too few members run.
    #[must_use]
    pub fn is_not_enough_started(&self) -> bool {
        self.refusal() == Some(Refusal::NotEnoughStarted)
    }

    /// A member has been out of reach within the last seconds, so members are not changed now.
    #[must_use]
    pub fn is_unhealthy(&self) -> bool {
        self.refusal() == Some(Refusal::Unhealthy)
    }

    /// Another member leads; only the leader does this.
    #[must_use]
    pub fn is_not_leader(&self) -> bool {
        self.refusal() == Some(Refusal::NotLeader)
    }

    /// The member asked is a learner, which does not do this.
    #[must_use]
    pub fn is_from_learner(&self) -> bool {
        self.refusal() == Some(Refusal::OfALearner)
    }

    /// The same call may succeed a little later, without anybody's doing.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            EtcdError::Connect(_)
            | EtcdError::Lost { .. }
            | EtcdError::Silent { .. }
            | EtcdError::LockHeld { .. }
            | EtcdError::LockLost { .. } => true,
            EtcdError::Refused { refusal, .. } => refusal.is_temporary(),
            EtcdError::NoEndpoint | EtcdError::Broken { .. } => false,
        }
    }

    /// The reason alone, for a list of endpoints.
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
        .map(|Attempt { endpoint, why }| format!("{endpoint}: {why}"));
    each.collect::<Vec<_>>().join("; ")
}

/// An error and its causes in one line.
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

/// Foreign words as they may stand in a line of a log.
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

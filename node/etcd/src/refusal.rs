//! Classification of etcd's errors.

use tonic::Code;

/// Meaning of a refusal, as far as callers distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The learner has not caught up with the leader.
    NotInSync,
    /// The member is not a learner, so it cannot be promoted.
    NotALearner,
    /// No member has that id.
    MemberNotFound,
    /// A member with that id or one of those peer URLs already exists.
    AlreadyMember,
    /// Too few members run for the change.
    NotEnoughStarted,
    /// A member was unreachable in the last seconds.
    Unhealthy,
    /// The cluster has reached its limit of learners.
    TooManyLearners,
    /// A peer URL is invalid.
    BadPeerUrl,
    /// There is no leader, or the leader has just changed.
    NoLeader,
    /// The connected member is not the leader.
    NotLeader,
    /// The chosen next leader cannot lead.
    BadTransferee,
    /// The connected member is a learner.
    OfALearner,
    /// The database has reached its size limit.
    NoSpace,
    /// The members' data differ.
    Corrupt,
    /// etcd is overloaded.
    Busy,
    /// etcd is shutting down.
    Stopping,
    /// The lease has expired.
    LeaseNotFound,
    /// A downgrade is already in progress.
    DowngradeRuns,
    /// No downgrade is in progress.
    NoDowngrade,
    /// The cluster cannot downgrade to that version.
    BadVersion,
    /// The caller lacks the permission.
    Denied,
    /// The member does not support the method.
    Unknown,
    /// Any other refusal.
    Other,
}

/// Endings of etcd's messages (`api/v3rpc/rpctypes/error.go`). A message forwarded by another member has a prefix.
const TEXTS: &[(&str, Refusal)] = &[
    (
        "can only promote a learner member which is in sync with leader",
        Refusal::NotInSync,
    ),
    ("can only promote a learner member", Refusal::NotALearner),
    ("member not found", Refusal::MemberNotFound),
    ("member ID already exist", Refusal::AlreadyMember),
    ("Peer URLs already exists", Refusal::AlreadyMember),
    (
        "re-configuration failed due to not enough started members",
        Refusal::NotEnoughStarted,
    ),
    ("unhealthy cluster", Refusal::Unhealthy),
    (
        "too many learner members in cluster",
        Refusal::TooManyLearners,
    ),
    ("given member URLs are invalid", Refusal::BadPeerUrl),
    ("no leader", Refusal::NoLeader),
    ("leader changed", Refusal::NoLeader),
    ("not leader", Refusal::NotLeader),
    ("bad leader transferee", Refusal::BadTransferee),
    ("rpc not supported for learner", Refusal::OfALearner),
    ("database space exceeded", Refusal::NoSpace),
    ("corrupt cluster", Refusal::Corrupt),
    ("too many requests", Refusal::Busy),
    ("request timed out", Refusal::Busy),
    ("possibly due to previous leader failure", Refusal::NoLeader),
    ("possibly due to connection lost", Refusal::NoLeader),
    ("waiting for the applied index took too long", Refusal::Busy),
    ("server stopped", Refusal::Stopping),
    ("requested lease not found", Refusal::LeaseNotFound),
    (
        "cluster has a downgrade job in progress",
        Refusal::DowngradeRuns,
    ),
    ("no inflight downgrade job", Refusal::NoDowngrade),
    ("wrong downgrade target version format", Refusal::BadVersion),
    ("invalid downgrade target version", Refusal::BadVersion),
    ("permission denied", Refusal::Denied),
];

impl Refusal {
    /// Classifies by etcd's message, which is more specific than its code.
    pub(crate) fn of(code: Code, text: &str) -> Refusal {
        let known = TEXTS.iter().find(|(end, _)| {
            let before = text.strip_suffix(end);
            before.is_some_and(|before| before.contains("etcdserver: "))
        });
        match (known, code) {
            (Some((_, refusal)), _) => *refusal,
            (None, Code::Unimplemented) => Refusal::Unknown,
            (None, _) => Refusal::Other,
        }
    }

    /// Whether the condition passes without intervention.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        matches!(
            self,
            Refusal::NotInSync
                | Refusal::Unhealthy
                | Refusal::NoLeader
                | Refusal::Busy
                | Refusal::Stopping
        )
    }

    /// Advice to the operator.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Refusal::NotInSync => "wait until the learner has caught up, then try again",
            Refusal::NotALearner => "the member has a vote already; no action is needed",
            Refusal::MemberNotFound => "list the members: the member may be removed already",
            Refusal::AlreadyMember => "list the members and remove the conflicting one",
            Refusal::NotEnoughStarted => {
                "start the members that are down, or remove one of them, then try again"
            }
            Refusal::Unhealthy => "wait until all members can reach each other, then try again",
            Refusal::TooManyLearners => "promote or remove the existing learner, then try again",
            Refusal::BadPeerUrl => "use URLs like https://192.0.2.1:2380",
            Refusal::NoLeader => {
                "try again; if the error persists, start members until more than half of them run"
            }
            Refusal::NotLeader => "send the request to the leader, which the status names",
            Refusal::BadTransferee => "choose a running member with a vote",
            Refusal::OfALearner => "send the request to a member with a vote",
            Refusal::NoSpace => "compact and defragment the database, then disarm the alarm",
            Refusal::Corrupt => {
                "find the member with differing data by its alarm, remove it and let it join again"
            }
            Refusal::Busy => "check the load and the disk of the members, then try again",
            Refusal::Stopping => "wait until etcd runs again, then try again",
            Refusal::LeaseNotFound => "request a new lease",
            Refusal::DowngradeRuns => "wait until the downgrade ends, or cancel it",
            Refusal::NoDowngrade => "no action is needed",
            Refusal::BadVersion => {
                "use the minor version before the version of the cluster, like 3.6.0"
            }
            Refusal::Denied => "use a certificate with this permission",
            Refusal::Unknown => "use a version of etcd that supports it",
            Refusal::Other => "read the log of etcd",
        }
    }
}

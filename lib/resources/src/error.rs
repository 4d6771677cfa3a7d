//! Why the store refuses.

use crate::metadata::{Phase, Pointer, Version};

/// Why the store refuses. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such resource.
    #[error("resource {0} does not exist")]
    NotFound(Pointer),
    /// There is one already.
    #[error("resource {0} exists already")]
    AlreadyExists(Pointer),
    /// Somebody else wrote it since it was read; read again.
    #[error("resource {pointer} is at version {found}, not {expected}: read it again")]
    VersionConflict {
        /// Which.
        pointer: Pointer,
        /// The version the write was made from.
        expected: Version,
        /// The version there is.
        found: Version,
    },
    /// It belongs to another.
    #[error("resource {pointer} belongs to {owner:?}, not to {writer:?}")]
    OwnerConflict {
        /// Which.
        pointer: Pointer,
        /// Whose it is.
        owner: &'static str,
        /// Who would write.
        writer: &'static str,
    },
    /// It is in another phase: as a rule it is being taken down.
    #[error("resource {pointer} is {found}, not {expected}")]
    PhaseConflict {
        /// Which.
        pointer: Pointer,
        /// The phase the write asks for.
        expected: Phase,
        /// The phase there is.
        found: Phase,
    },
    /// Somebody still holds it.
    #[error("resource {pointer} is held by {}", finalizers.join(", "))]
    PendingFinalizers {
        /// Which.
        pointer: Pointer,
        /// By whom.
        finalizers: Vec<&'static str>,
    },
    /// The type was never registered.
    #[error("resource type {0:?} is not registered")]
    UnknownType(String),
    /// No registered type lives in the namespace.
    #[error("namespace {0:?} does not exist")]
    UnknownNamespace(String),
    /// Two Rust types or two definitions claim one name.
    #[error("resource type {0:?} is defined twice")]
    TypeTaken(&'static str),
    /// A watch was asked to start at more than one place.
    #[error("a watch starts at a bookmark, at past events or at the present contents: choose one")]
    ManyStarts,
    /// A watch of one resource has no contents to list and nothing to select.
    #[error("a watch of one resource takes no contents and no query")]
    SingleWatch,
    /// The bookmark is of another kind or boot, or its place is forgotten.
    #[error("the bookmark is no longer known: list again")]
    BookmarkGone,
    /// The watcher was too slow: the next event it would have seen is forgotten.
    #[error("the watcher fell behind and missed {missed} events: watch again")]
    FellBehind {
        /// How many.
        missed: u64,
    },
    /// The expression of an id query cannot be used.
    #[error("id_query.regexp {expression:?}: {reason}")]
    InvalidExpression {
        /// What was asked for; the beginning of it, if it is long.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The terms of a label query are too many or too long.
    #[error("label_query: {limit}; select by fewer or shorter terms")]
    LabelQueryTooLarge {
        /// The limit it breaks.
        limit: String,
    },
    /// A controller did not declare what it does.
    #[error("controller {controller} did not declare that it {does} {what}")]
    Undeclared {
        /// Who.
        controller: &'static str,
        /// `reads`, `writes` or `holds`.
        does: &'static str,
        /// Namespace and type, and id if one was asked for.
        what: String,
    },
}

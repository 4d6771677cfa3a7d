//! Errors of the store.

use crate::metadata::{Phase, Pointer, Version};

/// The reason why the store refused a call. The call changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The resource does not exist.
    #[error("resource {0} does not exist")]
    NotFound(Pointer),
    /// The resource exists already.
    #[error("resource {0} exists already")]
    AlreadyExists(Pointer),
    /// Another writer changed the resource since it was read; the caller must read it again.
    #[error("resource {pointer} is at version {found}, not {expected}: read it again")]
    VersionConflict {
        /// Name of the resource.
        pointer: Pointer,
        /// Version that the write is based on.
        expected: Version,
        /// Version in the store.
        found: Version,
    },
    /// The resource belongs to another owner.
    #[error("resource {pointer} belongs to {owner:?}, not to {writer:?}")]
    OwnerConflict {
        /// Name of the resource.
        pointer: Pointer,
        /// Its owner.
        owner: &'static str,
        /// The refused writer.
        writer: &'static str,
    },
    /// The resource is in another phase, usually under teardown.
    #[error("resource {pointer} is {found}, not {expected}")]
    PhaseConflict {
        /// Name of the resource.
        pointer: Pointer,
        /// Phase that the write requires.
        expected: Phase,
        /// Phase in the store.
        found: Phase,
    },
    /// Finalizers still hold the resource.
    #[error("resource {pointer} is held by {}", finalizers.join(", "))]
    PendingFinalizers {
        /// Name of the resource.
        pointer: Pointer,
        /// Its finalizers.
        finalizers: Vec<&'static str>,
    },
    /// The type is not registered.
    #[error("resource type {0:?} is not registered")]
    UnknownType(String),
    /// No registered type uses the namespace.
    #[error("namespace {0:?} does not exist")]
    UnknownNamespace(String),
    /// Two Rust types or two definitions have the same name.
    #[error("resource type {0:?} is defined twice")]
    TypeTaken(&'static str),
    /// A watch has more than one start.
    #[error("a watch starts at a bookmark, at past events or at the present contents: choose one")]
    ManyStarts,
    /// A watch of a single resource takes neither contents nor a query.
    #[error("a watch of one resource takes no contents and no query")]
    SingleWatch,
    /// The bookmark belongs to another kind or boot, or its change is no longer in the history.
    #[error("the bookmark is no longer known: list again")]
    BookmarkGone,
    /// The watcher was too slow: its next event is no longer in the history.
    #[error("the watcher fell behind and missed {missed} events: watch again")]
    FellBehind {
        /// Number of missed events.
        missed: u64,
    },
    /// The expression of an id query is invalid or too large.
    #[error("id_query.regexp {expression:?}: {reason}")]
    InvalidExpression {
        /// The expression; a long one is truncated.
        expression: String,
        /// Reason of the refusal.
        reason: String,
    },
    /// The label query has too many terms, or too long ones.
    #[error("label_query: {limit}; select by fewer or shorter terms")]
    LabelQueryTooLarge {
        /// The exceeded limit.
        limit: String,
    },
    /// A controller made a call that it did not declare.
    #[error("controller {controller} did not declare that it {does} {what}")]
    Undeclared {
        /// Name of the controller.
        controller: &'static str,
        /// `reads`, `writes` or `holds`.
        does: &'static str,
        /// Namespace and type, and the id if the call has one.
        what: String,
    },
}

//! Metadata: the part of a resource beside its spec.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::Spec;

/// The unique name of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointer {
    /// The namespace.
    pub namespace: &'static str,
    /// The type's full name, for example `Services.v1alpha1.talos.dev`.
    pub type_name: &'static str,
    /// Id, unique within namespace and type.
    pub id: Arc<str>,
}

impl Pointer {
    /// Points to the resource of type `S` with this id, in the type's default namespace.
    #[must_use]
    pub fn of<S: Spec>(id: &str) -> Pointer {
        Pointer {
            namespace: S::DEFINITION.default_namespace,
            type_name: S::DEFINITION.type_name,
            id: id.into(),
        }
    }

    /// The same resource name in another namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &'static str) -> Pointer {
        self.namespace = namespace;
        self
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.type_name, self.id)
    }
}

/// Number of writes to a resource, from 1. [`Version::UNDEFINED`] is the version of a resource that is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Version of a resource that is not stored.
    pub const UNDEFINED: Version = Version(0);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Version::UNDEFINED => f.write_str("undefined"),
            Version(number) => write!(f, "{number}"),
        }
    }
}

/// Lifecycle phase of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// In use.
    Running,
    /// Under teardown: its owner wants it removed, and it can be destroyed once its last finalizer is gone.
    TearingDown,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Running => "running",
            Phase::TearingDown => "tearingDown",
        })
    }
}

/// Labels or annotations; only labels can be queried.
pub type Tags = BTreeMap<String, String>;

/// Metadata: the part of a resource beside its spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Name of the resource.
    pub pointer: Pointer,
    /// Number of writes.
    pub version: Version,
    /// Controller that may write it; empty: every holder of the store may.
    pub owner: &'static str,
    /// Lifecycle phase.
    pub phase: Phase,
    /// Labels, for queries.
    pub labels: Tags,
    /// Annotations, for people and clients.
    pub annotations: Tags,
    /// Finalizers that block its destruction, in order of their addition.
    pub finalizers: Vec<&'static str>,
    /// Time of the first write.
    pub created: SystemTime,
    /// Time of the last write.
    pub updated: SystemTime,
}

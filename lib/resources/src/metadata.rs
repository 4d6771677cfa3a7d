//! What every resource carries beside its spec.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::Spec;

/// Names one resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointer {
    /// The namespace.
    pub namespace: &'static str,
    /// The type's full name, for example `Services.v1alpha1.talos.dev`.
    pub type_name: &'static str,
    /// Unique within namespace and type.
    pub id: Arc<str>,
}

impl Pointer {
    /// The resource of type `S` with this id, in the type's own namespace.
    #[must_use]
    pub fn of<S: Spec>(id: &str) -> Pointer {
        Pointer {
            namespace: S::DEFINITION.default_namespace,
            type_name: S::DEFINITION.type_name,
            id: id.into(),
        }
    }

    /// The same in another namespace.
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

/// Counts the writes to one resource, from 1. [`Version::UNDEFINED`] is that of a resource not stored yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Of what is not in the store.
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

/// Whether a resource is there to stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is.
    Running,
    /// Its owner wants it gone; it goes when the last finalizer does.
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

/// Labels or annotations. Labels can be queried.
pub type Tags = BTreeMap<String, String>;

/// What every resource carries beside its spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// The resource's name.
    pub pointer: Pointer,
    /// Counts its writes.
    pub version: Version,
    /// The controller that may write it; empty when everyone who holds the store may.
    pub owner: &'static str,
    /// Whether it is being taken down.
    pub phase: Phase,
    /// For queries.
    pub labels: Tags,
    /// For people and clients.
    pub annotations: Tags,
    /// Who must let go before it can be destroyed, in the order they came.
    pub finalizers: Vec<&'static str>,
    /// When it was first written.
    pub created: SystemTime,
    /// When it was last written.
    pub updated: SystemTime,
}

//! Controllers: each reads some kinds of resources, writes others, and does so again whenever what it reads
//! changes.
//!
//! What a controller reads and writes is declared, checked at every call, and printable ([`Graph`]). It is
//! run by the [`Runtime`], alone: when it fails or panics, it is started anew after a while, from the state
//! it was registered with, and nobody else notices.

mod backoff;
mod context;
mod graph;
mod runtime;
#[cfg(test)]
mod tests;

use std::error::Error as StdError;
use std::sync::Arc;

use crate::error::StoreError;
use crate::resource::{Definition, Spec, has_message};
use crate::store::Store;

pub use context::Context;
pub use graph::{Graph, GraphError};
pub use runtime::{Notice, Runtime, with_causes};

/// Why a controller's run ended.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// A controller. Each run is made by a clone, so a failed one leaves nothing behind but its outputs.
pub trait Controller: Clone + Send + Sync + 'static {
    /// Its unique name, and the owner of what it writes: `network.AddressStatusController`.
    fn name(&self) -> &'static str;

    /// What it reads; some read what is no resource.
    fn inputs(&self) -> Vec<Input> {
        Vec::new()
    }

    /// What it writes.
    fn outputs(&self) -> Vec<Output>;

    /// Works until there is nothing to do any more: as a rule a loop around [`Context::event`], whose first
    /// event comes at once. After `Ok` it is not started again.
    fn run(self, context: &mut Context) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// How a controller depends on what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependency {
    /// It is called at every change, and may hold what it reads with a finalizer.
    Strong,
    /// It is called at every change.
    Weak,
    /// It is called when a resource can be destroyed: it is being taken down and nobody holds it. For what
    /// the controller itself made.
    DestroyReady,
}

/// A kind, or one resource, that a controller reads.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// The type.
    pub definition: Definition,
    /// The namespace.
    pub namespace: &'static str,
    /// One resource, if it is but one.
    pub id: Option<&'static str>,
    /// How it depends on it.
    pub dependency: Dependency,
    register: fn(&Store) -> Result<(), StoreError>,
}

impl Input {
    /// A kind, in its own namespace.
    #[must_use]
    pub fn of<S: Spec>(dependency: Dependency) -> Input {
        Input {
            definition: S::DEFINITION,
            namespace: S::DEFINITION.default_namespace,
            id: None,
            dependency,
            register: Store::register::<S>,
        }
    }

    /// In another namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &'static str) -> Input {
        Input { namespace, ..self }
    }

    /// One resource of it.
    #[must_use]
    pub fn with_id(self, id: &'static str) -> Input {
        Input {
            id: Some(id),
            ..self
        }
    }
}

/// Whether others may write a type, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Nobody else.
    Exclusive,
    /// Others, too; each only what it made.
    Shared,
}

/// A type a controller writes, in whatever namespace.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// The type.
    pub definition: Definition,
    /// Whether others may write it.
    pub ownership: Ownership,
    /// Whether clients have a message for it ([`Spec::Message`]).
    has_message: bool,
    register: fn(&Store) -> Result<(), StoreError>,
}

impl Output {
    /// A type nobody else writes.
    #[must_use]
    pub fn exclusive<S: Spec>() -> Output {
        Output {
            definition: S::DEFINITION,
            ownership: Ownership::Exclusive,
            has_message: has_message::<S>(),
            register: Store::register::<S>,
        }
    }

    /// A type others write, too.
    #[must_use]
    pub fn shared<S: Spec>() -> Output {
        Output {
            ownership: Ownership::Shared,
            ..Output::exclusive::<S>()
        }
    }
}

/// What a controller declares.
#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub(crate) name: &'static str,
    pub(crate) inputs: Arc<[Input]>,
    pub(crate) outputs: Arc<[Output]>,
}

impl Declaration {
    fn of(controller: &impl Controller) -> Declaration {
        Declaration {
            name: controller.name(),
            inputs: controller.inputs().into(),
            outputs: controller.outputs().into(),
        }
    }
}

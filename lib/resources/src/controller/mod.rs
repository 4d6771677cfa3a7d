//! Controllers: each reads some kinds of resources, writes others, and reconciles whenever an input changes.
//!
//! Inputs and outputs are declared, checked at every call, and printable ([`Graph`]). The [`Runtime`] restarts a failed
//! or panicked controller alone, with a backoff, from the state at its registration.

mod backoff;
mod context;
mod graph;
mod runtime;
#[cfg(test)]
mod tests;

use std::error::Error as StdError;
use std::sync::Arc;

use crate::resource::{Definition, Spec, has_message};
use crate::store::Type;

pub use context::Context;
pub use graph::{Graph, GraphError};
pub use runtime::{Notice, Runtime, with_causes};

/// The error of a controller's run.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// A controller. Each run uses a clone, so only its outputs survive a failed run.
pub trait Controller: Clone + Send + Sync + 'static {
    /// Unique name, and owner of its outputs: `network.AddressStatusController`.
    fn name(&self) -> &'static str;

    /// Inputs; some controllers only read sources outside of the store.
    fn inputs(&self) -> Vec<Input> {
        Vec::new()
    }

    /// Outputs.
    fn outputs(&self) -> Vec<Output>;

    /// Runs until there is nothing left to do, usually as a loop around [`Context::event`], whose first call returns at
    /// once. After `Ok` it is not started again.
    fn run(self, context: &mut Context) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The dependency of a controller on an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependency {
    /// Woken at every change; may hold the input with a finalizer.
    Strong,
    /// Woken at every change.
    Weak,
    /// Woken when a resource can be destroyed: it is under teardown and has no finalizers. For the controller's own
    /// outputs.
    DestroyReady,
}

/// A kind, or one resource, as an input.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// Definition of the type.
    pub definition: Definition,
    /// Namespace.
    pub namespace: &'static str,
    /// Id, for a single resource.
    pub id: Option<&'static str>,
    /// Kind of dependency.
    pub dependency: Dependency,
    registered: Type,
}

impl Input {
    /// A type in its default namespace.
    #[must_use]
    pub fn of<S: Spec>(dependency: Dependency) -> Input {
        Input {
            definition: S::DEFINITION,
            namespace: S::DEFINITION.default_namespace,
            id: None,
            dependency,
            registered: Type::of::<S>(),
        }
    }

    /// The same type in another namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &'static str) -> Input {
        Input { namespace, ..self }
    }

    /// Only the resource with this id.
    #[must_use]
    pub fn with_id(self, id: &'static str) -> Input {
        Input {
            id: Some(id),
            ..self
        }
    }
}

/// Whether several controllers may write a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Only this controller writes it.
    Exclusive,
    /// Other controllers write it too, each only its own resources.
    Shared,
}

/// A type that a controller writes, in any namespace.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// Definition of the type.
    pub definition: Definition,
    /// Exclusive or shared.
    pub ownership: Ownership,
    /// Whether the type has a message for clients ([`Spec::Message`]).
    has_message: bool,
    registered: Type,
}

impl Output {
    /// A type that only this controller writes.
    #[must_use]
    pub fn exclusive<S: Spec>() -> Output {
        Output {
            definition: S::DEFINITION,
            ownership: Ownership::Exclusive,
            has_message: has_message::<S>(),
            registered: Type::of::<S>(),
        }
    }

    /// A type that other controllers write too.
    #[must_use]
    pub fn shared<S: Spec>() -> Output {
        Output {
            ownership: Ownership::Shared,
            ..Output::exclusive::<S>()
        }
    }
}

/// The declaration of a controller.
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

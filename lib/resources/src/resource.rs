//! The spec of a type, and resources with a known or an erased type.

use std::any::{Any, TypeId};
use std::fmt::{self, Debug};
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use prost::Message as _;
use serde::Serialize;

use crate::metadata::{Metadata, Phase, Pointer, Tags, Version};

/// The readers of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sensitivity {
    /// Every reader.
    NonSensitive,
    /// Administrators only, because it may hold secrets. A call through another node gets the spec without them
    /// ([`Spec::masked`]).
    Masked,
    /// Administrators only, because it holds secrets.
    Sensitive,
}

/// A column of the client's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// JSON path into the spec, without braces: `.address`.
    pub path: &'static str,
}

/// The definition of a resource type; the source of its `ResourceDefinition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Unique plural name: `Services.v1alpha1.talos.dev`.
    pub type_name: &'static str,
    /// Default namespace of its resources.
    pub default_namespace: &'static str,
    /// Short names in addition to those derived from `type_name` (see [`crate::meta`]).
    pub aliases: &'static [&'static str],
    /// Columns of the client's table.
    pub columns: &'static [Column],
    /// Readers of the type.
    pub sensitivity: Sensitivity,
    /// Whether clients may use only the full name and `aliases`, because the derived short names belong to another
    /// type.
    pub only_declared_aliases: bool,
}

/// The typed part of a resource.
///
/// Its YAML form is that of `Serialize`: clients know the field names and their order.
pub trait Spec: Serialize + Clone + PartialEq + Debug + Send + Sync + 'static {
    /// Definition of the type.
    const DEFINITION: Definition;

    /// Whether a spec may be megabytes long, or hold secrets that must not outlive their replacement. The history of
    /// such a type is short.
    const IS_LARGE: bool = false;

    /// Protobuf message for clients that decode the spec; `()` for a type without one, which clients get as YAML only.
    type Message: prost::Message + 'static;

    /// Converts the spec to the message.
    fn message(&self) -> Self::Message;

    /// The spec without what may be secret, for a type that is [`Sensitivity::Masked`]; otherwise `None`.
    fn masked(&self) -> Option<Self> {
        None
    }
}

/// Whether the type has a message for clients.
pub(crate) fn has_message<S: Spec>() -> bool {
    TypeId::of::<S::Message>() != TypeId::of::<()>()
}

/// A spec with an erased type. Implemented for every [`Spec`].
pub trait AnySpec: Any + Debug + Send + Sync {
    /// Definition of its type.
    fn definition(&self) -> Definition;
    /// The spec as YAML.
    ///
    /// # Errors
    /// The serializer's error, for a spec that YAML cannot represent.
    fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError>;
    /// [`Spec::message`], encoded; empty for a type without one.
    fn to_proto(&self) -> Vec<u8>;
    /// [`Spec::masked`].
    fn to_masked(&self) -> Option<Arc<dyn AnySpec>>;
    /// Whether both have the same type and are equal.
    fn equals(&self, other: &dyn AnySpec) -> bool;
}

impl<S: Spec> AnySpec for S {
    fn definition(&self) -> Definition {
        S::DEFINITION
    }

    fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError> {
        serde_saphyr::to_string(self)
    }

    fn to_proto(&self) -> Vec<u8> {
        self.message().encode_to_vec()
    }

    fn to_masked(&self) -> Option<Arc<dyn AnySpec>> {
        let masked = self.masked()?;
        Some(Arc::new(masked))
    }

    fn equals(&self, other: &dyn AnySpec) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<S>().is_some_and(|other| self == other)
    }
}

/// A resource of any type. A clone shares the spec.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Metadata.
    pub metadata: Metadata,
    pub(crate) spec: Arc<dyn AnySpec>,
}

impl Resource {
    /// The spec with an erased type.
    #[must_use]
    pub fn spec(&self) -> &dyn AnySpec {
        self.spec.as_ref()
    }

    /// The name of the resource.
    #[must_use]
    pub fn pointer(&self) -> &Pointer {
        &self.metadata.pointer
    }

    /// The resource with its spec [masked](Spec::masked); `None` if its type has no such form.
    #[must_use]
    pub fn masked(&self) -> Option<Resource> {
        Some(Resource {
            metadata: self.metadata.clone(),
            spec: self.spec.to_masked()?,
        })
    }

    /// Replaces the spec, for [`crate::Store::update`]. The type must be the same.
    pub fn set_spec<S: Spec>(&mut self, spec: S) {
        self.spec = Arc::new(spec);
    }

    pub(crate) fn spec_type(&self) -> TypeId {
        type_of(self.spec.as_ref())
    }
}

fn type_of(spec: &dyn AnySpec) -> TypeId {
    let spec: &dyn Any = spec;
    spec.type_id()
}

/// A stored resource of a known type; dereferences to its spec.
#[derive(Debug)]
pub struct Typed<S> {
    resource: Arc<Resource>,
    spec: Arc<S>,
}

impl<S: Spec> Typed<S> {
    /// Casts a resource; `None` when it has another type.
    #[must_use]
    pub fn new(resource: Arc<Resource>) -> Option<Typed<S>> {
        let spec: Arc<dyn Any + Send + Sync> = resource.spec.clone();
        let spec = spec.downcast().ok()?;
        Some(Typed { resource, spec })
    }

    /// The metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.resource.metadata
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.resource.metadata.pointer.id
    }

    /// The resource with an erased type.
    #[must_use]
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }
}

impl<S> Deref for Typed<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.spec
    }
}

/// A resource to write. Its spec has an erased type, so that the code of a write exists once and not for each type.
#[derive(Clone)]
pub struct Draft {
    pub(crate) pointer: Pointer,
    pub(crate) labels: Tags,
    pub(crate) annotations: Tags,
    pub(crate) spec: Arc<dyn AnySpec>,
}

impl Draft {
    /// A draft in the type's default namespace, without labels.
    #[must_use]
    pub fn new<S: Spec>(id: &str, spec: S) -> Draft {
        Draft {
            pointer: Pointer::of::<S>(id),
            labels: Tags::new(),
            annotations: Tags::new(),
            spec: Arc::new(spec),
        }
    }

    /// Moves the draft to another namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &'static str) -> Draft {
        self.pointer.namespace = namespace;
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Draft {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Draft {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn into_resource(self, owner: &'static str) -> Resource {
        let now = SystemTime::now();
        Resource {
            metadata: Metadata {
                pointer: self.pointer,
                version: Version::UNDEFINED,
                owner,
                phase: Phase::Running,
                labels: self.labels,
                annotations: self.annotations,
                finalizers: Vec::new(),
                created: now,
                updated: now,
            },
            spec: self.spec,
        }
    }

    pub(crate) fn spec_type(&self) -> TypeId {
        type_of(self.spec.as_ref())
    }
}

impl Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("pointer", &self.pointer)
            .finish_non_exhaustive()
    }
}

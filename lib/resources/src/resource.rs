//! A spec's type, and a resource with its spec's type known or erased.

use std::any::{Any, TypeId};
use std::fmt::{self, Debug};
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use prost::Message as _;
use serde::Serialize;

use crate::metadata::{Metadata, Phase, Pointer, Tags, Version};

/// Whether everyone who may read may read a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sensitivity {
    /// Every reader may.
    NonSensitive,
    /// Administrators only: it holds secrets.
    Sensitive,
}

/// A column of a client's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Column {
    /// The column's name.
    pub name: &'static str,
    /// A JSON path into the spec, without braces: `.address`.
    pub path: &'static str,
}

/// What is known of a type of resource; the source of its `ResourceDefinition`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Plural, and unique: `Services.v1alpha1.talos.dev`.
    pub type_name: &'static str,
    /// Where its resources are unless said otherwise.
    pub default_namespace: &'static str,
    /// Short names beside those made from `type_name` (see [`crate::meta`]).
    pub aliases: &'static [&'static str],
    /// What a client's table shows.
    pub columns: &'static [Column],
    /// Who may read it.
    pub sensitivity: Sensitivity,
    /// Whether a client may call it by its full name and by `aliases` alone, as other short names are those of
    /// another type.
    pub only_declared_aliases: bool,
}

/// The typed part of a resource.
///
/// As YAML it is what `Serialize` says: field names and their order are those clients know.
pub trait Spec: Serialize + Clone + PartialEq + Debug + Send + Sync + 'static {
    /// Its type.
    const DEFINITION: Definition;

    /// Whether one may be megabytes long, or hold secrets that are not to be kept when they were replaced: few changes
    /// of it are remembered.
    const IS_LARGE: bool = false;

    /// The protobuf message of clients that decode it; `()` of a type for which they have none, and get the
    /// YAML alone.
    type Message: prost::Message + 'static;

    /// The spec as that message.
    fn message(&self) -> Self::Message;
}

/// Whether clients have a message for it.
pub(crate) fn has_message<S: Spec>() -> bool {
    TypeId::of::<S::Message>() != TypeId::of::<()>()
}

/// A spec whose type only its own code knows. Implemented for every [`Spec`].
pub trait AnySpec: Any + Debug + Send + Sync {
    /// Its type.
    fn definition(&self) -> Definition;
    /// Its YAML.
    ///
    /// # Errors
    /// The serializer's, for a spec YAML has no words for.
    fn to_yaml(&self) -> Result<String, serde_saphyr::SerializeError>;
    /// [`Spec::message`] as bytes; none of a type that has none.
    fn to_proto(&self) -> Vec<u8>;
    /// Whether both are of one type and equal.
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

    fn equals(&self, other: &dyn AnySpec) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<S>().is_some_and(|other| self == other)
    }
}

/// A resource of any type. Cloning it does not copy the spec.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Everything but the spec.
    pub metadata: Metadata,
    pub(crate) spec: Arc<dyn AnySpec>,
}

impl Resource {
    /// The spec, its type erased.
    #[must_use]
    pub fn spec(&self) -> &dyn AnySpec {
        self.spec.as_ref()
    }

    /// The resource's name.
    #[must_use]
    pub fn pointer(&self) -> &Pointer {
        &self.metadata.pointer
    }

    /// Puts another spec in its place, for [`crate::Store::update`]. The type must stay.
    pub fn set_spec<S: Spec>(&mut self, spec: S) {
        self.spec = Arc::new(spec);
    }

    pub(crate) fn spec_type(&self) -> TypeId {
        let spec: &dyn Any = self.spec.as_ref();
        spec.type_id()
    }
}

/// A stored resource of a known type; reads as its spec.
#[derive(Debug)]
pub struct Typed<S> {
    resource: Arc<Resource>,
    spec: Arc<S>,
}

impl<S: Spec> Typed<S> {
    /// `None` when the resource is of another type.
    #[must_use]
    pub fn new(resource: Arc<Resource>) -> Option<Typed<S>> {
        let spec: Arc<dyn Any + Send + Sync> = resource.spec.clone();
        let spec = spec.downcast().ok()?;
        Some(Typed { resource, spec })
    }

    /// Everything but the spec.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.resource.metadata
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.resource.metadata.pointer.id
    }

    /// The resource, its type erased.
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

/// A resource to be written.
#[derive(Clone)]
pub struct Draft<S> {
    pub(crate) pointer: Pointer,
    pub(crate) labels: Tags,
    pub(crate) annotations: Tags,
    pub(crate) spec: S,
}

impl<S: Spec> Draft<S> {
    /// In the type's own namespace, without labels.
    #[must_use]
    pub fn new(id: &str, spec: S) -> Draft<S> {
        Draft {
            pointer: Pointer::of::<S>(id),
            labels: Tags::new(),
            annotations: Tags::new(),
            spec,
        }
    }

    /// In another namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &'static str) -> Draft<S> {
        self.pointer.namespace = namespace;
        self
    }

    /// With one more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Draft<S> {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With one more annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Draft<S> {
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
            spec: Arc::new(self.spec),
        }
    }
}

impl<S: Spec> Debug for Draft<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("pointer", &self.pointer)
            .finish_non_exhaustive()
    }
}

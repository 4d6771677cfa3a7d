//! The store: all resources of the node, in memory.
//!
//! Each kind (type and namespace) has its own lock. So writes to one kind are ordered and do not wait for other kinds.
//! No call blocks: a write copies, swaps a pointer and wakes watchers.

#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;
mod write;

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Notify;

use crate::error::StoreError;
use crate::history::{self, Bounds};
use crate::kind::Kind;
use crate::meta::{self, Namespace, ResourceDefinition};
use crate::metadata::Pointer;
use crate::query::Query;
use crate::resource::{Definition, Draft, Resource, Spec, Typed};
use crate::watch::{Start, Watcher};

/// Type and namespace.
type KindName = (&'static str, &'static str);

/// A type that can be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Type {
    id: TypeId,
    definition: Definition,
    /// Limits of the history of each of its kinds.
    bounds: Bounds,
}

impl Type {
    pub(crate) fn of<S: Spec>() -> Type {
        Type {
            id: TypeId::of::<S>(),
            definition: S::DEFINITION,
            bounds: if S::IS_LARGE {
                history::LARGE
            } else {
                history::USUAL
            },
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    types: BTreeMap<&'static str, Type>,
    namespaces: BTreeSet<&'static str>,
    kinds: HashMap<KindName, Arc<Kind>>,
}

/// The store. A cheap handle: clones share the store.
#[derive(Debug, Clone)]
pub struct Store(Arc<RwLock<Inner>>);

impl Default for Store {
    fn default() -> Store {
        Store::new()
    }
}

impl Store {
    /// A store with only the types that describe it ([`crate::meta`]).
    #[must_use]
    pub fn new() -> Store {
        let store = Store(Arc::default());
        let known = store
            .declare(Type::of::<Namespace>())
            .and_then(|()| store.register::<ResourceDefinition>())
            .and_then(|()| store.register::<Namespace>());
        debug_assert!(known.is_ok(), "an empty store takes any type");
        store
    }

    /// Registers a type and its namespace. Registering the same type again has no effect.
    ///
    /// # Errors
    /// [`StoreError::TypeTaken`] when another Rust type has the name.
    pub fn register<S: Spec>(&self) -> Result<(), StoreError> {
        self.register_type(Type::of::<S>())
    }

    pub(crate) fn register_type(&self, new: Type) -> Result<(), StoreError> {
        self.declare(new)?;
        self.add_namespace(new.definition.default_namespace, "")?;
        let id = new.definition.type_name.to_lowercase();
        let definition = ResourceDefinition::from(new.definition);
        self.put(Draft::new(&id, definition), "").map(drop)
    }

    fn declare(&self, new: Type) -> Result<(), StoreError> {
        let name = new.definition.type_name;
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        inner.namespaces.insert(meta::NAMESPACE);
        let known = inner.types.entry(name).or_insert(new);
        if *known != new {
            return Err(StoreError::TypeTaken(name));
        }
        Ok(())
    }

    /// Registers a namespace. An empty description keeps the present one.
    ///
    /// # Errors
    /// None, unless another owner writes namespaces.
    pub fn add_namespace(&self, name: &'static str, description: &str) -> Result<(), StoreError> {
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        inner.namespaces.insert(name);
        drop(inner);
        if description.is_empty() && self.get_as::<Namespace>(name).is_some() {
            return Ok(());
        }
        let description = description.to_owned();
        let namespace = Draft::new(name, Namespace { description });
        self.put(namespace, "").map(drop)
    }

    /// The definition of a registered type.
    #[must_use]
    pub fn definition(&self, type_name: &str) -> Option<Definition> {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        inner.types.get(type_name).map(|known| known.definition)
    }

    /// The definitions of all registered types, by name.
    #[must_use]
    pub fn definitions(&self) -> Vec<Definition> {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        inner.types.values().map(|known| known.definition).collect()
    }

    /// The name of a resource that an external caller asks for.
    ///
    /// # Errors
    /// [`StoreError::UnknownType`], [`StoreError::UnknownNamespace`].
    pub fn pointer(
        &self,
        namespace: &str,
        type_name: &str,
        id: &str,
    ) -> Result<Pointer, StoreError> {
        let ((type_name, namespace), _) = self.name(namespace, type_name)?;
        let id = id.into();
        Ok(Pointer {
            namespace,
            type_name,
            id,
        })
    }

    fn name(&self, namespace: &str, type_name: &str) -> Result<(KindName, Bounds), StoreError> {
        let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = inner.types.get(type_name);
        let known = known.ok_or_else(|| StoreError::UnknownType(type_name.to_owned()))?;
        let (type_name, bounds) = (known.definition.type_name, known.bounds);
        let known = inner.namespaces.get(namespace);
        let namespace = known.ok_or_else(|| StoreError::UnknownNamespace(namespace.to_owned()))?;
        Ok(((type_name, namespace), bounds))
    }

    fn kind(&self, namespace: &str, type_name: &str) -> Result<Arc<Kind>, StoreError> {
        {
            let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(kind) = inner.kinds.get(&(type_name, namespace)) {
                return Ok(kind.clone());
            }
        }
        let (name, bounds) = self.name(namespace, type_name)?;
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let kind = inner
            .kinds
            .entry(name)
            .or_insert_with(|| Arc::new(Kind::new(bounds)));
        Ok(kind.clone())
    }

    fn kind_of(&self, pointer: &Pointer) -> Result<Arc<Kind>, StoreError> {
        self.kind(pointer.namespace, pointer.type_name)
    }

    /// Reads one resource.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::UnknownType`], [`StoreError::UnknownNamespace`].
    pub fn get(&self, pointer: &Pointer) -> Result<Arc<Resource>, StoreError> {
        let kind = self.kind_of(pointer)?;
        let found = kind.state().resources.get(&pointer.id).cloned();
        found.ok_or_else(|| StoreError::NotFound(pointer.clone()))
    }

    /// Reads one resource of a known type in its default namespace; `None` when it does not exist.
    #[must_use]
    pub fn get_as<S: Spec>(&self, id: &str) -> Option<Typed<S>> {
        self.get(&Pointer::of::<S>(id)).ok().and_then(Typed::new)
    }

    /// Reads the resources of a kind that match a query, by id, as one consistent snapshot.
    ///
    /// # Errors
    /// [`StoreError::UnknownType`], [`StoreError::UnknownNamespace`].
    pub fn list(
        &self,
        namespace: &str,
        type_name: &str,
        query: &Query,
    ) -> Result<Vec<Arc<Resource>>, StoreError> {
        let kind = self.kind(namespace, type_name)?;
        if query.is_all() {
            return Ok(kind.state().resources.values().cloned().collect());
        }
        // Matching may be slow, so it runs outside of the lock.
        let all: Vec<_> = kind.state().resources.values().cloned().collect();
        Ok(query.select(all.iter()))
    }

    /// Reads all resources of a known type in its default namespace, by id.
    #[must_use]
    pub fn list_as<S: Spec>(&self) -> Vec<Typed<S>> {
        let definition = S::DEFINITION;
        self.list(
            definition.default_namespace,
            definition.type_name,
            &Query::default(),
        )
        .unwrap_or_default()
        .into_iter()
        .filter_map(Typed::new)
        .collect()
    }

    /// Watches one resource. With [`Start::Now`] the first event is its present state.
    ///
    /// # Errors
    /// [`StoreError::SingleWatch`], [`StoreError::BookmarkGone`], [`StoreError::UnknownType`],
    /// [`StoreError::UnknownNamespace`].
    pub fn watch(&self, pointer: &Pointer, start: Start) -> Result<Watcher, StoreError> {
        Watcher::of_one(self.kind_of(pointer)?, pointer, start)
    }

    /// Watches the resources of a kind that match a query. A resource that begins to match appears as created, one that
    /// ceases to match as destroyed.
    ///
    /// # Errors
    /// [`StoreError::BookmarkGone`], [`StoreError::UnknownType`], [`StoreError::UnknownNamespace`].
    pub fn watch_kind(
        &self,
        namespace: &str,
        type_name: &str,
        query: Query,
        start: Start,
    ) -> Result<Watcher, StoreError> {
        Watcher::of_kind(self.kind(namespace, type_name)?, query, start)
    }

    /// [`Store::watch_kind`] for a caller that waits for several watches at once.
    pub(crate) fn watch_waking(
        &self,
        namespace: &str,
        type_name: &str,
        start: Start,
        wake: Arc<Notify>,
    ) -> Result<Watcher, StoreError> {
        Watcher::waking(
            self.kind(namespace, type_name)?,
            Query::default(),
            start,
            wake,
        )
    }
}

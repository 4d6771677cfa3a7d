//! Writes: optimistic concurrency, ownership, and teardown with finalizers.

use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use super::Store;
use crate::error::StoreError;
use crate::history::Change;
use crate::kind::{Kind, Resources};
use crate::metadata::{Phase, Pointer, Version};
use crate::resource::{Draft, Resource};

impl Store {
    /// Stores a new resource.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], [`StoreError::UnknownType`], [`StoreError::UnknownNamespace`],
    /// [`StoreError::TypeTaken`].
    pub fn create(&self, draft: Draft, owner: &'static str) -> Result<Arc<Resource>, StoreError> {
        let (kind, pointer) = self.kind_for(&draft)?;
        kind.write(|resources| {
            if resources.contains_key(&pointer.id) {
                return Err(StoreError::AlreadyExists(pointer));
            }
            Ok(insert(resources, draft, owner))
        })
    }

    /// Stores a modified copy of a resource. Spec, labels and annotations come from the copy; finalizers and phase have
    /// their own calls. `expected` is the required phase, if any.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::VersionConflict`], [`StoreError::OwnerConflict`],
    /// [`StoreError::PhaseConflict`], [`StoreError::TypeTaken`].
    pub fn update(
        &self,
        resource: Resource,
        writer: &'static str,
        expected: Option<Phase>,
    ) -> Result<Arc<Resource>, StoreError> {
        let pointer = resource.pointer().clone();
        self.kind_of(&pointer)?.write(|resources| {
            let current = find(resources, &pointer)?;
            check_owner(current, writer)?;
            if current.metadata.version != resource.metadata.version {
                return Err(StoreError::VersionConflict {
                    pointer,
                    expected: resource.metadata.version,
                    found: current.metadata.version,
                });
            }
            if let Some(expected) = expected {
                check_phase(current, expected)?;
            }
            if resource.spec_type() != current.spec_type() {
                return Err(StoreError::TypeTaken(current.metadata.pointer.type_name));
            }
            let mut next = Resource::clone(current);
            next.metadata.labels = resource.metadata.labels;
            next.metadata.annotations = resource.metadata.annotations;
            next.spec = resource.spec;
            Ok(replace(resources, next))
        })
    }

    /// Creates or replaces a resource; does nothing when it is equal already.
    ///
    /// # Errors
    /// [`StoreError::OwnerConflict`]; [`StoreError::PhaseConflict`] when the resource is under teardown; and those of
    /// [`Store::create`] except [`StoreError::AlreadyExists`].
    pub fn put(&self, draft: Draft, owner: &'static str) -> Result<Arc<Resource>, StoreError> {
        let (kind, pointer) = self.kind_for(&draft)?;
        kind.write(|resources| {
            let Some(current) = resources.get(&pointer.id) else {
                return Ok(insert(resources, draft, owner));
            };
            check_owner(current, owner)?;
            check_phase(current, Phase::Running)?;
            let metadata = &current.metadata;
            if metadata.labels == draft.labels
                && metadata.annotations == draft.annotations
                && current.spec().equals(draft.spec.as_ref())
            {
                return Ok((current.clone(), None));
            }
            let mut next = Resource::clone(current);
            next.metadata.labels = draft.labels;
            next.metadata.annotations = draft.annotations;
            next.spec = draft.spec;
            Ok(replace(resources, next))
        })
    }

    /// Starts the teardown of a resource, so that its holders remove their finalizers. Returns whether it can be
    /// destroyed now.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::OwnerConflict`].
    pub fn teardown(&self, pointer: &Pointer, writer: &'static str) -> Result<bool, StoreError> {
        self.kind_of(pointer)?.write(|resources| {
            let current = find(resources, pointer)?;
            check_owner(current, writer)?;
            let ready = current.metadata.finalizers.is_empty();
            if current.metadata.phase == Phase::TearingDown {
                return Ok((ready, None));
            }
            let mut next = Resource::clone(current);
            next.metadata.phase = Phase::TearingDown;
            let (_, change) = replace(resources, next);
            Ok((ready, change))
        })
    }

    /// Destroys a resource without finalizers.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::OwnerConflict`], [`StoreError::PendingFinalizers`].
    pub fn destroy(&self, pointer: &Pointer, writer: &'static str) -> Result<(), StoreError> {
        self.kind_of(pointer)?.write(|resources| {
            let current = find(resources, pointer)?;
            check_owner(current, writer)?;
            let finalizers = &current.metadata.finalizers;
            if !finalizers.is_empty() {
                let finalizers = finalizers.clone();
                let pointer = pointer.clone();
                return Err(StoreError::PendingFinalizers {
                    pointer,
                    finalizers,
                });
            }
            Ok(((), resources.remove(&pointer.id).map(Change::Destroyed)))
        })
    }

    /// Adds a finalizer: the resource cannot be destroyed until it is removed. The call is idempotent.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::PhaseConflict`] when the resource is already under teardown.
    pub fn add_finalizer(
        &self,
        pointer: &Pointer,
        finalizer: &'static str,
    ) -> Result<(), StoreError> {
        self.kind_of(pointer)?.write(|resources| {
            let current = find(resources, pointer)?;
            if current.metadata.finalizers.contains(&finalizer) {
                return Ok(((), None));
            }
            check_phase(current, Phase::Running)?;
            let mut next = Resource::clone(current);
            next.metadata.finalizers.push(finalizer);
            Ok(((), replace(resources, next).1))
        })
    }

    /// Removes a finalizer. A missing finalizer or a missing resource is not an error.
    ///
    /// # Errors
    /// [`StoreError::UnknownType`], [`StoreError::UnknownNamespace`].
    pub fn remove_finalizer(&self, pointer: &Pointer, finalizer: &str) -> Result<(), StoreError> {
        self.kind_of(pointer)?.write(|resources| {
            let holds = |found: &&Arc<Resource>| found.metadata.finalizers.contains(&finalizer);
            let Some(current) = resources.get(&pointer.id).filter(holds) else {
                return Ok(((), None));
            };
            let mut next = Resource::clone(current);
            next.metadata.finalizers.retain(|other| *other != finalizer);
            Ok(((), replace(resources, next).1))
        })
    }

    /// The kind of a draft, if its Rust type is the registered one.
    fn kind_for(&self, draft: &Draft) -> Result<(Arc<Kind>, Pointer), StoreError> {
        let registered = {
            let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let known = inner.types.get(draft.pointer.type_name);
            known.map(|known| known.id)
        };
        match registered {
            None => Err(StoreError::UnknownType(draft.pointer.type_name.to_owned())),
            Some(id) if id != draft.spec_type() => {
                Err(StoreError::TypeTaken(draft.pointer.type_name))
            }
            Some(_) => Ok((self.kind_of(&draft.pointer)?, draft.pointer.clone())),
        }
    }
}

/// The written resource, and the change to publish.
type Written = (Arc<Resource>, Option<Change>);

fn insert(resources: &mut Resources, draft: Draft, owner: &'static str) -> Written {
    let mut resource = draft.into_resource(owner);
    resource.metadata.version = Version(1);
    let resource = Arc::new(resource);
    resources.insert(resource.metadata.pointer.id.clone(), resource.clone());
    (resource.clone(), Some(Change::Created(resource)))
}

fn replace(resources: &mut Resources, mut next: Resource) -> Written {
    next.metadata.version.0 += 1;
    next.metadata.updated = SystemTime::now();
    let new = Arc::new(next);
    let old = resources.insert(new.metadata.pointer.id.clone(), new.clone());
    let change = old.map(|old| Change::Updated {
        new: new.clone(),
        old,
    });
    (new, change)
}

fn find<'a>(resources: &'a Resources, pointer: &Pointer) -> Result<&'a Arc<Resource>, StoreError> {
    resources
        .get(&pointer.id)
        .ok_or_else(|| StoreError::NotFound(pointer.clone()))
}

fn check_owner(current: &Resource, writer: &'static str) -> Result<(), StoreError> {
    let owner = current.metadata.owner;
    if owner == writer {
        return Ok(());
    }
    Err(StoreError::OwnerConflict {
        pointer: current.pointer().clone(),
        owner,
        writer,
    })
}

fn check_phase(current: &Resource, expected: Phase) -> Result<(), StoreError> {
    let found = current.metadata.phase;
    if found == expected {
        return Ok(());
    }
    Err(StoreError::PhaseConflict {
        pointer: current.pointer().clone(),
        expected,
        found,
    })
}

//! Writing: optimistic concurrency, ownership, and teardown with finalizers.

use std::any::TypeId;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use super::kind::Resources;
use super::{Change, Store};
use crate::error::StoreError;
use crate::metadata::{Phase, Pointer, Version};
use crate::resource::{Draft, Resource, Spec};

impl Store {
    /// Stores a new resource.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], [`StoreError::UnknownType`], [`StoreError::UnknownNamespace`], [`StoreError::TypeTaken`].
    pub fn create<S: Spec>(
        &self,
        draft: Draft<S>,
        owner: &'static str,
    ) -> Result<Arc<Resource>, StoreError> {
        let (kind, pointer) = self.kind_for(&draft)?;
        kind.write(|resources| {
            if resources.contains_key(&pointer.id) {
                return Err(StoreError::AlreadyExists(pointer));
            }
            Ok(insert(resources, draft, owner))
        })
    }

    /// Stores a resource that was read and changed since. Spec, labels and annotations are taken from it;
    /// finalizers and phase have calls of their own. `expected` is the phase it must be in, if any.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::VersionConflict`], [`StoreError::OwnerConflict`], [`StoreError::PhaseConflict`],
    /// [`StoreError::TypeTaken`].
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

    /// Stores a resource as it shall be: creates it, replaces it, or does nothing when it is so already.
    ///
    /// # Errors
    /// [`StoreError::OwnerConflict`]; [`StoreError::PhaseConflict`] when it is being taken down; and those of
    /// [`Store::create`] but for [`StoreError::AlreadyExists`].
    pub fn put<S: Spec>(
        &self,
        draft: Draft<S>,
        owner: &'static str,
    ) -> Result<Arc<Resource>, StoreError> {
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
                && current.spec().equals(&draft.spec)
            {
                return Ok((current.clone(), None));
            }
            let mut next = Resource::clone(current);
            next.metadata.labels = draft.labels;
            next.metadata.annotations = draft.annotations;
            next.spec = Arc::new(draft.spec);
            Ok(replace(resources, next))
        })
    }

    /// Asks everyone to let go of a resource. Returns whether it can be destroyed now.
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

    /// Removes a resource nobody holds.
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

    /// Holds a resource: it cannot be destroyed until the finalizer is removed. Twice is once.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::PhaseConflict`] when it is being taken down already.
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

    /// Lets go of a resource. One that was not held, or is gone, is let go of already.
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

    /// The kind a draft belongs to, if its Rust type is the one that was registered.
    fn kind_for<S: Spec>(
        &self,
        draft: &Draft<S>,
    ) -> Result<(Arc<super::Kind>, Pointer), StoreError> {
        let registered = {
            let inner = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let known = inner.types.get(draft.pointer.type_name);
            known.map(|known| known.id)
        };
        match registered {
            None => Err(StoreError::UnknownType(draft.pointer.type_name.to_owned())),
            Some(id) if id != TypeId::of::<S>() => {
                Err(StoreError::TypeTaken(draft.pointer.type_name))
            }
            Some(_) => Ok((self.kind_of(&draft.pointer)?, draft.pointer.clone())),
        }
    }
}

/// What was written, and the change to tell.
type Written = (Arc<Resource>, Option<Change>);

fn insert<S: Spec>(resources: &mut Resources, draft: Draft<S>, owner: &'static str) -> Written {
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

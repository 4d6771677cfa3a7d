//! The interface of a running controller: it waits for changes, reads declared inputs, and writes declared outputs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::{Declaration, Dependency, Input};
use crate::error::StoreError;
use crate::metadata::{Phase, Pointer};
use crate::query::Query;
use crate::resource::{Draft, Resource, Spec, Typed};
use crate::store::Store;
use crate::watch::{Happened, Start, Watcher};

/// The interface of a running controller.
#[derive(Debug)]
pub struct Context {
    store: Store,
    declaration: Declaration,
    watches: Vec<(Input, Watcher)>,
    wake: Arc<Notify>,
    /// Whether no event was delivered yet.
    is_fresh: bool,
    /// Set after each completed reconcile; the runtime reads and clears it.
    went_well: Arc<AtomicBool>,
    /// Resources written since [`Context::start_outputs`].
    written: BTreeSet<Pointer>,
}

impl Context {
    pub(super) fn new(
        store: Store,
        declaration: Declaration,
        went_well: Arc<AtomicBool>,
    ) -> Result<Context, StoreError> {
        let wake = Arc::<Notify>::default();
        let watch = |input: &Input| Ok((*input, watch(&store, input, &wake)?));
        let watches = declaration
            .inputs
            .iter()
            .map(watch)
            .collect::<Result<_, _>>()?;
        Ok(Context {
            store,
            declaration,
            watches,
            wake,
            is_fresh: true,
            went_well,
            written: BTreeSet::new(),
        })
    }

    /// Waits until an input changes; the first call returns at once. Several changes are one event, because only the
    /// present state matters. Cancel-safe.
    pub async fn event(&mut self) {
        if self.is_fresh {
            self.is_fresh = false;
            return;
        }
        self.went_well.store(true, Ordering::Relaxed);
        while !self.has_news() {
            self.wake.notified().await;
        }
    }

    /// Drains all watches, because they share one wake-up.
    fn has_news(&mut self) -> bool {
        let mut any = false;
        for (input, watcher) in &mut self.watches {
            while let Some(event) = watcher.next_now() {
                any |= concerns(input, &event.happened);
                // A reconcile reads the present state, so a new watch loses nothing.
                if let Happened::Errored(_) = event.happened
                    && let Ok(again) = watch(&self.store, input, &self.wake)
                {
                    *watcher = again;
                }
            }
        }
        any
    }

    /// Reads one resource; `None` when it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Undeclared`].
    pub fn get<S: Spec>(&self, id: &str) -> Result<Option<Typed<S>>, StoreError> {
        self.get_at(&Pointer::of::<S>(id))
    }

    /// [`Context::get`] at any pointer, for example in another namespace.
    ///
    /// # Errors
    /// [`StoreError::Undeclared`].
    pub fn get_at<S: Spec>(&self, pointer: &Pointer) -> Result<Option<Typed<S>>, StoreError> {
        Ok(self.find(pointer)?.and_then(Typed::new))
    }

    fn find(&self, pointer: &Pointer) -> Result<Option<Arc<Resource>>, StoreError> {
        self.check_reads(pointer.namespace, pointer.type_name, Some(&pointer.id))?;
        match self.store.get(pointer) {
            Ok(resource) => Ok(Some(resource)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all resources of a type in its default namespace, by id.
    ///
    /// # Errors
    /// [`StoreError::Undeclared`].
    pub fn list<S: Spec>(&self) -> Result<Vec<Typed<S>>, StoreError> {
        self.list_in(S::DEFINITION.default_namespace, &Query::default())
    }

    /// Reads the resources of a kind that match a query, by id.
    ///
    /// # Errors
    /// [`StoreError::Undeclared`].
    pub fn list_in<S: Spec>(
        &self,
        namespace: &str,
        query: &Query,
    ) -> Result<Vec<Typed<S>>, StoreError> {
        let found = self.find_all(namespace, S::DEFINITION.type_name, query)?;
        Ok(found.into_iter().filter_map(Typed::new).collect())
    }

    fn find_all(
        &self,
        namespace: &str,
        type_name: &str,
        query: &Query,
    ) -> Result<Vec<Arc<Resource>>, StoreError> {
        self.check_reads(namespace, type_name, None)?;
        self.store.list(namespace, type_name, query)
    }

    /// Creates or replaces a resource; [`Store::put`].
    ///
    /// # Errors
    /// [`StoreError::Undeclared`] and those of [`Store::put`].
    pub fn put(&mut self, draft: Draft) -> Result<Arc<Resource>, StoreError> {
        self.check_writes(draft.pointer.namespace, draft.pointer.type_name)?;
        let pointer = draft.pointer.clone();
        let written = self.store.put(draft, self.declaration.name)?;
        self.written.insert(pointer);
        Ok(written)
    }

    /// Tears a resource down and destroys it once it has no finalizers. Returns whether it is gone. If not, a
    /// [`Dependency::DestroyReady`] input signals when to try again.
    ///
    /// # Errors
    /// [`StoreError::Undeclared`], [`StoreError::OwnerConflict`].
    pub fn remove(&mut self, pointer: &Pointer) -> Result<bool, StoreError> {
        self.check_writes(pointer.namespace, pointer.type_name)?;
        let owner = self.declaration.name;
        let gone = self
            .store
            .teardown(pointer, owner)
            .and_then(|_| self.store.destroy(pointer, owner));
        match gone {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(true),
            Err(StoreError::PendingFinalizers { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts a set of outputs; see [`Context::remove_others`].
    pub fn start_outputs(&mut self) {
        self.written.clear();
    }

    /// Removes the stale outputs of a type: resources of this controller that it has not written since
    /// [`Context::start_outputs`]. Returns whether all of them are gone, as [`Context::remove`] does.
    ///
    /// # Errors
    /// [`StoreError::Undeclared`].
    pub fn remove_others<S: Spec>(&mut self) -> Result<bool, StoreError> {
        self.remove_others_in::<S>(S::DEFINITION.default_namespace)
    }

    /// [`Context::remove_others`] in another namespace than the default one.
    ///
    /// # Errors
    /// [`StoreError::Undeclared`].
    pub fn remove_others_in<S: Spec>(&mut self, namespace: &str) -> Result<bool, StoreError> {
        self.remove_others_of(namespace, S::DEFINITION.type_name)
    }

    fn remove_others_of(&mut self, namespace: &str, type_name: &str) -> Result<bool, StoreError> {
        self.check_writes(namespace, type_name)?;
        let mut all = true;
        for resource in self.store.list(namespace, type_name, &Query::default())? {
            let is_ours = resource.metadata.owner == self.declaration.name;
            if is_ours && !self.written.contains(resource.pointer()) {
                all &= self.remove(resource.pointer())?;
            }
        }
        Ok(all)
    }

    /// Adds this controller's finalizer to a strong input; [`Store::add_finalizer`].
    ///
    /// # Errors
    /// [`StoreError::Undeclared`] and those of [`Store::add_finalizer`].
    pub fn hold(&self, pointer: &Pointer) -> Result<(), StoreError> {
        self.check_holds(pointer)?;
        self.store.add_finalizer(pointer, self.declaration.name)
    }

    /// Removes this controller's finalizer; [`Store::remove_finalizer`].
    ///
    /// # Errors
    /// [`StoreError::Undeclared`].
    pub fn let_go(&self, pointer: &Pointer) -> Result<(), StoreError> {
        self.check_holds(pointer)?;
        self.store.remove_finalizer(pointer, self.declaration.name)
    }

    fn check_reads(
        &self,
        namespace: &str,
        type_name: &str,
        id: Option<&str>,
    ) -> Result<(), StoreError> {
        let is_input = self.declaration.inputs.iter().any(|input| {
            input.definition.type_name == type_name
                && input.namespace == namespace
                && (input.id.is_none() || input.id == id)
        });
        if is_input || self.writes(type_name) {
            return Ok(());
        }
        let id = id.map(|id| format!("/{id}")).unwrap_or_default();
        Err(self.undeclared("reads", format!("{namespace}/{type_name}{id}")))
    }

    fn check_writes(&self, namespace: &str, type_name: &str) -> Result<(), StoreError> {
        if self.writes(type_name) {
            return Ok(());
        }
        Err(self.undeclared("writes", format!("{namespace}/{type_name}")))
    }

    fn check_holds(&self, pointer: &Pointer) -> Result<(), StoreError> {
        let is_strong = self.declaration.inputs.iter().any(|input| {
            input.dependency == Dependency::Strong
                && input.definition.type_name == pointer.type_name
                && input.namespace == pointer.namespace
                && input.id.is_none_or(|id| *id == *pointer.id)
        });
        if is_strong {
            return Ok(());
        }
        Err(self.undeclared("holds", pointer.to_string()))
    }

    fn writes(&self, type_name: &str) -> bool {
        let mut outputs = self.declaration.outputs.iter();
        outputs.any(|output| output.definition.type_name == type_name)
    }

    fn undeclared(&self, does: &'static str, what: String) -> StoreError {
        let controller = self.declaration.name;
        StoreError::Undeclared {
            controller,
            does,
            what,
        }
    }
}

fn watch(store: &Store, input: &Input, wake: &Arc<Notify>) -> Result<Watcher, StoreError> {
    let (namespace, type_name) = (input.namespace, input.definition.type_name);
    store.watch_waking(namespace, type_name, Start::Now, wake.clone())
}

/// Whether the event must wake the controller.
fn concerns(input: &Input, happened: &Happened) -> bool {
    let resource = match happened {
        Happened::Created(resource)
        | Happened::Updated { new: resource, .. }
        | Happened::Destroyed(resource) => resource,
        Happened::Errored(_) => return true,
        Happened::Absent(_) | Happened::Bootstrapped | Happened::Noop => return false,
    };
    if input
        .id
        .is_some_and(|id| *id != *resource.metadata.pointer.id)
    {
        return false;
    }
    match input.dependency {
        Dependency::Strong | Dependency::Weak => true,
        Dependency::DestroyReady => {
            resource.metadata.phase == Phase::TearingDown
                && resource.metadata.finalizers.is_empty()
                && !matches!(happened, Happened::Destroyed(_))
        }
    }
}

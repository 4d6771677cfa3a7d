//! Typed resources in memory, and the controllers that reconcile them.
//!
//! Owns: the store, the resources of each kind with their last changes, their watches, and the controller runtime.
//! Never: does I/O, or knows a type; types and controllers live where they are used.

pub mod controller;
mod error;
mod history;
mod kind;
pub mod meta;
mod metadata;
mod query;
mod resource;
mod store;
mod watch;

pub use error::StoreError;
pub use metadata::{Metadata, Phase, Pointer, Tags, Version};
pub use query::{IdQuery, LabelQuery, LabelTerm, Operator, Query};
pub use resource::{AnySpec, Column, Definition, Draft, Resource, Sensitivity, Spec, Typed};
pub use store::Store;
pub use watch::{Bookmark, Event, Happened, Start, Watcher};

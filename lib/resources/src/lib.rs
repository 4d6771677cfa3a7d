//! Typed resources in memory, and the controllers that reconcile them.
//!
//! Owns: the store (`store/`: metadata and spec, optimistic concurrency, ownership, teardown with finalizers), the
//! resources of each kind with their last changes (`kind.rs`, `history.rs`), their watches (`watch.rs`), and the
//! controller runtime (`controller/`: declared inputs and outputs, restarts, the printable graph).
//! Never does: I/O, or anything specific to a type; types and controllers live where they are used.
//! Talks to: nothing.
//! On a laptop: `cargo test -p corten-resources`; `cargo bench -p corten-resources` prints its numbers.
//!
//! A *kind* is a type in a namespace. Writes to a kind are totally ordered. A watcher that keeps up sees each of them
//! once, in that order; a watcher that falls behind gets an error and ends. Readers and watchers share stored
//! resources, so a spec is never copied and never changes.

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

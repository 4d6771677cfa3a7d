//! A client of etcd's API (gRPC, version 3) over mutual TLS, and the check of etcd's snapshots.
//!
//! Owns: the connection to one member, the methods that a node needs of the services KV, Lease, Lock, Cluster and
//! Maintenance, locks that are kept while they are held, claims that outlive
//! a reboot, what etcd's refusals mean, the next step of a member that joins
//! ([`plan`]), and [`verify_snapshot`].
//! Never does: start or configure etcd, make certificates, decide about members, or write files.
//! Talks to: etcd, at the endpoints it is given.
//! On a laptop: `cargo test -p corten-etcd`; with `CORTEN_KUBERNETES`, the folder of an `etcd` program, also
//! `cargo test -p corten-etcd -- --ignored`.
//!
//! The messages are a subset of etcd's own (`proto/etcd`): `api/etcdserverpb/rpc.proto` (services KV, Lease, Cluster
//! and Maintenance), `api/mvccpb/kv.proto` (KeyValue) and `server/etcdserver/api/v3lock/v3lockpb/v3lock.proto`
//! (service Lock), with their names and numbers. A field that is not read here is not in them.
//!
//! A [`Client`] speaks to one member, the first of its endpoints that answered. It connects anew to that member, and
//! never changes to another: what is asked of a member, like [`Client::status`], has to come from that one.

mod claim;
mod client;
mod cluster;
mod error;
#[cfg(test)]
mod fake;
mod join;
mod keys;
mod lock;
mod maintenance;
mod refusal;
mod snapshot;
#[cfg(test)]
mod tests;

pub use claim::Claim;
pub use client::{Client, Tls};
pub use cluster::{Added, Member};
pub use error::{Attempt, EtcdError};
pub use join::{Join, plan};
pub use keys::Entry;
pub use lock::Lock;
pub use maintenance::{Action, Alarm, AlarmKind, Status};
pub use refusal::Refusal;
pub use snapshot::{SnapshotError, verify_snapshot};

/// The generated messages and clients, a module per proto package; the servers are for tests.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    dead_code,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    rustdoc::all,
    reason = "generated code"
)]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/public.rs"));
}

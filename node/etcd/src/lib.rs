//! Client of etcd's gRPC API, version 3, over mutual TLS, and the verification of etcd snapshots.
//!
//! Owns: the connection to one member, the methods that a node needs of the services KV, Lease, Lock, Cluster and
//! Maintenance, locks that are renewed while they are held, claims that outlive a reboot, the meaning of etcd's
//! refusals, the next step of a member that joins ([`plan`]), and [`verify_snapshot`].
//! Never does: start or configure etcd, make certificates, decide about members, or write files.
//! Talks to: etcd, at the given endpoints.
//! On a laptop: `cargo test -p corten-etcd`; with `CORTEN_KUBERNETES`, the folder of an `etcd` program, also
//! `cargo test -p corten-etcd -- --ignored`.
//!
//! The messages in `proto/etcd` are a subset of etcd's own, with the same names and numbers:
//! `api/etcdserverpb/rpc.proto` (services KV, Lease, Cluster and Maintenance), `api/mvccpb/kv.proto` (KeyValue) and
//! `server/etcdserver/api/v3lock/v3lockpb/v3lock.proto` (service Lock). Unused fields are omitted.
//!
//! A [`Client`] talks to one member: the first of its endpoints that answered. It reconnects to that member and never
//! fails over to another, because calls such as [`Client::status`] are about the member itself.

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

/// Generated messages and clients, one module per proto package; the servers are for tests.
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

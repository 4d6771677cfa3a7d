//! Client of etcd's gRPC API, version 3, over mutual TLS, and the verification of etcd snapshots.
//!
//! Owns: the connection to one member, its calls, locks, claims that outlive a reboot, and the meaning of refusals.
//! Never: starts or configures etcd, makes certificates, decides about members, or writes files.

mod claim;
mod client;
mod cluster;
mod error;
#[cfg(test)]
mod fake;
mod join;
mod keys;
mod leave;
#[cfg(test)]
mod leave_tests;
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
pub use keys::{Entry, check_member};
pub use leave::{LeaveError, Leaver, leave};
pub use lock::Lock;
pub use maintenance::{Action, Alarm, AlarmKind, Status};
pub use refusal::Refusal;
pub use snapshot::{SnapshotError, verify_snapshot};

/// Generated messages and clients, one module per proto package; the servers are for tests.
///
/// They are a subset of etcd's own, with the same names and numbers: `api/etcdserverpb/rpc.proto` (services KV, Lease,
/// Cluster and Maintenance), `api/mvccpb/kv.proto` (KeyValue) and `server/etcdserver/api/v3lock/v3lockpb/v3lock.proto`
/// (service Lock). Unused fields are omitted.
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

//! The credentials of a node, and the connections that it opens with them.
//!
//! Owns: the check of the certificates in a config, the time of their renewal and the files of daemons (`certificates`),
//! the client's config file (`client_config`), the request to trustd of a node that cannot sign (`join`), machined's
//! access to the cluster's API (`access`) and to etcd (`etcd`).
//! Never does: decide when a certificate is made; machined's controllers do.
//! Talks to: trustd of control plane nodes, API servers, etcd.
//! On a laptop: `cargo test -p corten-credentials`.

pub mod access;
pub mod certificates;
pub mod client_config;
pub mod etcd;
pub mod join;

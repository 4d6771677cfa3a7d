//! The credentials of a node, and the connections that it opens with them.
//!
//! Owns: checks, renewal times and files of certificates, the request to trustd, access to the cluster and to etcd.
//! Never: decides when a certificate is made; machined's controllers do.

pub mod access;
pub mod certificates;
pub mod client_config;
pub mod etcd;
pub mod join;
pub mod kubelet;

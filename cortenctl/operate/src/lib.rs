//! The verbs that change nodes and clusters: configs, versions of Corten and Kubernetes, CAs, power, disks, etcd.
//!
//! Owns: the order of the steps of a change over several nodes, its checks, and the reaction to a failed step.
//! Never: begins a change that the checks refuse, or continues before the previous node is as it was.

pub mod apply;
pub mod args;
mod bundle;
pub mod conformance;
mod cordon;
pub mod etcd;
pub mod image;
pub mod install;
pub mod kubeconfig;
mod kubelet;
pub mod kubernetes;
pub mod meta;
pub mod patch;
pub mod power;
pub mod rotate_ca;
mod sequence;
pub mod upgrade;
pub mod upgrade_k8s;
mod wait;
pub mod wipe;

//! The verbs that change nodes and clusters: configs, versions of Corten and Kubernetes, CAs, power, disks, etcd
//! and images.
//!
//! Owns: the order of the steps of a change over several nodes, its checks, and what happens when a step fails.
//! Never does: begin a change that the checks refuse, or go on to the next node before the previous one is as it was.
//! Talks to: the API of the nodes (`cortenctl/client`), and the Kubernetes API of their cluster.
//! On a laptop: `cargo test -p corten-operate`.

pub mod apply;
pub mod args;
mod cordon;
pub mod etcd;
pub mod image;
pub mod install;
pub mod kubeconfig;
mod kubernetes;
pub mod meta;
pub mod patch;
pub mod power;
pub mod rotate_ca;
pub mod upgrade;
pub mod upgrade_k8s;
mod wait;
pub mod wipe;

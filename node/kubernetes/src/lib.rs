//! What a node gives to its kubelet and its control plane, out of the machine config.
//!
//! Owns: the settings of a cluster in either form of the config, the certificates and files of each component, the
//! static pods, the kubelet's configuration and arguments, kubeconfigs, and etcd's arguments.
//! Never does: read or write a file, talk to a cluster, or ask what time it is.
//! Talks to: nobody. Every function is pure, but for the keys that are made for certificates.
//! On a laptop: `cargo test -p corten-kubernetes`.
//!
//! Names, paths and values are those of the reference, so that manifests and arguments that people have go on working.

mod addons;
pub mod certificates;
pub mod etcd;
mod extra;
pub mod files;
mod images;
mod kubeconfig;
pub mod kubelet;
mod manifests;
pub mod pods;
mod prism;
mod settings;
mod subnets;
mod trust;

use std::net::IpAddr;

pub use addons::Addons;
pub use extra::Extra;
pub use images::Images;
pub use kubeconfig::{Identity, admin, kubeconfig};
pub use manifests::{ExternalManifest, bootstrap_settings, external_manifests, inline_manifests};
pub use prism::Upstream;
pub use settings::{ControlPlane, Missing, Node, Settings, Taint, is_alone, nth};
pub use trust::Trust;

/// What is known of the node itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its name in Kubernetes.
    pub nodename: String,
    /// Its host name.
    pub hostname: String,
    /// Its host name with the domain.
    pub fqdn: String,
    /// Its addresses, the one first that others reach it by.
    pub addresses: Vec<IpAddr>,
}

/// User and group of kube-apiserver.
pub const API_SERVER_UID: u32 = 65534;
/// User and group of kube-controller-manager.
pub const CONTROLLER_MANAGER_UID: u32 = 65535;
/// User and group of kube-scheduler.
pub const SCHEDULER_UID: u32 = 65536;
/// User and group of etcd.
pub const ETCD_UID: u32 = 60;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_extra;

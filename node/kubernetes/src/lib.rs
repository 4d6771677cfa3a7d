//! Derives the kubelet and the control plane of a node from the machine config, with the reference's names and paths.
//!
//! Owns: settings of a cluster, certificates and files of each component, static pods, kubeconfigs, etcd's arguments.
//! Never: reads or writes a file, talks to a cluster, or reads the clock.

mod addons;
pub mod certificates;
pub mod etcd;
mod etcd_addresses;
mod extra;
pub mod files;
mod images;
mod kubeconfig;
pub mod kubelet;
mod manifests;
mod own_images;
pub mod pods;
mod prism;
mod settings;
mod shims;
mod subnets;
mod trust;

use std::net::IpAddr;

pub use addons::Addons;
pub use extra::Extra;
pub use images::{Images, network_plugin};
pub use kubeconfig::{Identity, admin, kubeconfig};
pub use manifests::bootstrap_settings;
pub use own_images::{own_images, service_images};
pub use prism::Upstream;
pub use settings::{ControlPlane, Missing, Node, Settings, Taint, is_alone, nth};
pub use shims::ShimGroups;
pub use trust::Trust;

/// Facts about the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Node name in Kubernetes.
    pub nodename: String,
    /// Host name.
    pub hostname: String,
    /// Host name with the domain.
    pub fqdn: String,
    /// The node's own addresses; the first one is the preferred address for other machines.
    pub addresses: Vec<IpAddr>,
    /// All addresses at which others reach the node: also those that its platform translates.
    pub reachable: Vec<IpAddr>,
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
mod rsa_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_extra;
#[cfg(test)]
mod tests_reference;

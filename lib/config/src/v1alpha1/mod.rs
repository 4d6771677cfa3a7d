//! The `v1alpha1` document, which has no kind.

mod cluster;
mod containers;
mod disks;
mod features;
mod kubernetes;
mod machine;
pub(crate) mod names;
mod network;
mod pods;
mod registries;

use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

pub use cluster::*;
pub use containers::*;
pub use disks::*;
pub use features::*;
pub use kubernetes::*;
pub use machine::*;
pub use network::*;
pub(crate) use pods::check_pods;
pub use registries::*;

section! {
    /// The whole document.
    pub struct V1Alpha1 [check] {
        Acted "version" version: String = "Always `v1alpha1`", required;
        Held "debug" debug: bool = "Verbose logs of services";
        Acted "persist" persist: Option<bool> = "Always `true`: a config that is not stored is not supported";
        Acted "machine" machine: Machine = "Settings of the machine";
        Acted "cluster" cluster: Cluster = "Settings of the cluster";
    }
}

fn check(root: &V1Alpha1, node: &Node, reader: &mut Reader<'_>) {
    if !matches!(root.version.as_str(), "" | "v1alpha1") {
        reader.wrong_in(node, "version", "must be v1alpha1");
    }
    if root.persist == Some(false) {
        reader.wrong_in(
            node,
            "persist",
            "must not be false: a config that is not kept is not supported",
        );
    }
    // `forms` checks `cluster`, together with the documents with a kind.
    if node.entry("machine").is_none_or(Node::is_empty) {
        reader.wrong_in(node, "machine", "is required");
    }
    if root.machine.kind == MachineType::Worker {
        for (at, interface) in root.machine.network.interfaces.iter().enumerate() {
            let vlans = interface.vlans.iter().enumerate();
            let vlans = vlans.filter(|(_, vlan)| vlan.vip.is_some());
            let of_vlans = vlans.map(|(number, _)| format!("vlans[{number}].vip"));
            let own = interface.vip.iter().map(|_| "vip".to_owned());
            for field in own.chain(of_vlans) {
                let path = format!("machine.network.interfaces[{at}].{field}");
                reader.wrong_in(node, &path, "must not be given to a worker");
            }
        }
        let Some(cluster) = node.get("cluster") else {
            return;
        };
        let secret = |pair: &Option<corten_values::KeyPair>| {
            pair.as_ref().is_some_and(|pair| !pair.key.is_empty())
        };
        reader.within("cluster", |reader| {
            if secret(&root.cluster.ca) {
                reader.wrong_in(cluster, "ca", "must not have a key on a worker");
            }
            if cluster.get("etcd").is_some() {
                reader.wrong_in(cluster, "etcd", "must not be given to a worker");
            }
        });
    }
}

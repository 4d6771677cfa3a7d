//! Renders the bootstrap manifests of a new cluster; their objects are the reference's, so that clusters can migrate.
//!
//! Owns: the objects and their order, the service in front of the nodes' API, user manifests, keys of the inventory.
//! Never: reads the machine config, fetches a manifest, or talks to a cluster.

mod access;
mod dns;
mod flannel;
mod object;
mod pod_access;
mod proxy;
mod resources;
mod settings;
mod token;
mod written;

pub use object::{Identity, Invalid, in_order};
pub use pod_access::{
    ACCOUNT_GROUP, ACCOUNT_KIND, ACCOUNT_PLURAL, ACCOUNT_VERSION, ACCOUNTS_MANIFEST, SERVICE,
    SERVICE_NAMESPACE, Slice, service, service_addresses, service_host,
};
pub use resources::Resources;
pub use settings::{Dns, Flannel, Proxy, Settings};
pub use token::{BootstrapToken, TokenError};
pub use written::{Unreadable, read};

use serde_json::{Value, json};

/// Namespace of all rendered namespaced objects.
const NAMESPACE: &str = "kube-system";
/// Annotation of pods that share a process of the shim (containerd, `cmd/containerd-shim-runc-v2/manager`). The node's
/// containerd passes it on (`rootfs/etc/containerd/config.toml`).
pub const SHIM_GROUP: &str = "io.containerd.runc.v2.group";

/// Objects of one manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Id; manifests are applied in the order of their ids.
    pub id: String,
    /// Kubernetes objects.
    pub objects: Vec<Value>,
}

impl Manifest {
    fn new(id: &str, objects: Vec<Value>) -> Manifest {
        Manifest {
            id: id.to_owned(),
            objects,
        }
    }
}

/// The bootstrap manifests of a cluster, sorted by id.
#[must_use]
pub fn bootstrap(settings: &Settings, token: &BootstrapToken) -> Vec<Manifest> {
    let mut manifests = access::manifests(settings, token);
    if let Some(flannel) = &settings.flannel {
        let objects = flannel::objects(flannel, &settings.pod_subnets);
        manifests.push(Manifest::new("05-flannel", objects));
    }
    if let Some(proxy) = &settings.proxy {
        manifests.push(Manifest::new("10-kube-proxy", proxy::objects(proxy)));
    }
    if let Some(dns) = &settings.dns {
        let objects = dns::objects(dns, &settings.domain);
        manifests.push(Manifest::new("11-core-dns", objects));
        if let Some(service) = dns::service(dns) {
            manifests.push(Manifest::new("11-core-dns-svc", vec![service]));
        }
    }
    if settings.has_pod_access {
        let objects = vec![pod_access::definition()];
        manifests.push(Manifest::new(ACCOUNTS_MANIFEST, objects));
    }
    if let Some(group) = &settings.shim_group {
        let objects = manifests.iter_mut().flat_map(|one| &mut one.objects);
        objects.for_each(|object| share_shim(object, group));
    }
    manifests.sort_by(|a, b| a.id.cmp(&b.id));
    manifests
}

/// Puts the pods of a workload into the group; other objects stay.
fn share_shim(object: &mut Value, group: &str) {
    let metadata = object.pointer_mut("/spec/template/metadata");
    if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({ SHIM_GROUP: group }));
    }
}

#[cfg(test)]
mod tests;

//! What a new Kubernetes cluster is given to run, rendered from settings.
//!
//! Owns: the objects of each bootstrap manifest, the order in which they are applied, the reader of manifests that
//! a user wrote, and the entries of the inventory.
//! Never does: read the machine config, fetch a manifest, or talk to a cluster.
//! Talks to: nobody. Every function is pure.
//! On a laptop: `cargo test -p corten-manifests`.
//!
//! Names, ids and contents of the objects are those of the reference, so that a cluster can change from one system
//! to the other without a change of its objects.

mod access;
mod dns;
mod flannel;
mod object;
mod proxy;
mod resources;
mod settings;
mod token;
mod written;

pub use object::{Identity, Invalid, in_order};
pub use resources::Resources;
pub use settings::{Dns, Flannel, Proxy, Settings};
pub use token::{BootstrapToken, TokenError};
pub use written::{Unreadable, read};

use serde_json::Value;

/// The namespace of everything that is rendered here and has one.
const NAMESPACE: &str = "kube-system";

/// The objects that belong together under one id.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Manifests are applied in the order of their ids.
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

/// The bootstrap manifests of a cluster, in the order of their ids.
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
    manifests.sort_by(|a, b| a.id.cmp(&b.id));
    manifests
}

#[cfg(test)]
mod tests;

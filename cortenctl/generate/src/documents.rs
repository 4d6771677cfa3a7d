//! The two machine configs, as trees.
//!
//! Writes only values that differ from a node's defaults. Images of Kubernetes have no default: without a version or
//! bundled images, the node runs no Kubernetes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::cri::PART_FILE;
use corten_config::images;
use corten_pki::CertificateAndKey;
use serde_json::{Value, json};

use super::secrets::Secrets;

/// The user's choices for a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: String,
    /// URL of the Kubernetes API.
    pub(super) endpoint: String,
    /// Host of the URL.
    pub(super) host: String,
    /// Names in the nodes' certificates, the host first.
    pub(super) names: Vec<String>,
    pub(super) install_disk: String,
    pub(super) install_image: Option<String>,
    pub(super) dns_domain: String,
    /// Version of the upstream images of Kubernetes; `None` for no such images.
    pub(super) kubernetes: Option<String>,
    /// Whether the images are those of the node's image cache.
    pub(super) bundled: bool,
    /// Mirror URLs by registry.
    pub(super) registry_mirrors: BTreeMap<String, Vec<String>>,
    /// Whether nodes discover each other over a service; `None` for the default.
    pub(super) discovery: Option<bool>,
}

/// The config of control plane nodes, with every secret.
pub(super) fn controlplane(cluster: &Cluster, secrets: &Secrets) -> Value {
    let mut root = common(cluster, secrets, "controlplane");
    merge(
        &mut root,
        json!({
            "machine": {
                "ca": pair(secrets.os.pem()),
                "nodeLabels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" },
            },
            "cluster": {
                "secretboxEncryptionSecret": secrets.secretbox,
                "aescbcEncryptionSecret": secrets.aescbc,
                "ca": pair(secrets.kubernetes.pem()),
                "aggregatorCA": pair(secrets.aggregator.pem()),
                "serviceAccount": { "key": STANDARD.encode(&secrets.service_account_key) },
                "apiServer": { "certSANs": cluster.names },
                "etcd": { "ca": pair(secrets.etcd.pem()) },
            },
        }),
    );
    if let Some(Value::Object(fields)) = root.get_mut("cluster") {
        fields.retain(|_, value| value != "");
    }
    if let Some(version) = &cluster.kubernetes {
        let image = |name: &str| json!({ "image": images::upstream(name, version) });
        let images = json!({
            "apiServer": image("kube-apiserver"),
            "controllerManager": image("kube-controller-manager"),
            "proxy": image("kube-proxy"),
            "scheduler": image("kube-scheduler"),
        });
        merge(&mut root, json!({ "cluster": images }));
    }
    if cluster.bundled {
        let image = |name: &str| json!({ "image": images::bundled(name) });
        let images = json!({
            "apiServer": image("kube-apiserver"),
            "controllerManager": image("kube-controller-manager"),
            "coreDNS": image("coredns"),
            "etcd": image("etcd"),
            "proxy": image("kube-proxy"),
            "scheduler": image("kube-scheduler"),
        });
        merge(&mut root, json!({ "cluster": images }));
    }
    root
}

/// The settings of every node with bundled images: its kubelet, the image cache, and the image of
/// pods' sandboxes, which is a setting of containerd.
fn bundled_images() -> Value {
    let pause = images::bundled("pause").unwrap_or_default();
    json!({
        "machine": {
            "kubelet": { "image": images::bundled("kubelet") },
            "features": { "imageCache": { "localEnabled": true } },
            "files": [{
                "path": PART_FILE,
                "op": "create",
                "content": format!(
                    "[plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{pause}'\n"
                ),
            }],
        },
    })
}

/// The config of workers: CA certificates without their keys.
pub(super) fn worker(cluster: &Cluster, secrets: &Secrets) -> Value {
    let mut root = common(cluster, secrets, "worker");
    merge(
        &mut root,
        json!({
            "machine": { "ca": certificate(secrets.os.pem()) },
            "cluster": { "ca": certificate(secrets.kubernetes.pem()) },
        }),
    );
    root
}

fn common(cluster: &Cluster, secrets: &Secrets, kind: &str) -> Value {
    let mut root = base(cluster, secrets, kind);
    // Values that the user did not set are not written.
    if let Some(image) = &cluster.install_image {
        merge(
            &mut root,
            json!({ "machine": { "install": { "image": image } } }),
        );
    }
    if let Some(version) = &cluster.kubernetes {
        let image = images::upstream("kubelet", version);
        merge(
            &mut root,
            json!({ "machine": { "kubelet": { "image": image } } }),
        );
    }
    if cluster.bundled {
        merge(&mut root, bundled_images());
    }
    for (registry, urls) in &cluster.registry_mirrors {
        merge(
            &mut root,
            json!({ "machine": { "registries": { "mirrors": { registry: { "endpoints": urls } } } } }),
        );
    }
    if let Some(enabled) = cluster.discovery {
        merge(
            &mut root,
            json!({ "cluster": { "discovery": { "enabled": enabled } } }),
        );
    }
    root
}

fn base(cluster: &Cluster, secrets: &Secrets, kind: &str) -> Value {
    json!({
        "version": "v1alpha1",
        "debug": false,
        "persist": true,
        "machine": {
            "type": kind,
            "token": secrets.machine_token,
            "ca": {},
            "certSANs": cluster.names,
            "kubelet": {
                "defaultRuntimeSeccompProfileEnabled": true,
                "disableManifestsDirectory": true,
            },
            "install": { "disk": cluster.install_disk, "wipe": false },
            "features": {
                "diskQuotaSupport": true,
                "kubePrism": { "enabled": true, "port": 7445 },
            },
        },
        "cluster": {
            "id": secrets.cluster_id,
            "secret": secrets.cluster_secret,
            "controlPlane": { "endpoint": cluster.endpoint },
            "clusterName": cluster.name,
            "network": {
                "dnsDomain": cluster.dns_domain,
                "podSubnets": ["10.244.0.0/16"],
                "serviceSubnets": ["10.96.0.0/12"],
            },
            "token": secrets.bootstrap_token,
        },
    })
}

/// Merges `more` into `base`, recursively for maps.
fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}

pub(super) fn pair(pem: &CertificateAndKey) -> Value {
    json!({ "crt": STANDARD.encode(&pem.crt), "key": STANDARD.encode(&pem.key) })
}

fn certificate(pem: &CertificateAndKey) -> Value {
    json!({ "crt": STANDARD.encode(&pem.crt) })
}

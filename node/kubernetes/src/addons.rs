//! Settings of kube-proxy and flannel, except their images; whether pods have access to the node's API.

use std::collections::BTreeMap;

use corten_config::Document;
use corten_config::images::{POLICIES, POLICIES_NAME};
use corten_config::kinds::{KubeFlannelCNIConfig, KubeProxyConfig};
use corten_config::v1alpha1;
use corten_manifests::{Flannel, Resources};
use corten_values::{Object, quantity};
use serde_json::{Value, json};

use crate::extra::{merge, with_kind};
use crate::images::usual;

/// Default backend of flannel, with its port.
const BACKEND: (&str, u16) = ("vxlan", 4789);
/// Default resource requests of the containers.
const REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "50Mi")];

/// Settings of kube-proxy and flannel, and the access of pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Addons {
    /// Fields of the `KubeProxyConfiguration`; `None` in the legacy form, in which kube-proxy has arguments only.
    pub proxy_config: Option<Value>,
    /// Resources of kube-proxy.
    pub proxy_resources: Resources,
    /// Settings of flannel, without its image.
    pub flannel: Flannel,
    /// Whether pods have access to the node's API.
    pub has_pod_access: bool,
}

impl Addons {
    /// Settings from the config.
    #[must_use]
    pub fn of(document: &Document) -> Addons {
        let proxy = document.all::<KubeProxyConfig>().next();
        let config = |proxy: &KubeProxyConfig| {
            let own = proxy.config.as_ref().map(Object::json);
            own.unwrap_or_else(|| json!({}))
        };
        Addons {
            proxy_config: proxy.map(config),
            proxy_resources: proxy
                .map(|proxy| resources(&proxy.resources, REQUESTS))
                .unwrap_or_default(),
            flannel: flannel(document),
            has_pod_access: document.pod_access().is_some(),
        }
    }
}

fn flannel(document: &Document) -> Flannel {
    let policies = |wanted: Option<bool>| {
        let wanted = wanted.unwrap_or_default();
        wanted.then(|| usual(document, POLICIES_NAME, POLICIES))
    };
    if let Some(own) = document.all::<KubeFlannelCNIConfig>().next() {
        let extra = own.backend_extra_config.as_ref().map(Object::json);
        let extra: BTreeMap<String, Value> = match extra {
            Some(Value::Object(fields)) => fields.into_iter().collect(),
            _ => BTreeMap::new(),
        };
        return Flannel {
            backend: own.backend_type.clone(),
            port: own.backend_port,
            mtu: own.backend_mtu,
            extra,
            args: own.extra_args.clone(),
            resources: resources(&own.resources, REQUESTS),
            policies_image: policies(own.kube_network_policies_enabled),
            ..Flannel::default()
        };
    }
    let cni = document.cluster.network.cni.as_ref();
    let own = cni.map(|cni| cni.flannel.clone()).unwrap_or_default();
    Flannel {
        backend: BACKEND.0.to_owned(),
        port: Some(BACKEND.1),
        args: own.extra_args,
        policies_image: policies(own.kube_network_policies_enabled),
        ..Flannel::default()
    }
}

/// The complete `KubeProxyConfiguration`: the defaults, which are arguments otherwise, then the fields of the config,
/// then the fixed fields. Each overrides the former.
pub(crate) fn proxy_config(own: &Value, pods: &[String], mode: &str) -> Value {
    let mut config = json!({
        "clusterCIDR": pods.join(","),
        "mode": mode,
        "conntrack": { "maxPerCore": 0 },
    });
    merge(&mut config, own);
    let fixed = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": "/etc/kubernetes/kubeconfig" },
    });
    merge(&mut config, &fixed);
    with_kind(
        &config,
        "kubeproxy.config.k8s.io/v1alpha1",
        "KubeProxyConfiguration",
    )
}

/// Resources from the config. A default request above the config's limit is lowered to the limit, because Kubernetes
/// refuses a container whose request exceeds its limit.
pub(crate) fn resources(own: &v1alpha1::Resources, usual: [(&str, &str); 2]) -> Resources {
    let mut requests = own.requests.clone();
    for (name, usual) in usual {
        let limit = own.limits.get(name);
        let is_lower = limit.is_some_and(|limit| quantity(limit) < quantity(usual));
        if let (Some(limit), true, false) = (limit, is_lower, requests.contains_key(name)) {
            requests.insert(name.to_owned(), limit.clone());
        }
    }
    Resources {
        requests,
        limits: own.limits.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_enforces_policies_is_bundled_with_a_bundled_kubelet() {
        let mut document = crate::tests::patched(
            "cluster: {network: {cni: {name: flannel, flannel: {kubeNetworkPoliciesEnabled: true}}}}",
        );
        let image = |document: &Document| Addons::of(document).flannel.policies_image;
        assert_eq!(image(&document), Some(POLICIES.to_string()));
        let kubelet = "images.corten.internal/kubelet:v1.37.2".to_owned();
        document.machine.kubelet.image = Some(kubelet);
        let bundled = "images.corten.internal/kube-network-policies:v1.1.1";
        assert_eq!(image(&document).as_deref(), Some(bundled));
    }
}

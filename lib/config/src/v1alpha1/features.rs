//! `machine.features`.

use corten_yaml::read::Reader;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use crate::pod_access::rules::check_access;

section! {
    /// `machine.features`.
    pub struct Features [check] {
        Acted "rbac" rbac: Option<bool> = "Always `true`: the API always checks roles";
        Held "stableHostname" stable_hostname: Option<bool> = "Whether the host name comes from the machine's identity";
        Acted "kubernetesTalosAPIAccess" kubernetes_talos_api_access: Option<ApiAccess> = "Access to the API from pods";
        Acted "apidCheckExtKeyUsage" apid_check_ext_key_usage: Option<bool> = "Always `true`: key usage is always checked";
        Acted "diskQuotaSupport" disk_quota_support: bool = "Whether the kubelet measures the storage of pods by quotas of `/var`";
        Acted "kubePrism" kube_prism: KubePrism = "Load balancer for the Kubernetes API on the node";
        Acted "hostDNS" host_dns: HostDns = "Name cache on the node";
        Acted "imageCache" image_cache: ImageCache = "Images in the node's cache";
        Acted "nodeAddressSortAlgorithm" node_address_sort_algorithm: Option<SortAlgorithm> = "Order of preference of the node's addresses: `v1` by number, `v2` also prefers the longer prefix of nested ones; absent: `v1`";
    }
}

fn check(features: &Features, node: &Node, reader: &mut Reader<'_>) {
    if features.rbac == Some(false) {
        reader.wrong_in(
            node,
            "rbac",
            "must not be false: the API always checks roles",
        );
    }
    if features.apid_check_ext_key_usage == Some(false) {
        let what = "must not be false: key usage is always checked";
        reader.wrong_in(node, "apidCheckExtKeyUsage", what);
    }
}

section! {
    /// Access to the API from pods.
    pub struct ApiAccess [check_api_access] {
        Acted "enabled" enabled: bool = "Whether the access is allowed; on control plane nodes only";
        Acted "allowedRoles" allowed_roles: Vec<String> = "Roles that pods may have at most";
        Acted "allowedKubernetesNamespaces" allowed_kubernetes_namespaces: Vec<String> = "Namespaces of the allowed pods";
    }
}

fn check_api_access(_: &ApiAccess, node: &Node, reader: &mut Reader<'_>) {
    check_access(node, reader);
}

section! {
    /// KubePrism: the node's own load balancer for the Kubernetes API.
    pub struct KubePrism [check_kube_prism] {
        Acted "enabled" enabled: bool = "Whether it runs";
        Acted "port" port: Option<u16> = "Port on 127.0.0.1";
    }
}

fn check_kube_prism(prism: &KubePrism, node: &Node, reader: &mut Reader<'_>) {
    check_port(prism.port, node, "port", reader);
}

/// Reports port 0, on which no program can listen, if the field is set.
pub(crate) fn check_port(port: Option<u16>, node: &Node, field: &str, reader: &mut Reader<'_>) {
    if port == Some(0) && node.get(field).is_some() {
        reader.wrong_in(node, field, "must be from 1 to 65535");
    }
}

section! {
    /// Name cache on the node.
    pub struct HostDns [check_host_dns] {
        Acted "enabled" enabled: Option<bool> = "Whether it runs";
        Acted "forwardKubeDNSToHost" forward_kube_dns_to_host: Option<bool> = "Whether the cluster's DNS forwards to the cache";
        Acted "resolveMemberNames" resolve_member_names: Option<bool> = "Whether it resolves the names of the cluster's nodes; on control plane nodes only";
    }
}

fn check_host_dns(dns: &HostDns, node: &Node, reader: &mut Reader<'_>) {
    if dns.forward_kube_dns_to_host == Some(true) && dns.enabled != Some(true) {
        reader.wrong_in(node, "forwardKubeDNSToHost", "needs enabled");
    }
}

section! {
    /// The image cache of the node.
    pub struct ImageCache {
        Acted "localEnabled" local_enabled: bool = "Whether the cached images are served on 127.0.0.1:3172, where containerd looks first";
    }
}

choices! {
    /// Order of a node's addresses.
    pub enum SortAlgorithm { V1 = "v1", V2 = "v2", }
}

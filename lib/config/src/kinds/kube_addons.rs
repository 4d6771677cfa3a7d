//! Add-ons of a new Kubernetes cluster: network, DNS, manifests.

use std::collections::BTreeMap;

use corten_values::{Arguments, Object, ObjectName, Secret, Url, check_protected};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use super::kube_control_plane::check_image;
use crate::v1alpha1::{
    PROXY, ProxyMode, Resources, check_fetched, check_headers, check_map, check_port,
    check_whole_arguments,
};

section! {
    /// kube-proxy.
    pub struct KubeProxyConfig [check_proxy] {
        Acted "enabled" enabled: Option<bool> = "Whether it runs; absent: yes";
        Acted "image" image: Option<String> = "Container image";
        Acted "mode" mode: ProxyMode = "Mode of kube-proxy";
        Acted "config" config: Option<Object> = "Fields of KubeProxyConfiguration; kube-proxy then reads a file and ignores most arguments";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "resources" resources: Resources = "Resource requests and limits";
    }
}

fn check_proxy(config: &KubeProxyConfig, node: &Node, reader: &mut Reader<'_>) {
    check_image(config.enabled, config.image.as_deref(), node, reader);
    check_protected(node, "extraArgs", PROXY, reader);
    check_map(node, "config", "KubeProxyConfiguration", reader);
}

section! {
    /// flannel, the network plugin.
    pub struct KubeFlannelCNIConfig [check_flannel] {
        Acted "backendType" backend_type: String = "Type of the backend that carries packets between nodes, such as `vxlan`", required;
        Acted "backendPort" backend_port: Option<u16> = "UDP port of the backend";
        Acted "backendMTU" backend_mtu: Option<u32> = "MTU of the nodes' network in bytes; absent: detected by flannel";
        Acted "backendExtraConfig" backend_extra_config: Option<Object> = "Additional options of the backend";
        Acted "resources" resources: Resources = "Resource requests and limits";
        Acted "extraArgs" extra_args: Vec<String> = "Additional arguments, each with its dashes";
        Acted "kubeNetworkPoliciesEnabled" kube_network_policies_enabled: Option<bool> = "Whether network policies are enforced";
    }
}

fn check_flannel(config: &KubeFlannelCNIConfig, node: &Node, reader: &mut Reader<'_>) {
    check_port(config.backend_port, node, "backendPort", reader);
    check_map(node, "backendExtraConfig", "the backend's", reader);
    check_whole_arguments(&config.extra_args, node, reader);
}

section! {
    /// CoreDNS.
    pub struct KubeCoreDNSConfig {
        Acted "enabled" enabled: Option<bool> = "Whether it runs; absent: yes";
        Acted "image" image: Option<String> = "Container image";
    }
}

section! {
    /// A manifest to fetch and apply.
    pub struct KubeExternalManifestConfig [check_external] {
        Acted "name" name: ObjectName = "Name", required;
        Acted "headers" headers: BTreeMap<String, String> = "HTTP headers of the request", secret;
        Acted "url" url: Url = "URL of the manifest", required;
    }
}

fn check_external(config: &KubeExternalManifestConfig, node: &Node, reader: &mut Reader<'_>) {
    check_fetched(std::slice::from_ref(&config.url), node, "url", reader);
    check_headers(node, "headers", reader);
}

section! {
    /// A manifest to apply.
    pub struct KubeInlineManifestConfig {
        Acted "name" name: ObjectName = "Name", required;
        Acted "manifest" manifest: Secret = "Manifest in YAML; may hold secrets", required;
    }
}

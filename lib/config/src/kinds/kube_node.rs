//! A node of a Kubernetes cluster: its node object, its kubelet, its path to the Kubernetes API.

use std::collections::BTreeMap;
use std::net::IpAddr;

use corten_values::{Arguments, HostName, Object, ObjectName, check_protected};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::v1alpha1::{
    KUBELET, NodeIp, check_annotations, check_kubelet_config, check_labels, check_map, check_port,
    check_taints,
};

section! {
    /// The node object in Kubernetes: name, addresses, labels, annotations, taints.
    pub struct KubeNodeConfig [check_node] {
        Acted "skipNodeRegistration" skip_node_registration: Option<bool> = "Whether the kubelet runs pods without a cluster";
        Acted "registerWithFQDN" register_with_fqdn: Option<bool> = "Whether the node's name in Kubernetes is its FQDN";
        Acted "nodeIP" node_ip: NodeIp = "Selection of the node's address in Kubernetes";
        Acted "labels" labels: BTreeMap<String, String> = "Labels of the Kubernetes node";
        Acted "annotations" annotations: BTreeMap<String, String> = "Annotations of the Kubernetes node";
        Acted "taints" taints: BTreeMap<String, String> = "Taints of the Kubernetes node; none: it runs workloads, also a control plane node";
    }
}

fn check_node(_: &KubeNodeConfig, node: &Node, reader: &mut Reader<'_>) {
    check_labels(node, "labels", reader);
    check_annotations(node, "annotations", reader);
    check_taints(node, "taints", reader);
}

section! {
    /// The kubelet.
    pub struct KubeletConfig [check_kubelet] {
        Acted "image" image: String = "Container image", required;
        Acted "config" config: Option<Object> = "Fields of KubeletConfiguration";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "clusterDNS" cluster_dns: Vec<IpAddr> = "Name servers of pods";
        Acted "defaultRuntimeSeccompProfileEnabled" default_runtime_seccomp_profile_enabled: Option<bool> = "Whether pods use the runtime's seccomp profile by default";
    }
}

fn check_kubelet(_: &KubeletConfig, node: &Node, reader: &mut Reader<'_>) {
    check_protected(node, "extraArgs", KUBELET, reader);
    check_kubelet_config(node, "config", reader);
}

section! {
    /// The kubelet's credential providers for image registries.
    pub struct KubeCredentialProviderConfig [check_credential_provider] {
        Acted "configuration" configuration: Option<Object> = "Fields of CredentialProviderConfig", required, replace, secret;
    }
}

fn check_credential_provider(
    _: &KubeCredentialProviderConfig,
    node: &Node,
    reader: &mut Reader<'_>,
) {
    check_map(node, "configuration", "CredentialProviderConfig", reader);
}

section! {
    /// KubePrism: the node's own load balancer for the Kubernetes API.
    pub struct KubePrismConfig [check_prism] {
        Acted "port" port: u16 = "Port on 127.0.0.1", required;
        Acted "tlsServerName" tls_server_name: Option<HostName> = "Name in the API's certificate that the kubelet expects";
    }
}

fn check_prism(config: &KubePrismConfig, node: &Node, reader: &mut Reader<'_>) {
    check_port(Some(config.port), node, "port", reader);
}

section! {
    /// A static pod: the kubelet runs it without the Kubernetes API. The kubelet skips an invalid pod. The reason is in
    /// its log; the console of a control plane node names the pod.
    pub struct KubeStaticPodConfig {
        Acted "name" name: ObjectName = "Name", required;
        Acted "pod" pod: Option<Object> = "Pod object", required, replace;
    }
}

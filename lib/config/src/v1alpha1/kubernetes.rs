//! The kubelet and the components of the control plane.

use std::collections::BTreeMap;
use std::net::IpAddr;

use corten_values::{
    AbsolutePath, Arguments, Cidr, KeyPair, Object, SubnetMatch, check_protected, is_label_value,
    is_qualified_name, is_taint,
};
use corten_yaml::read::Reader;
use corten_yaml::tree::{Content, Node};
use corten_yaml::{choices, section};

use super::names::names_are;
use super::{Resources, VolumeMount, check_container};

section! {
    /// `machine.kubelet`.
    pub struct Kubelet [check_kubelet] {
        Acted "image" image: Option<String> = "Container image";
        Acted "clusterDNS" cluster_dns: Vec<IpAddr> = "Name servers of pods";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "extraMounts" extra_mounts: Vec<ExtraMount> = "Mounts of the kubelet's container";
        Acted "extraConfig" extra_config: Option<Object> = "Fields of KubeletConfiguration";
        Acted "credentialProviderConfig" credential_provider_config: Option<Object> = "Fields of CredentialProviderConfig, the kubelet's sources of credentials for image registries", secret;
        Acted "defaultRuntimeSeccompProfileEnabled" default_runtime_seccomp_profile_enabled: Option<bool> = "Whether pods use the runtime's seccomp profile by default";
        Acted "registerWithFQDN" register_with_fqdn: Option<bool> = "Whether the node's name in Kubernetes is its FQDN";
        Acted "nodeIP" node_ip: NodeIp = "Selection of the node's address in Kubernetes";
        Acted "skipNodeRegistration" skip_node_registration: Option<bool> = "Whether the kubelet runs pods without a cluster";
        Acted "disableManifestsDirectory" disable_manifests_directory: Option<bool> = "Whether the kubelet ignores static pods in files";
    }
}

section! {
    /// A mount of the kubelet's container (OCI runtime specification, `mounts`).
    pub struct ExtraMount {
        Acted "destination" destination: AbsolutePath = "Path in the kubelet's container", required;
        Acted "source" source: AbsolutePath = "Directory of the node, created if missing", required;
        Acted "type" kind: Option<String> = "Type of the mount; absent: `bind`";
        Acted "options" options: Vec<String> = "Mount options, such as `bind`, `rshared`, `rw`";
    }
}

/// Arguments of the kubelet that the node sets itself.
pub(crate) const KUBELET: &[&str] = &[
    "bootstrap-kubeconfig",
    "cert-dir",
    "config",
    "container-runtime",
    "container-runtime-endpoint",
    "kubeconfig",
];
/// Arguments of kube-apiserver that the node sets itself.
pub(crate) const API_SERVER: &[&str] = &[
    "authorization-config",
    "client-ca-file",
    "encryption-provider-config",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "etcd-servers",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "requestheader-client-ca-file",
    "service-account-key-file",
    "service-account-signing-key-file",
    "tls-cert-file",
    "tls-min-version",
    "tls-private-key-file",
];
/// Arguments of kube-controller-manager that the node sets itself.
pub(crate) const CONTROLLER_MANAGER: &[&str] = &[
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "cluster-signing-cert-file",
    "cluster-signing-key-file",
    "root-ca-file",
    "service-account-private-key-file",
];
/// Arguments of kube-scheduler that the node sets itself.
pub(crate) const SCHEDULER: &[&str] = &[
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "config",
    "kubeconfig",
];
/// Arguments of kube-proxy that the node sets itself.
pub(crate) const PROXY: &[&str] = &["config", "kubeconfig"];
/// Arguments of etcd that the node sets itself, or that would begin another cluster at each start.
const ETCD: &[&str] = &[
    "auto-tls",
    "cert-file",
    "client-cert-auth",
    "config-file",
    "data-dir",
    "force-new-cluster",
    "key-file",
    "listen-client-http-urls",
    "listen-client-urls",
    "listen-peer-urls",
    "name",
    "peer-auto-tls",
    "peer-cert-file",
    "peer-client-cert-auth",
    "peer-key-file",
    "peer-trusted-ca-file",
    "trusted-ca-file",
];

/// Fields of the kubelet's configuration that the node sets itself.
const KUBELET_CONFIG: &[&str] = &[
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupRoot",
    "kind",
    "kubeletCgroups",
    "port",
    "protectKernelDefaults",
    "resolvConf",
    "rotateCertificates",
    "seccompDefault",
    "staticPodPath",
    "staticPodURL",
    "systemCgroups",
];

fn check_kubelet(_: &Kubelet, node: &Node, reader: &mut Reader<'_>) {
    check_protected(node, "extraArgs", KUBELET, reader);
    check_kubelet_config(node, "extraConfig", reader);
    check_map(
        node,
        "credentialProviderConfig",
        "CredentialProviderConfig",
        reader,
    );
}

/// Reports a value that is not a map, or sets a field of the node.
pub(crate) fn check_kubelet_config(node: &Node, field: &str, reader: &mut Reader<'_>) {
    check_map(node, field, "KubeletConfiguration", reader);
    check_protected(node, field, KUBELET_CONFIG, reader);
}

/// Reports a value that is not a map of fields.
pub(crate) fn check_map(node: &Node, field: &str, of: &str, reader: &mut Reader<'_>) {
    let given = node.get(field).filter(|given| !given.is_null());
    if given.is_some_and(|given| !matches!(given.content, Content::Map(_))) {
        reader.wrong_in(node, field, &format!("must be a map of {of} fields"));
    }
}

/// Reports items of `extraArgs` that the program cannot parse.
pub(crate) fn check_whole_arguments(args: &[String], node: &Node, reader: &mut Reader<'_>) {
    let good = |arg: &String| arg.starts_with('-') && !arg.contains('\0');
    if !args.iter().all(good) {
        let what = "must be arguments with their dashes, such as --iface=eth1";
        reader.wrong_in(node, "extraArgs", what);
    }
}

fn check_api_server(_: &ApiServer, node: &Node, reader: &mut Reader<'_>) {
    check_protected(node, "extraArgs", API_SERVER, reader);
    check_container(node, reader);
}

fn check_controller_manager(_: &ControllerManager, node: &Node, reader: &mut Reader<'_>) {
    check_protected(node, "extraArgs", CONTROLLER_MANAGER, reader);
    check_container(node, reader);
}

fn check_scheduler(_: &Scheduler, node: &Node, reader: &mut Reader<'_>) {
    check_protected(node, "extraArgs", SCHEDULER, reader);
    check_container(node, reader);
}

fn check_proxy(_: &Proxy, node: &Node, reader: &mut Reader<'_>) {
    check_protected(node, "extraArgs", PROXY, reader);
}

fn check_etcd(etcd: &Etcd, node: &Node, reader: &mut Reader<'_>) {
    check_protected(node, "extraArgs", ETCD, reader);
    if etcd.subnet.is_some() && !etcd.advertised_subnets.is_empty() {
        let what = "must not be given together with advertisedSubnets, which replaces it";
        reader.wrong_in(node, "subnet", what);
    }
}

section! {
    /// Selection of a node's address in Kubernetes.
    pub struct NodeIp {
        Acted "validSubnets" valid_subnets: Vec<SubnetMatch> = "Networks of the node's address; absent: the first address of each family of services";
    }
}

/// Reports invalid labels of Kubernetes.
pub(crate) fn check_labels(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let what = "must be at most 63 letters, digits, dashes, dots and underscores";
    names_are(node, field, is_qualified_name, reader);
    values_are(node, field, is_label_value, what, reader);
}

/// Reports invalid annotations of Kubernetes; their values may be anything.
pub(crate) fn check_annotations(node: &Node, field: &str, reader: &mut Reader<'_>) {
    names_are(node, field, is_qualified_name, reader);
}

/// Reports invalid taints of a node.
pub(crate) fn check_taints(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let what =
        "must be NoSchedule, PreferNoSchedule or NoExecute, or a value, a colon and one of them";
    names_are(node, field, is_qualified_name, reader);
    values_are(node, field, is_taint, what, reader);
}

fn values_are(
    node: &Node,
    field: &str,
    good: fn(&str) -> bool,
    what: &str,
    reader: &mut Reader<'_>,
) {
    let entries = node.get(field).map(Node::entries).unwrap_or_default();
    // A value that is not a scalar was reported already.
    let single = |value: &Node| matches!(value.content, Content::Scalar { .. });
    reader.within(field, |reader| {
        for (key, value) in entries.iter().filter(|(_, value)| single(value)) {
            if !good(value.text().unwrap_or_default()) {
                reader.within(&key.name, |reader| reader.wrong(value.mark, what));
            }
        }
    });
}

section! {
    /// `cluster.apiServer`.
    pub struct ApiServer [check_api_server] {
        Acted "image" image: Option<String> = "Container image";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "extraVolumes" extra_volumes: Vec<VolumeMount> = "Additional mounts";
        Acted "env" env: BTreeMap<String, String> = "Environment variables", secret;
        Acted "certSANs" cert_sans: Vec<String> = "Additional names in the certificate";
        Held "disablePodSecurityPolicy" disable_pod_security_policy: Option<bool> = "Setting without effect";
        Acted "admissionControl" admission_control: Vec<AdmissionPlugin> = "Admission plugins", by(&["name"]);
        Acted "auditPolicy" audit_policy: Option<Object> = "Audit policy", replace;
        Acted "resources" resources: Resources = "Resource requests and limits";
        Acted "authorizationConfig" authorization_config: Vec<Authorizer> = "Authorizers in order", by(&["name"]);
    }
}

section! {
    /// The authorizers of the Kubernetes API.
    pub struct Authorizer [check_authorizer] {
        Acted "name" name: String = "Name", required;
        Acted "type" kind: AuthorizerKind = "Type of the authorizer", required;
        Acted "webhook" webhook: Option<Object> = "Settings of the webhook; only with `type: Webhook`";
    }
}

choices! {
    /// Type of an authorizer of the Kubernetes API.
    pub enum AuthorizerKind { Node = "Node", Rbac = "RBAC", Webhook = "Webhook", }
}

fn check_authorizer(authorizer: &Authorizer, node: &Node, reader: &mut Reader<'_>) {
    if authorizer.kind == AuthorizerKind::Webhook && authorizer.webhook.is_none() {
        reader.wrong_in(node, "webhook", "is required with type: Webhook");
    }
}

section! {
    /// An admission plugin.
    pub struct AdmissionPlugin {
        Acted "name" name: String = "Name", required;
        Acted "configuration" configuration: Option<Object> = "Configuration of the plugin";
    }
}

section! {
    /// `cluster.controllerManager`.
    pub struct ControllerManager [check_controller_manager] {
        Acted "image" image: Option<String> = "Container image";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "extraVolumes" extra_volumes: Vec<VolumeMount> = "Additional mounts";
        Acted "env" env: BTreeMap<String, String> = "Environment variables", secret;
        Acted "resources" resources: Resources = "Resource requests and limits";
    }
}

section! {
    /// `cluster.scheduler`.
    pub struct Scheduler [check_scheduler] {
        Acted "image" image: Option<String> = "Container image";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "extraVolumes" extra_volumes: Vec<VolumeMount> = "Additional mounts";
        Acted "env" env: BTreeMap<String, String> = "Environment variables", secret;
        Acted "resources" resources: Resources = "Resource requests and limits";
        Acted "config" config: Option<Object> = "Fields of KubeSchedulerConfiguration";
    }
}

section! {
    /// `cluster.proxy`.
    pub struct Proxy [check_proxy] {
        Acted "disabled" disabled: bool = "Whether the component is left out";
        Acted "image" image: Option<String> = "Container image";
        Acted "mode" mode: ProxyMode = "Mode of kube-proxy";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
    }
}

choices! {
    /// Implementation of services.
    pub enum ProxyMode { Nftables = "nftables", Iptables = "iptables", Ipvs = "ipvs", }
}

section! {
    /// `cluster.etcd`.
    pub struct Etcd [check_etcd] {
        Acted "image" image: Option<String> = "Container image";
        Acted "ca" ca: Option<KeyPair> = "CA of etcd";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "subnet" subnet: Option<Cidr> = "Network of the advertised addresses, in the old form";
        Acted "advertisedSubnets" advertised_subnets: Vec<SubnetMatch> = "Networks of the advertised addresses; absent: the node's first own address";
        Acted "listenSubnets" listen_subnets: Vec<SubnetMatch> = "Networks of the listen addresses; absent: those of `advertisedSubnets`, else all addresses";
    }
}

//! `cluster`.

use std::collections::BTreeMap;

use corten_values::{AcceptedCa, Base64Key, Cidr, HostName, HttpsUrl, KeyPair, Secret, Url};
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use super::{
    ApiServer, ControllerManager, Etcd, Proxy, Scheduler, check_port, check_whole_arguments,
};

section! {
    /// `cluster`.
    pub struct Cluster [check] {
        Held "id" id: Option<String> = "Identifier of the cluster for the discovery service";
        Acted "secret" secret: Secret = "Secret of the cluster; names the shim groups of system pods. The discovery service is not supported yet";
        Acted "controlPlane" control_plane: ControlPlane = "Endpoint of the Kubernetes API";
        Acted "clusterName" name: String = "Name of the cluster";
        Acted "network" network: ClusterNetwork = "Networks of the cluster";
        Acted "token" token: Secret = "Bootstrap token of Kubernetes for joining nodes";
        Acted "aescbcEncryptionSecret" aescbc_encryption_secret: Secret = "Key that encrypts secrets in etcd";
        Acted "secretboxEncryptionSecret" secretbox_encryption_secret: Secret = "Key that encrypts secrets in etcd";
        Acted "ca" ca: Option<KeyPair> = "CA of Kubernetes";
        Acted "acceptedCAs" accepted_cas: Vec<AcceptedCa> = "Additional accepted CAs of Kubernetes";
        Acted "aggregatorCA" aggregator_ca: Option<KeyPair> = "CA of the aggregation layer";
        Acted "serviceAccount" service_account: ServiceAccount = "Key that signs service account tokens";
        Acted "apiServer" api_server: ApiServer = "Settings of kube-apiserver";
        Acted "controllerManager" controller_manager: ControllerManager = "Settings of kube-controller-manager";
        Acted "proxy" proxy: Proxy = "Settings of kube-proxy";
        Acted "scheduler" scheduler: Scheduler = "Settings of kube-scheduler";
        Held "discovery" discovery: Discovery = "Discovery of nodes";
        Acted "etcd" etcd: Option<Etcd> = "Settings of etcd";
        Acted "coreDNS" core_dns: Option<CoreDns> = "Settings of CoreDNS";
        Acted "externalCloudProvider" external_cloud_provider: Option<ExternalCloudProvider> = "External cloud controller manager";
        Acted "extraManifests" extra_manifests: Vec<Url> = "Manifests to fetch and apply";
        Acted "extraManifestHeaders" extra_manifest_headers: BTreeMap<String, String> = "HTTP headers of the requests for these manifests", secret;
        Acted "inlineManifests" inline_manifests: Vec<InlineManifest> = "Manifests to apply", by(&["name"]);
        Acted "adminKubeconfig" admin_kubeconfig: Option<AdminKubeconfig> = "Settings of the administrator's kubeconfig";
        Acted "allowSchedulingOnMasters" allow_scheduling_on_masters: bool = "Old name of `allowSchedulingOnControlPlanes`";
        Acted "allowSchedulingOnControlPlanes" allow_scheduling_on_control_planes: bool = "Whether control plane nodes run workloads";
    }
}

fn check(cluster: &Cluster, node: &Node, reader: &mut Reader<'_>) {
    let mut names = std::collections::BTreeSet::new();
    for manifest in &cluster.inline_manifests {
        if !names.insert(&manifest.name) {
            reader.wrong_in(node, "inlineManifests", "has two manifests of one name");
        }
        if manifest.name.trim().is_empty() {
            let what = "has a manifest without a name: give it one";
            reader.wrong_in(node, "inlineManifests", what);
        }
    }
    check_fetched(&cluster.extra_manifests, node, "extraManifests", reader);
    check_headers(node, "extraManifestHeaders", reader);
    if !cluster.extra_manifest_headers.is_empty() && cluster.extra_manifests.is_empty() {
        let what = "is for requests of extraManifests, and there are none";
        reader.wrong_in(node, "extraManifestHeaders", what);
    }
}

/// Reports URLs with a scheme that the node cannot fetch.
pub(crate) fn check_fetched(urls: &[Url], node: &Node, field: &str, reader: &mut Reader<'_>) {
    let good =
        |url: &Url| url.is_empty() || url.starts_with("https://") || url.starts_with("http://");
    if !urls.iter().all(good) {
        reader.wrong_in(node, field, "must begin with https:// or http://");
    }
}

/// Reports invalid HTTP headers (RFC 9110, section 5).
pub(crate) fn check_headers(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let token = |name: &str| {
        let mark = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        !name.is_empty() && name.chars().all(mark)
    };
    let entries = node.get(field).map(Node::entries).unwrap_or_default();
    for (key, value) in entries {
        let value = value.text().unwrap_or_default();
        if !token(&key.name) || value.chars().any(char::is_control) {
            reader.wrong_in(
                node,
                field,
                "must hold headers: a name without blanks, and a line",
            );
        }
    }
}

section! {
    /// `cluster.controlPlane`.
    pub struct ControlPlane [check_control_plane] {
        Acted "endpoint" endpoint: HttpsUrl = "URL of the Kubernetes API; required here or in a KubeClusterConfig";
        Acted "localAPIServerPort" local_api_server_port: Option<u16> = "Port of the Kubernetes API on the nodes";
    }
}

fn check_control_plane(control_plane: &ControlPlane, node: &Node, reader: &mut Reader<'_>) {
    let port = control_plane.local_api_server_port;
    check_port(port, node, "localAPIServerPort", reader);
}

section! {
    /// `cluster.network`.
    pub struct ClusterNetwork [check_network] {
        Acted "cni" cni: Option<Cni> = "Network plugin";
        Acted "dnsDomain" dns_domain: Option<HostName> = "Domain of the cluster's DNS";
        Acted "podSubnets" pod_subnets: Vec<Cidr> = "Networks of pods", replace;
        Acted "serviceSubnets" service_subnets: Vec<Cidr> = "Networks of services", replace;
    }
}

fn check_network(network: &ClusterNetwork, node: &Node, reader: &mut Reader<'_>) {
    check_subnets(&network.pod_subnets, node, "podSubnets", reader);
    check_subnets(&network.service_subnets, node, "serviceSubnets", reader);
}

/// Reports more than one network per family.
pub(crate) fn check_subnets(subnets: &[Cidr], node: &Node, field: &str, reader: &mut Reader<'_>) {
    let count = |v4: bool| {
        let family = subnets
            .iter()
            .filter(|subnet| subnet.address.is_ipv4() == v4);
        family.count()
    };
    if count(true) > 1 || count(false) > 1 {
        let what = "must have at most one IPv4 and one IPv6 network";
        reader.wrong_in(node, field, what);
    }
}

section! {
    /// `cluster.network.cni`.
    pub struct Cni [check_cni] {
        Acted "name" name: CniName = "Network plugin";
        Acted "urls" urls: Vec<Url> = "Manifests of a custom plugin";
        Acted "flannel" flannel: FlannelOptions = "Settings of flannel";
    }
}

choices! {
    /// A network plugin.
    pub enum CniName { Flannel = "flannel", Custom = "custom", None = "none", }
}

fn check_cni(cni: &Cni, node: &Node, reader: &mut Reader<'_>) {
    if !cni.urls.is_empty() && cni.name != CniName::Custom {
        reader.wrong_in(node, "urls", "needs name: custom");
    }
    check_fetched(&cni.urls, node, "urls", reader);
    if cni.flannel != FlannelOptions::default() && cni.name != CniName::Flannel {
        reader.wrong_in(node, "flannel", "needs name: flannel");
    }
}

section! {
    /// `cluster.network.cni.flannel`.
    pub struct FlannelOptions [check_flannel] {
        Acted "extraArgs" extra_args: Vec<String> = "Additional arguments, each with its dashes";
        Acted "kubeNetworkPoliciesEnabled" kube_network_policies_enabled: Option<bool> = "Whether network policies are enforced";
    }
}

fn check_flannel(options: &FlannelOptions, node: &Node, reader: &mut Reader<'_>) {
    check_whole_arguments(&options.extra_args, node, reader);
}

section! {
    /// `cluster.serviceAccount`.
    pub struct ServiceAccount {
        Acted "key" key: Base64Key = "Private key";
    }
}

section! {
    /// `cluster.discovery`.
    pub struct Discovery {
        Held "enabled" enabled: Option<bool> = "Whether discovery is used";
        Held "registries" registries: DiscoveryRegistries = "Discovery services";
    }
}

section! {
    /// `cluster.discovery.registries`.
    pub struct DiscoveryRegistries {
        Held "kubernetes" kubernetes: DiscoveryRegistry = "Annotations of Kubernetes nodes";
        Held "service" service: DiscoveryRegistry = "Settings of the discovery service";
    }
}

section! {
    /// A registry where nodes announce themselves.
    pub struct DiscoveryRegistry [check_registry] {
        Held "disabled" disabled: Option<bool> = "Whether the registry is disabled";
        Held "endpoint" endpoint: Option<Url> = "URL of the discovery service; only for the service";
    }
}

fn check_registry(_: &DiscoveryRegistry, node: &Node, reader: &mut Reader<'_>) {
    check_discovery_endpoint(node, reader);
}

/// Reports an invalid endpoint of a discovery service.
pub(crate) fn check_discovery_endpoint(node: &Node, reader: &mut Reader<'_>) {
    let endpoint = node.get("endpoint").and_then(Node::text);
    let scheme = endpoint.and_then(|url| url.split_once("://"));
    if scheme.is_some_and(|(scheme, _)| !matches!(scheme, "https" | "http" | "grpc")) {
        let what = "must begin with https://, http:// or grpc://";
        reader.wrong_in(node, "endpoint", what);
    }
}

section! {
    /// `cluster.coreDNS`.
    pub struct CoreDns {
        Acted "disabled" disabled: bool = "Whether the component is left out";
        Acted "image" image: Option<String> = "Container image";
    }
}

section! {
    /// `cluster.externalCloudProvider`.
    pub struct ExternalCloudProvider [check_cloud] {
        Acted "enabled" enabled: bool = "Whether the cluster uses one";
        Acted "manifests" manifests: Vec<Url> = "URLs of its manifests";
    }
}

fn check_cloud(provider: &ExternalCloudProvider, node: &Node, reader: &mut Reader<'_>) {
    check_fetched(&provider.manifests, node, "manifests", reader);
    if !provider.enabled && !provider.manifests.is_empty() {
        reader.wrong_in(node, "manifests", "needs enabled: true");
    }
}

section! {
    /// A manifest to apply.
    pub struct InlineManifest {
        Acted "name" name: String = "Name", required;
        Acted "contents" contents: Secret = "Manifest in YAML; may hold secrets";
    }
}

section! {
    /// `cluster.adminKubeconfig`.
    pub struct AdminKubeconfig {
        Acted "certLifetime" cert_lifetime: Option<std::time::Duration> = "Lifetime of the certificate";
    }
}

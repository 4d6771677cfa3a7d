//! Cluster settings with two forms: the document without a kind, and documents with a kind. This file merges them and
//! applies the same rules to both. [`crate::conflicts`] refuses a setting in both forms.

use corten_values::{Cidr, KeyPair, PemKeyPair, Secret};
use corten_yaml::problem::{Mark, Notes};
use corten_yaml::tree::{Content, Node};

use crate::document::Document;
use crate::kinds::{
    DiscoveryIdentityConfig, DiscoveryServiceConfig, Kind as _, KubeAPIServerCAConfig,
    KubeAPIServerConfig, KubeAggregatorCAConfig, KubeAuthenticationConfig, KubeAuthorizerConfig,
    KubeClusterConfig, KubeNetworkConfig, KubeServiceAccountConfig,
};
use crate::v1alpha1::{MachineType, check_pods};

/// Kinds for the control plane, which have no effect on a worker.
const CONTROL_PLANE_ONLY: &[&str] = &[
    "KubeAdmissionControlConfig",
    "KubeAggregatorCAConfig",
    "KubeAPIServerConfig",
    "KubeAuditPolicyConfig",
    "KubeAuthenticationConfig",
    "KubeAuthorizerConfig",
    "KubeControllerManagerConfig",
    "KubeCoreDNSConfig",
    "KubeEtcdEncryptionConfig",
    "KubeFlannelCNIConfig",
    "KubeProxyConfig",
    "KubeSchedulerConfig",
    "KubeServiceAccountConfig",
    "KubeTalosAPIAccessConfig",
];

/// A CA with its key, from either form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IssuingCa<'a> {
    /// Path in the config, for messages.
    pub field: &'static str,
    /// Certificate, PEM.
    pub crt: &'a str,
    /// Private key, PEM; empty where only the certificate is known.
    pub key: &'a Secret,
}

impl<'a> IssuingCa<'a> {
    fn of_kind(field: &'static str, pair: &'a PemKeyPair) -> IssuingCa<'a> {
        IssuingCa {
            field,
            crt: &pair.crt,
            key: &pair.key,
        }
    }

    fn of_root(field: &'static str, pair: &'a KeyPair) -> IssuingCa<'a> {
        IssuingCa {
            field,
            crt: &pair.crt,
            key: &pair.key,
        }
    }
}

impl Document {
    /// The cluster's name; may be empty in the old form.
    #[must_use]
    pub fn cluster_name(&self) -> &str {
        let by_kind = self.all::<KubeClusterConfig>().next();
        by_kind.map_or(&self.cluster.name, |config| &config.name)
    }

    /// The URL of the Kubernetes API.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        let by_kind = self.all::<KubeClusterConfig>().next();
        by_kind.map_or(&self.cluster.control_plane.endpoint, |config| {
            &config.endpoint
        })
    }

    /// The cluster's id for the discovery service, if set.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        let by_kind = self.all::<DiscoveryIdentityConfig>().next();
        by_kind
            .map(|config| &*config.id)
            .or(self.cluster.id.as_deref())
    }

    /// Secret of the cluster, base64 of 32 bytes, that names the shim groups of system pods; empty: none.
    #[must_use]
    pub fn cluster_secret(&self) -> &Secret {
        let by_kind = self.all::<DiscoveryIdentityConfig>().next();
        by_kind.map_or(&self.cluster.secret, |config| &config.secret)
    }

    /// The CA of the Kubernetes API.
    #[must_use]
    pub fn kubernetes_ca(&self) -> Option<IssuingCa<'_>> {
        let mut by_kind = self.all::<KubeAPIServerCAConfig>();
        let by_kind = by_kind.find_map(|config| config.issuing_ca.as_ref());
        let root = self.cluster.ca.as_ref();
        by_kind
            .map(|pair| IssuingCa::of_kind("KubeAPIServerCAConfig.issuingCA", pair))
            .or_else(|| root.map(|pair| IssuingCa::of_root("cluster.ca", pair)))
    }

    /// Certificates of the CAs that the node trusts for the Kubernetes API, PEM, the issuing CA first. A node without one
    /// does not run Kubernetes.
    #[must_use]
    pub fn kubernetes_cas(&self) -> Vec<&str> {
        let issuing = self.kubernetes_ca().map(|ca| ca.crt);
        let old = self.cluster.accepted_cas.iter().map(|ca| &*ca.crt);
        let by_kind = self.all::<KubeAPIServerCAConfig>();
        let by_kind = by_kind.flat_map(|config| config.accepted_cas.iter().map(|ca| &**ca));
        let all = issuing.into_iter().chain(old).chain(by_kind);
        all.map(str::trim).filter(|crt| !crt.is_empty()).collect()
    }

    /// The CA of Kubernetes' aggregation layer.
    #[must_use]
    pub fn aggregator_ca(&self) -> Option<IssuingCa<'_>> {
        let by_kind = self.all::<KubeAggregatorCAConfig>().next();
        let root = self.cluster.aggregator_ca.as_ref();
        by_kind
            .map(|config| &config.issuing_ca)
            .map(|pair| IssuingCa::of_kind("KubeAggregatorCAConfig.issuingCA", pair))
            .or_else(|| root.map(|pair| IssuingCa::of_root("cluster.aggregatorCA", pair)))
    }

    /// The signing key of Kubernetes' service account tokens, PEM; empty: none.
    #[must_use]
    pub fn service_account_key(&self) -> &Secret {
        match self.all::<KubeServiceAccountConfig>().next() {
            Some(config) => &config.issuer.private_key,
            None => &self.cluster.service_account.key,
        }
    }

    /// Networks of pods.
    #[must_use]
    pub fn pod_subnets(&self) -> &[Cidr] {
        let by_kind = self.all::<KubeNetworkConfig>().next();
        by_kind.map_or(&self.cluster.network.pod_subnets, |config| {
            &config.pod_subnets
        })
    }

    /// Networks of services.
    #[must_use]
    pub fn service_subnets(&self) -> &[Cidr] {
        let by_kind = self.all::<KubeNetworkConfig>().next();
        by_kind.map_or(&self.cluster.network.service_subnets, |config| {
            &config.service_subnets
        })
    }
}

/// Reports settings missing in both forms, and settings that do not belong on a node of this type.
pub(crate) fn check(document: &Document, notes: &mut Notes) {
    let trees = document.trees();
    let root = trees.iter().find(|tree| tree.get("kind").is_none());
    // A node that is not a map was reported already.
    let Some(root) = root.filter(|root| is_map(root)) else {
        return;
    };
    endpoint(root, trees, notes);
    identity(document, root, trees, notes);
    arguments(document, trees, notes);
    check_pods(trees, notes);
    if document.machine.kind == MachineType::Worker {
        worker(trees, notes);
        let features = document
            .machine
            .features
            .kubernetes_talos_api_access
            .as_ref();
        if features.is_some_and(|access| access.enabled) {
            let path = "machine.features.kubernetesTalosAPIAccess";
            let place = ["machine", "features", "kubernetesTalosAPIAccess"];
            let place = place.iter().try_fold(root, |node, step| node.get(step));
            let message = format!("{path} must not be enabled on a worker");
            notes.add(place.map_or(root.mark, |node| node.mark), path, message);
        }
    }
}

fn is_map(node: &Node) -> bool {
    matches!(node.content, Content::Map(_))
}

/// All documents of a kind, valid or not.
fn of_kind<'a>(trees: &'a [Node], kind: &'a str) -> impl Iterator<Item = &'a Node> {
    let is = move |tree: &&Node| tree.get("kind").and_then(Node::text) == Some(kind);
    trees.iter().filter(is)
}

fn endpoint(root: &Node, trees: &[Node], notes: &mut Notes) {
    if of_kind(trees, KubeClusterConfig::NAME).next().is_some() {
        return;
    }
    let Some(cluster) = root.entry("cluster").filter(|cluster| !cluster.is_empty()) else {
        let mark = root
            .entry("cluster")
            .map_or(root.mark, |cluster| cluster.mark);
        notes.add(mark, "cluster", "cluster is required");
        return;
    };
    let place = cluster.get("controlPlane").unwrap_or(cluster);
    let given = cluster
        .get("controlPlane")
        .and_then(|control_plane| control_plane.get("endpoint"))
        .is_some_and(|endpoint| !endpoint.is_empty());
    if !given && is_map(cluster) && is_map(place) {
        let path = "cluster.controlPlane.endpoint";
        let message = format!("{path}, or a KubeClusterConfig, is required");
        notes.add(place.mark, path, message);
    }
}

/// Reports arguments of kube-apiserver that exclude a config file, if the config has the content of that file.
fn arguments(document: &Document, trees: &[Node], notes: &mut Notes) {
    let server = document.all::<KubeAPIServerConfig>().next();
    let old = &document.cluster.api_server;
    let args = server.map_or(&old.extra_args, |server| &server.extra_args);
    let first = |starts: &[&str]| {
        let mut names = args.0.keys();
        names.find(|name| starts.iter().any(|start| name.starts_with(start)))
    };
    let kinds = |kind: &'static str| of_kind(trees, kind).map(|tree| (tree.mark, kind)).next();
    let old_authorizers = (!old.authorization_config.is_empty())
        .then(|| (Mark::default(), "cluster.apiServer.authorizationConfig"));
    for (starts, file) in [
        (
            &["anonymous-auth", "authentication-config", "oidc-"][..],
            kinds(KubeAuthenticationConfig::NAME),
        ),
        (
            &["authorization-mode", "authorization-webhook"][..],
            kinds(KubeAuthorizerConfig::NAME).or(old_authorizers),
        ),
    ] {
        if let (Some(name), Some((mark, file))) = (first(starts), file) {
            let message = format!("{file} excludes the argument {name}: set it in one place");
            notes.add(mark, file, message);
        }
    }
}

/// Reports a discovery service without the cluster's id and secret, which it needs.
fn identity(document: &Document, root: &Node, trees: &[Node], notes: &mut Notes) {
    let cluster = &document.cluster;
    let old = cluster.id.as_deref().is_some_and(|id| !id.is_empty()) && !cluster.secret.is_empty();
    let kind = DiscoveryIdentityConfig::NAME;
    if old || of_kind(trees, kind).next().is_some() {
        return;
    }
    let mut missed = |mark: Mark, path: &str| {
        let message = format!("{path} needs cluster.id and cluster.secret, or a {kind}");
        notes.add(mark, path, message);
    };
    if cluster.discovery.enabled == Some(true) {
        let place = root
            .get("cluster")
            .and_then(|cluster| cluster.get("discovery"));
        missed(
            place.map_or(root.mark, |place| place.mark),
            "cluster.discovery",
        );
    }
    for tree in of_kind(trees, DiscoveryServiceConfig::NAME) {
        missed(tree.mark, DiscoveryServiceConfig::NAME);
    }
}

fn worker(trees: &[Node], notes: &mut Notes) {
    for kind in CONTROL_PLANE_ONLY {
        for tree in of_kind(trees, kind) {
            let message = format!("{kind} must not be given to a worker");
            notes.add(tree.mark, kind, message);
        }
    }
    let cas = of_kind(trees, KubeAPIServerCAConfig::NAME);
    for issuing in cas.filter_map(|tree| tree.get("issuingCA")) {
        if !issuing.is_empty() {
            let what = "issuingCA must not be given to a worker; acceptedCAs are for it";
            notes.add(issuing.mark, "issuingCA", what);
        }
    }
}

/// All kinds above.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CONTROL_PLANE_ONLY.iter().copied()
}

//! Kubernetes settings of the machine config, in either of its forms.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_config::Document;
use corten_config::kinds::{
    KubeAPIServerConfig, KubeAdmissionControlConfig, KubeAuditPolicyConfig,
    KubeAuthenticationConfig, KubeAuthorizerConfig, KubeEtcdEncryptionConfig, KubeNetworkConfig,
    KubeNodeConfig, KubeProxyConfig, KubeSchedulerConfig, KubeletConfig,
};
use corten_config::v1alpha1::{AdmissionPlugin, AuthorizerKind, ExtraMount};
use corten_values::{Arguments, Cidr, Object, Secret};
use corten_yaml::read::Word;
use serde_json::{Value, json};

use crate::addons::Addons;
use crate::extra::{self, Extra};
use crate::images::{Images, images};
use crate::shims::ShimGroups;
use crate::trust::Trust;

/// Default port of the Kubernetes API.
const API_PORT: u16 = 6443;
/// Index of the DNS service's address in the service subnet.
const DNS: u128 = 10;

/// A missing setting that a node needs to run Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not in the machine config; add it (`cortenctl gen config` writes it)")]
pub struct Missing(pub &'static str);

/// Settings shared by all nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the cluster.
    pub cluster: String,
    /// URL of the Kubernetes API.
    pub endpoint: String,
    /// Domain of the cluster's DNS.
    pub domain: String,
    /// Pod subnets.
    pub pods: Vec<Cidr>,
    /// Service subnets.
    pub services: Vec<Cidr>,
    /// Port of the Kubernetes API on control plane nodes.
    pub api_port: u16,
    /// CA certificates of the Kubernetes API, in PEM.
    pub cas: String,
    /// Bootstrap token of new kubelets.
    pub token: String,
    /// Port of KubePrism on 127.0.0.1; `None` if disabled.
    pub prism: Option<u16>,
    /// Name that the kubelet expects in the API's certificate behind KubePrism; `None` for the address that it calls.
    pub prism_name: Option<String>,
}

/// Settings of the node in Kubernetes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// Image of the kubelet.
    pub image: String,
    /// Name servers of pods.
    pub dns: Vec<IpAddr>,
    /// Whether the node runs the control plane.
    pub is_control_plane: bool,
    /// Whether pods without a profile get the runtime's seccomp profile.
    pub seccomp: bool,
    /// Whether the kubelet measures the storage of pods by quotas.
    pub has_quotas: bool,
    /// Taints of the node.
    pub taints: Vec<Taint>,
    /// Labels of the node.
    pub labels: Vec<(String, String)>,
    /// Whether the kubelet also reads static pods from `/etc/kubernetes/manifests`.
    pub reads_manifests: bool,
    /// Annotations of the node.
    pub annotations: Vec<(String, String)>,
    /// Further arguments of the kubelet.
    pub args: Arguments,
    /// Fields of the kubelet's configuration that override the node's own.
    pub config: Option<Value>,
    /// Further mounts of the kubelet's container.
    pub mounts: Vec<ExtraMount>,
    /// Whether the node runs only its static pods, without a cluster.
    pub is_alone: bool,
    /// Whether a cloud controller manager initializes the node, which stays tainted until then.
    pub has_cloud_provider: bool,
    /// The `CredentialProviderConfig` for image registries.
    pub credentials: Option<Secret>,
}

/// A taint, which keeps away pods that do not tolerate it (Kubernetes, "Taints and Tolerations").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value; often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Additional settings of a control plane node.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlPlane {
    /// Images of the components.
    pub images: Images,
    /// Further names in the API server's certificate.
    pub names: Vec<String>,
    /// AES-CBC key in base64 that encrypts secrets in etcd; empty without encryption.
    pub aescbc: String,
    /// The same for XSalsa20 and Poly1305.
    pub secretbox: String,
    /// The whole `EncryptionConfiguration`, if the config has one.
    pub encryption: Option<Value>,
    /// Audit policy; `None` logs the metadata of all requests.
    pub audit_policy: Option<Value>,
    /// Admission plug-ins with their configurations.
    pub admission: Vec<(String, Value)>,
    /// Fields of the `AuthenticationConfiguration`; `None` for the default.
    pub authentication: Option<Value>,
    /// Authorizers in order, in the format of `AuthorizationConfiguration`.
    pub authorizers: Vec<Value>,
    /// Mode of kube-proxy.
    pub proxy_mode: &'static str,
    /// Further arguments of kube-proxy.
    pub proxy_args: Arguments,
    /// Further arguments of etcd.
    pub etcd_args: Arguments,
    /// Additions to kube-apiserver.
    pub api_server: Extra,
    /// Additions to kube-controller-manager.
    pub controller_manager: Extra,
    /// Additions to kube-scheduler.
    pub scheduler: Extra,
    /// Fields of the `KubeSchedulerConfiguration`.
    pub scheduler_config: Option<Value>,
    /// Whether the kubelet probes kube-apiserver.
    pub has_probes: bool,
    /// Whether kube-apiserver trusts the CAs that the node trusts. In the legacy form the config mounts them itself.
    pub trusts_roots: bool,
    /// Whether kube-apiserver registers its address in the cluster; false on a node without a cluster.
    pub advertises: bool,
    /// Prefix lengths of a node's pod subnets, IPv4 and IPv6; `None` for Kubernetes' default.
    pub node_masks: (Option<u8>, Option<u8>),
    /// Trusted issuers and CAs.
    pub trust: Trust,
    /// Settings of kube-proxy and flannel.
    pub addons: Addons,
    /// Groups of pods that share a shim; `None` if each pod has one of its own.
    pub shim_groups: Option<ShimGroups>,
}

impl Settings {
    /// Reads the settings from the config.
    ///
    /// # Errors
    /// [`Missing`] if the config has no Kubernetes CA: then the node does not run Kubernetes.
    pub fn of(document: &Document) -> Result<Settings, Missing> {
        let cluster = &document.cluster;
        let network = document.all::<KubeNetworkConfig>().next();
        let server = document.all::<KubeAPIServerConfig>().next();
        let domain = match network {
            Some(network) => network.dns_domain.as_ref(),
            None => cluster.network.dns_domain.as_ref(),
        };
        let api_port = match server {
            Some(server) => server.api_port,
            None => cluster.control_plane.local_api_server_port,
        };
        let cas = document.kubernetes_cas();
        if cas.is_empty() {
            return Err(Missing("cluster.ca.crt"));
        }
        let or = |networks: &[Cidr], usual: &str| match networks {
            [] => Cidr::parse(usual).into_iter().collect(),
            _ => networks.to_vec(),
        };
        Ok(Settings {
            cluster: document.cluster_name().to_owned(),
            endpoint: document.endpoint().to_owned(),
            domain: domain.map_or("cluster.local".to_owned(), |domain| domain.to_string()),
            pods: or(document.pod_subnets(), "10.244.0.0/16"),
            services: or(document.service_subnets(), "10.96.0.0/12"),
            api_port: api_port.unwrap_or(API_PORT),
            cas: cas.join("\n") + "\n",
            token: cluster.token.expose().to_owned(),
            prism: crate::prism::port(document),
            prism_name: crate::prism::name(document),
        })
    }

    /// Addresses of the cluster's DNS service, one in each service subnet.
    #[must_use]
    pub fn dns(&self) -> Vec<IpAddr> {
        let networks = self.services.iter();
        networks.filter_map(|network| nth(network, DNS)).collect()
    }

    /// URL of the API server on a control plane node itself.
    #[must_use]
    pub fn local_endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    /// Subnets in the format of Kubernetes' arguments.
    #[must_use]
    pub fn joined(networks: &[Cidr]) -> String {
        let texts: Vec<String> = networks.iter().map(ToString::to_string).collect();
        texts.join(",")
    }
}

/// Label of control plane nodes.
pub(crate) const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

impl Node {
    /// All labels of the node, including those that it may not set itself.
    #[must_use]
    pub fn all_labels(&self) -> Vec<(String, String)> {
        let role = self
            .is_control_plane
            .then(|| (CONTROL_PLANE.to_owned(), String::new()));
        self.labels.iter().cloned().chain(role).collect()
    }

    /// Reads the settings from the config.
    ///
    /// # Errors
    /// [`Missing`] if the config has no kubelet image.
    pub fn of(document: &Document, settings: &Settings) -> Result<Node, Missing> {
        let kubelet = &document.machine.kubelet;
        let by_kind = document.all::<KubeletConfig>().next();
        let image = match by_kind {
            Some(config) => Some(config.image.clone()),
            None => kubelet.image.clone(),
        };
        let own_dns = match by_kind {
            Some(config) => &config.cluster_dns,
            None => &kubelet.cluster_dns,
        };
        let seccomp = match by_kind {
            Some(config) => config.default_runtime_seccomp_profile_enabled,
            None => kubelet.default_runtime_seccomp_profile_enabled,
        };
        let own = document.all::<KubeNodeConfig>().next();
        let labels = own.map_or(&document.machine.node_labels, |own| &own.labels);
        let is_control_plane = document.machine.kind.is_control_plane();
        Ok(Node {
            image: image.ok_or(Missing("machine.kubelet.image"))?,
            dns: match own_dns.is_empty() {
                true => settings.dns(),
                false => own_dns.clone(),
            },
            is_control_plane,
            seccomp: seccomp.unwrap_or_default(),
            has_quotas: document.machine.features.disk_quota_support,
            taints: taints(document),
            labels: labels
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            reads_manifests: crate::kubelet::reads_manifests(document),
            annotations: own
                .map_or(&document.machine.node_annotations, |own| &own.annotations)
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            args: by_kind
                .map_or(&kubelet.extra_args, |config| &config.extra_args)
                .clone(),
            config: match by_kind {
                Some(config) => config.config.as_ref(),
                None => kubelet.extra_config.as_ref(),
            }
            .map(Object::json),
            mounts: kubelet.extra_mounts.clone(),
            is_alone: is_alone(document),
            has_cloud_provider: document
                .cluster
                .external_cloud_provider
                .as_ref()
                .is_some_and(|provider| provider.enabled),
            credentials: crate::kubelet::credentials(document),
        })
    }
}

/// Whether the node runs only its static pods, without a cluster.
#[must_use]
pub fn is_alone(document: &Document) -> bool {
    let own = document.all::<KubeNodeConfig>().next();
    let kubelet = &document.machine.kubelet;
    let wanted = own.map_or(kubelet.skip_node_registration, |own| {
        own.skip_node_registration
    });
    wanted.unwrap_or_default()
}

/// Taints of the config, one for each key. Without a `KubeNodeConfig`, a control plane node also has the taint that keeps
/// user pods off; a `KubeNodeConfig` names all taints.
fn taints(document: &Document) -> Vec<Taint> {
    let own = document.all::<KubeNodeConfig>().next();
    let mut taints = own
        .map_or(&document.machine.node_taints, |own| &own.taints)
        .clone();
    let is_control_plane = document.machine.kind.is_control_plane();
    let cluster = &document.cluster;
    let allows = cluster.allow_scheduling_on_control_planes || cluster.allow_scheduling_on_masters;
    if own.is_none() && is_control_plane && !allows {
        taints.insert(CONTROL_PLANE.to_owned(), "NoSchedule".to_owned());
    }
    let taint = |(key, text): (String, String)| {
        let (value, effect) = text.split_once(':').unwrap_or(("", &text));
        Taint {
            value: value.to_owned(),
            effect: effect.to_owned(),
            key,
        }
    };
    taints.into_iter().map(taint).collect()
}

impl ControlPlane {
    /// Reads the settings from the config.
    ///
    /// # Errors
    /// [`Missing`] if the config lacks a component's image.
    pub fn of(document: &Document) -> Result<ControlPlane, Missing> {
        let cluster = &document.cluster;
        let server = document.all::<KubeAPIServerConfig>().next();
        let names = server.map_or(&cluster.api_server.cert_sans, |server| {
            &server.cert_extra_sans
        });
        let encryption = document.all::<KubeEtcdEncryptionConfig>().next();
        let audit_policy = match document.all::<KubeAuditPolicyConfig>().next() {
            Some(policy) => policy.configuration.as_ref(),
            None => cluster.api_server.audit_policy.as_ref(),
        };
        let authentication = document.all::<KubeAuthenticationConfig>().next();
        let proxy = document.all::<KubeProxyConfig>().next();
        let json = |object: Option<&Object>| object.map(Object::json);
        Ok(ControlPlane {
            images: images(document)?,
            names: names.clone(),
            aescbc: cluster.aescbc_encryption_secret.expose().to_owned(),
            secretbox: cluster.secretbox_encryption_secret.expose().to_owned(),
            encryption: json(encryption.and_then(|encryption| encryption.config.as_ref())),
            audit_policy: json(audit_policy),
            admission: admission(document)
                .map(|plugin| {
                    let configuration = json(plugin.configuration.as_ref());
                    (plugin.name.clone(), configuration.unwrap_or_default())
                })
                .collect(),
            authentication: json(authentication.and_then(|own| own.configuration.as_ref())),
            authorizers: authorizers(document),
            proxy_mode: proxy.map_or(cluster.proxy.mode, |proxy| proxy.mode).word(),
            proxy_args: proxy
                .map_or(&cluster.proxy.extra_args, |proxy| &proxy.extra_args)
                .clone(),
            etcd_args: cluster
                .etcd
                .as_ref()
                .map(|etcd| etcd.extra_args.clone())
                .unwrap_or_default(),
            api_server: extra::api_server(document),
            controller_manager: extra::controller_manager(document),
            scheduler: extra::scheduler(document),
            scheduler_config: json(match document.all::<KubeSchedulerConfig>().next() {
                Some(own) => own.config.as_ref(),
                None => cluster.scheduler.config.as_ref(),
            }),
            has_probes: server.and_then(|server| server.startup_probes) != Some(false),
            trusts_roots: server.is_some(),
            advertises: !is_alone(document),
            node_masks: document
                .all::<KubeNetworkConfig>()
                .next()
                .map(|network| (network.node_mask_v4, network.node_mask_v6))
                .unwrap_or_default(),
            trust: Trust::of(document),
            addons: Addons::of(document),
            shim_groups: ShimGroups::of(document),
        })
    }
}

fn admission(document: &Document) -> impl Iterator<Item = &AdmissionPlugin> {
    let by_kind = document.all::<KubeAdmissionControlConfig>();
    let old = document.cluster.api_server.admission_control.iter();
    old.chain(by_kind.map(|config| &config.plugin))
}

/// The config's authorizers in its order. A cluster cannot work without Node and RBAC: a missing one takes the place that
/// the reference gives it.
fn authorizers(document: &Document) -> Vec<Value> {
    let by_kind = document.all::<KubeAuthorizerConfig>();
    let old = document.cluster.api_server.authorization_config.iter();
    let own = old.chain(by_kind.map(|config| &config.authorizer));
    let mut all: Vec<Value> = own
        .map(|authorizer| {
            let (kind, name) = (authorizer.kind, &authorizer.name);
            let webhook = authorizer.webhook.as_ref();
            match webhook.filter(|_| kind == AuthorizerKind::Webhook) {
                None => json!({ "type": kind.word(), "name": name }),
                Some(own) => json!({ "type": kind.word(), "name": name, "webhook": own.json() }),
            }
        })
        .collect();
    let usual = [
        (AuthorizerKind::Node, "node"),
        (AuthorizerKind::Rbac, "rbac"),
    ];
    for (place, (kind, name)) in usual.into_iter().enumerate() {
        let kind = kind.word();
        if all.iter().all(|one| one.get("type") != Some(&kind.into())) {
            all.insert(place.min(all.len()), json!({ "type": kind, "name": name }));
        }
    }
    all
}

/// The nth address of a subnet; `None` if the subnet is smaller.
#[must_use]
pub fn nth(network: &Cidr, number: u128) -> Option<IpAddr> {
    let (bits, start) = match network.address {
        IpAddr::V4(address) => (32, u128::from(u32::from(address))),
        IpAddr::V6(address) => (128, u128::from(address)),
    };
    let free = u32::from(bits - network.prefix.min(bits));
    let size = 1_u128.checked_shl(free);
    if size.is_some_and(|size| number >= size) {
        return None;
    }
    let mask = size.map_or(0, |size| !(size - 1));
    let found = (start & mask) | number;
    Some(match network.address {
        IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(found).ok()?).into(),
        IpAddr::V6(_) => Ipv6Addr::from(found).into(),
    })
}

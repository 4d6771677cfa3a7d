//! Shows the settings of a control plane node.

use std::collections::BTreeMap;

use corten_config::Document;
use corten_kubernetes::etcd::{advertised_subnets, listen_subnets, shared};
use corten_kubernetes::{ControlPlane, Settings, bootstrap_settings};
use corten_manifests::{Flannel, Settings as Bootstrap};
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::etcd::EtcdConfig;
use corten_types::kubernetes_manifests::{
    BootstrapManifestsConfig, ExtraManifest, ExtraManifestsConfig,
};
use corten_types::kubernetes_policies::{
    AdmissionControlConfig, AuditPolicyConfig, AuthenticationConfig, AuthorizationConfig,
    EtcdEncryptionConfig,
};
use corten_types::secrets_kubernetes::{EtcdRoot, KubernetesRoot};
use corten_values::Secret;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::super::next;
use super::components::resources;
use super::{args, policies, roots, show};

/// Place of the config's manifests in the order of all manifests: after the cluster's own.
const LAST: &str = "99";

#[derive(Debug, Clone)]
pub(super) struct ClusterSettings {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for ClusterSettings {
    fn name(&self) -> &'static str {
        "k8s.ControlPlaneConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<AdmissionControlConfig>(),
            Output::exclusive::<AuditPolicyConfig>(),
            Output::exclusive::<AuthenticationConfig>(),
            Output::exclusive::<AuthorizationConfig>(),
            Output::exclusive::<EtcdEncryptionConfig>(),
            Output::exclusive::<BootstrapManifestsConfig>(),
            Output::exclusive::<ExtraManifestsConfig>(),
            Output::exclusive::<EtcdConfig>(),
            Output::exclusive::<KubernetesRoot>(),
            Output::exclusive::<EtcdRoot>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let config = config.filter(|config| config.machine.kind.is_control_plane());
            let config = config.as_ref();
            let settings = config.and_then(|config| Settings::of(config).ok());
            let settings = settings.as_ref();
            let own = config.filter(|_| settings.is_some());
            let own = own.and_then(|config| ControlPlane::of(config).ok());
            let own = own.as_ref();
            let all = config.zip(settings).zip(own);
            context.start_outputs();
            let plugins = own.map(policies::admission);
            show(context, AdmissionControlConfig::ID, plugins)?;
            show(context, AuditPolicyConfig::ID, own.map(policies::audit))?;
            let authentication = own.map(policies::authentication);
            show(context, AuthenticationConfig::ID, authentication)?;
            let authorizers = own.map(policies::authorization);
            show(context, AuthorizationConfig::ID, authorizers)?;
            let encryption = own.map(policies::encryption);
            show(context, EtcdEncryptionConfig::ID, encryption)?;
            let bootstrap = settings.zip(own);
            let bootstrap =
                bootstrap.map(|(settings, own)| manifests(&bootstrap_settings(settings, own)));
            show(context, BootstrapManifestsConfig::ID, bootstrap)?;
            let extra = config.filter(|_| own.is_some()).map(extra_manifests);
            show(context, ExtraManifestsConfig::ID, extra)?;
            let member = config.zip(own).map(|(config, own)| etcd(config, own));
            show(context, EtcdConfig::ID, member)?;
            let root =
                all.and_then(|((config, settings), own)| roots::kubernetes(config, settings, own));
            show(context, KubernetesRoot::ID, root)?;
            show(context, EtcdRoot::ID, config.and_then(roots::etcd))?;
        }
    }
}

fn etcd(config: &Document, own: &ControlPlane) -> EtcdConfig {
    let shared = shared(config).into_iter();
    EtcdConfig {
        advertise_valid_subnets: advertised_subnets(config),
        advertise_exclude_subnets: shared.map(|address| address.to_string()).collect(),
        listen_valid_subnets: listen_subnets(config),
        listen_exclude_subnets: Vec::new(),
        image: own.images.etcd.clone(),
        extra_args: args(&own.etcd_args),
    }
}

/// Settings of the bootstrap manifests in the form of the reference.
fn manifests(own: &Bootstrap) -> BootstrapManifestsConfig {
    let proxy = own.proxy.clone();
    let dns = own.dns.clone();
    let proxy_config = proxy.as_ref().and_then(|proxy| proxy.config.clone());
    let checksum = |config: &Value| hex::encode(Sha256::digest(config.to_string()));
    let mut found = BootstrapManifestsConfig {
        server: own.server.clone(),
        cluster_domain: own.domain.clone(),
        pod_cidrs: own.pod_subnets.clone(),
        proxy_enabled: proxy.is_some(),
        proxy_config_checksum: proxy_config.as_ref().map(checksum).unwrap_or_default(),
        proxy_config: proxy_config.unwrap_or_default(),
        core_dns_enabled: dns.is_some(),
        talos_api_service_enabled: own.has_pod_access,
        cni_name: "none".to_owned(),
        ..BootstrapManifestsConfig::default()
    };
    if let Some(proxy) = proxy {
        found.proxy_image = proxy.image;
        found.proxy_args = proxy.args;
        found.proxy_resources = resources(&proxy.resources);
    }
    if let Some(dns) = dns {
        found.core_dns_image = dns.image;
        found.dns_service_ip = dns.ipv4.map(|ip| ip.to_string()).unwrap_or_default();
        found.dns_service_ipv6 = dns.ipv6.map(|ip| ip.to_string()).unwrap_or_default();
    }
    if let Some(own) = &own.flannel {
        flannel(&mut found, own);
    }
    found
}

fn flannel(found: &mut BootstrapManifestsConfig, own: &Flannel) {
    let api = own.api.as_ref();
    found.flannel_enabled = true;
    found.flannel_image.clone_from(&own.image);
    found.flannel_extra_args.clone_from(&own.args);
    found.flannel_kube_service_host = api.map(|(host, _)| host.to_string()).unwrap_or_default();
    found.flannel_kube_service_port = api.map(|(_, port)| port.to_string()).unwrap_or_default();
    found.flannel_kube_network_policies_enabled = own.policies_image.is_some();
    found.flannel_kube_network_policies_image = own.policies_image.clone().unwrap_or_default();
    found.flannel_backend_type.clone_from(&own.backend);
    found.flannel_backend_port = own.port.unwrap_or_default();
    found.flannel_backend_mtu = own.mtu.unwrap_or_default();
    found.flannel_backend_extra_config = own.extra.clone().into_iter().collect();
    found.flannel_resources = resources(&own.resources);
    "flannel".clone_into(&mut found.cni_name);
}

/// The config's manifests, to download and inline.
fn extra_manifests(config: &Document) -> ExtraManifestsConfig {
    let external = config.external_manifests().into_iter();
    let external = external.map(|one| ExtraManifest {
        name: one.field,
        url: one.url,
        priority: LAST.to_owned(),
        extra_headers: one.headers.into_iter().collect(),
        inline_manifest: Secret::default(),
    });
    let inline = config.inline_manifests().into_iter();
    let inline = inline.map(|(name, contents)| ExtraManifest {
        name,
        url: Secret::default(),
        priority: LAST.to_owned(),
        extra_headers: BTreeMap::new(),
        inline_manifest: contents,
    });
    ExtraManifestsConfig {
        extra_manifests: external.chain(inline).collect(),
    }
}

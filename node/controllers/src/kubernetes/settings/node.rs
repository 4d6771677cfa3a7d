//! Shows the settings of the node's kubelet and of its object in the cluster.

use std::collections::BTreeMap;

use corten_config::Document;
use corten_config::kinds::KubeNodeConfig;
use corten_kubernetes::{Node, Settings};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::extension::ExtensionStatus;
use corten_types::kubernetes::StaticPodServerStatus;
use corten_types::kubernetes_kubelet::{self as types, KubeletConfig, Mount};
use corten_types::kubernetes_node::{
    NodeAnnotationSpec, NodeCordonedSpec, NodeIpConfig, NodeLabelSpec, NodeTaintSpec,
};
use corten_types::runtime::MachineStatus;
use corten_types::secrets_kubernetes::KubeletSecrets;
use corten_values::{is_label_value, is_qualified_name};
use serde_json::Value;
use tokio::sync::watch;

use super::super::next;
use super::{args, roots, show};

/// Prefix of the labels and annotations of system extensions.
const EXTENSION: &str = "extensions.talos.dev/";

#[derive(Debug, Clone)]
pub(super) struct NodeSettings {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for NodeSettings {
    fn name(&self) -> &'static str {
        "k8s.KubeletConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<StaticPodServerStatus>(Dependency::Weak).with_id(StaticPodServerStatus::ID),
            Input::of::<ExtensionStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<KubeletConfig>(),
            Output::exclusive::<KubeletSecrets>(),
            Output::exclusive::<NodeIpConfig>(),
            Output::exclusive::<NodeLabelSpec>(),
            Output::exclusive::<NodeAnnotationSpec>(),
            Output::exclusive::<NodeTaintSpec>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let pods = context.get::<StaticPodServerStatus>(StaticPodServerStatus::ID)?;
            let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
            let both = config.as_ref().zip(settings.as_ref());
            let node = both.and_then(|(config, settings)| Node::of(config, settings).ok());
            let all = both.zip(node.as_ref());
            context.start_outputs();
            let kubelet = all.zip(pods).map(|(((config, settings), node), pods)| {
                kubelet(config, settings, node, &pods.url)
            });
            show(context, types::ID, kubelet)?;
            let secrets =
                all.map(|((_, settings), node)| roots::kubelet(settings, node.is_control_plane));
            show(context, KubeletSecrets::ID, secrets)?;
            let addresses = both.map(|(config, settings)| addresses(config, settings));
            show(context, NodeIpConfig::ID, addresses)?;
            let extensions = match node.is_some() {
                true => of_extensions(context)?,
                false => OfExtensions::default(),
            };
            metadata(context, node.unwrap_or_default(), extensions)?;
        }
    }
}

/// Labels and annotations with the names and versions of the node's system extensions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OfExtensions {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The version of an extension is a label, or an annotation if no label can have it as value.
pub(crate) fn of_extensions(context: &Context) -> Result<OfExtensions, Failure> {
    let mut found = OfExtensions::default();
    for extension in context.list::<ExtensionStatus>()? {
        let (name, version) = (&extension.metadata.name, &extension.metadata.version);
        let key = format!("{EXTENSION}{name}");
        if is_qualified_name(&key) {
            let into = match is_label_value(version) {
                true => &mut found.labels,
                false => &mut found.annotations,
            };
            into.insert(key, version.clone());
        }
    }
    Ok(found)
}

/// Shows the labels, annotations and taints of the node.
fn metadata(context: &mut Context, node: Node, extensions: OfExtensions) -> Result<(), Failure> {
    for (key, value) in node.all_labels().into_iter().chain(extensions.labels) {
        context.put(Draft::new(&key.clone(), NodeLabelSpec { key, value }))?;
    }
    context.remove_others::<NodeLabelSpec>()?;
    for (key, value) in node.annotations.into_iter().chain(extensions.annotations) {
        context.put(Draft::new(&key.clone(), NodeAnnotationSpec { key, value }))?;
    }
    context.remove_others::<NodeAnnotationSpec>()?;
    for taint in node.taints {
        let spec = NodeTaintSpec {
            key: taint.key,
            effect: taint.effect,
            value: taint.value,
        };
        context.put(Draft::new(&spec.key.clone(), spec))?;
    }
    context.remove_others::<NodeTaintSpec>()?;
    Ok(())
}

/// Further mounts of the kubelet's container.
pub(crate) fn mounts(node: &Node) -> Vec<Mount> {
    let mount = |mount: &corten_config::v1alpha1::ExtraMount| Mount {
        destination: mount.destination.to_string(),
        kind: mount.kind.clone().unwrap_or_default(),
        source: mount.source.to_string(),
        options: mount.options.clone(),
    };
    node.mounts.iter().map(mount).collect()
}

/// The credential providers for image registries; null without.
pub(crate) fn credentials(node: &Node) -> Value {
    let text = node.credentials.as_ref();
    text.and_then(|text| serde_json::from_str(text.expose()).ok())
        .unwrap_or_default()
}

fn kubelet(config: &Document, settings: &Settings, node: &Node, pods: &str) -> KubeletConfig {
    let taint = |taint: &corten_kubernetes::Taint| {
        let value = match taint.value.is_empty() {
            true => taint.effect.clone(),
            false => format!("{}:{}", taint.value, taint.effect),
        };
        (taint.key.clone(), value)
    };
    KubeletConfig {
        image: node.image.clone(),
        cluster_dns: node.dns.iter().map(ToString::to_string).collect(),
        cluster_domain: settings.domain.clone(),
        extra_args: args(&node.args),
        extra_mounts: mounts(node),
        extra_config: node.config.clone().unwrap_or_default(),
        cloud_provider_external: node.has_cloud_provider,
        default_runtime_seccomp_enabled: node.seccomp,
        skip_node_registration: node.is_alone,
        static_pod_list_url: pods.to_owned(),
        disable_manifests_directory: !node.reads_manifests,
        enable_fs_quota_monitoring: config.machine.features.disk_quota_support,
        credential_provider_config: credentials(node),
        register_with_taints: node.taints.iter().map(taint).collect(),
    }
}

fn addresses(config: &Document, settings: &Settings) -> NodeIpConfig {
    let own = config.all::<KubeNodeConfig>().next();
    let own = own.map_or(&config.machine.kubelet.node_ip, |own| &own.node_ip);
    let networks = settings.pods.iter().chain(&settings.services);
    NodeIpConfig {
        valid_subnets: own
            .valid_subnets
            .iter()
            .map(|one| one.to_string())
            .collect(),
        exclude_subnets: networks.map(ToString::to_string).collect(),
    }
}

/// Marks a node that goes down.
#[derive(Debug, Clone)]
pub(super) struct Cordons;

impl Controller for Cordons {
    fn name(&self) -> &'static str {
        "k8s.NodeCordonedSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<MachineStatus>(Dependency::Weak).with_id(MachineStatus::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NodeCordonedSpec>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let status = context.get::<MachineStatus>(MachineStatus::ID)?;
            let stage = status.map(|status| status.stage).unwrap_or_default();
            // A node that reboots comes back soon, so its pods stay.
            let goes = ["shutting down", "resetting"].contains(&stage);
            context.start_outputs();
            let mark = goes.then_some(NodeCordonedSpec {});
            show(context, NodeCordonedSpec::ID, mark)?;
        }
    }
}

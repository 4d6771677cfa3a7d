//! The control plane: the Kubernetes API, its authorization, and the programs beside it.

use std::collections::BTreeMap;

use corten_values::{Arguments, Object, check_protected};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::pod_access::rules::check_access;
use crate::v1alpha1::{
    API_SERVER, AdmissionPlugin, Authorizer, CONTROLLER_MANAGER, Resources, SCHEDULER,
    check_container, check_port,
};

section! {
    /// kube-apiserver.
    pub struct KubeAPIServerConfig [check_api_server] {
        Acted "image" image: String = "Container image", required;
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "env" env: BTreeMap<String, String> = "Environment variables", secret;
        Acted "resources" resources: Resources = "Resource requests and limits";
        Acted "apiPort" api_port: Option<u16> = "Port of the Kubernetes API on the nodes";
        Acted "certExtraSANs" cert_extra_sans: Vec<String> = "Additional names in the certificate";
        Acted "startupProbes" startup_probes: Option<bool> = "Whether the kubelet probes it; absent: yes";
    }
}

fn check_api_server(config: &KubeAPIServerConfig, node: &Node, reader: &mut Reader<'_>) {
    check_port(config.api_port, node, "apiPort", reader);
    check_protected(node, "extraArgs", API_SERVER, reader);
    // Beside this document the file is always the node's own, as with the reference.
    check_protected(node, "extraArgs", &["authentication-config"], reader);
    check_container(node, reader);
}

section! {
    /// kube-controller-manager.
    pub struct KubeControllerManagerConfig [check_controller_manager] {
        Acted "enabled" enabled: Option<bool> = "Whether it runs on this node; absent: yes";
        Acted "image" image: Option<String> = "Container image";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "env" env: BTreeMap<String, String> = "Environment variables", secret;
        Acted "resources" resources: Resources = "Resource requests and limits";
    }
}

fn check_controller_manager(
    config: &KubeControllerManagerConfig,
    node: &Node,
    reader: &mut Reader<'_>,
) {
    check_image(config.enabled, config.image.as_deref(), node, reader);
    check_protected(node, "extraArgs", CONTROLLER_MANAGER, reader);
    check_container(node, reader);
}

/// Reports an enabled component without an image.
pub(super) fn check_image(
    enabled: Option<bool>,
    image: Option<&str>,
    node: &Node,
    reader: &mut Reader<'_>,
) {
    if enabled != Some(false) && image.is_none() {
        reader.wrong_in(node, "image", "is required");
    }
}

section! {
    /// kube-scheduler.
    pub struct KubeSchedulerConfig [check_scheduler] {
        Acted "enabled" enabled: Option<bool> = "Whether it runs on this node; absent: yes";
        Acted "image" image: Option<String> = "Container image";
        Acted "config" config: Option<Object> = "Fields of KubeSchedulerConfiguration";
        Acted "extraArgs" extra_args: Arguments = "Additional arguments by name; several values repeat the argument";
        Acted "env" env: BTreeMap<String, String> = "Environment variables", secret;
        Acted "resources" resources: Resources = "Resource requests and limits";
    }
}

fn check_scheduler(config: &KubeSchedulerConfig, node: &Node, reader: &mut Reader<'_>) {
    check_image(config.enabled, config.image.as_deref(), node, reader);
    check_protected(node, "extraArgs", SCHEDULER, reader);
    check_container(node, reader);
}

section! {
    /// An admission plugin of the Kubernetes API.
    pub struct KubeAdmissionControlConfig {
        .. plugin: AdmissionPlugin = "Settings of the plugin";
    }
}

section! {
    /// The audit policy of the Kubernetes API.
    pub struct KubeAuditPolicyConfig {
        Acted "configuration" configuration: Option<Object> = "Audit policy", replace;
    }
}

section! {
    /// The authentication configuration of the Kubernetes API.
    pub struct KubeAuthenticationConfig {
        Acted "configuration" configuration: Option<Object> = "Fields of AuthenticationConfiguration", replace;
    }
}

section! {
    /// An authorizer of the Kubernetes API; authorizers are asked in the order of the documents.
    pub struct KubeAuthorizerConfig {
        .. authorizer: Authorizer = "Settings of the authorizer";
    }
}

section! {
    /// Access to the node's API from pods.
    pub struct KubeTalosAPIAccessConfig [check_api_access] {
        Acted "allowedRoles" allowed_roles: Vec<String> = "Roles that pods may have at most";
        Acted "allowedKubernetesNamespaces" allowed_kubernetes_namespaces: Vec<String> = "Namespaces of the allowed pods";
    }
}

fn check_api_access(_: &KubeTalosAPIAccessConfig, node: &Node, reader: &mut Reader<'_>) {
    check_access(node, reader);
}

//! Settings of the manifests that a control plane node applies to the cluster.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::k8s as wire;
use corten_resources::{Definition, Spec};
use corten_values::Secret;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::kubernetes_components::{NAMESPACE, Resources, sensitive};
use super::message::object;
use super::open;
use super::secrets::exposed;

/// Settings of the bootstrap manifests; id [`BootstrapManifestsConfig::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapManifestsConfig {
    /// URL of the API server for programs on any node.
    #[serde(rename = "string")]
    pub server: String,
    /// Domain of the cluster's DNS.
    pub cluster_domain: String,
    /// Pod subnets.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    pub proxy_enabled: bool,
    pub proxy_image: String,
    pub proxy_args: Vec<String>,
    /// The `KubeProxyConfiguration`; null if kube-proxy has arguments only.
    pub proxy_config: Value,
    /// SHA-256 of that configuration in hexadecimal; empty without.
    pub proxy_config_checksum: String,
    pub proxy_resources: Resources,
    #[serde(rename = "coreDNSEnabled")]
    pub core_dns_enabled: bool,
    #[serde(rename = "coreDNSImage")]
    pub core_dns_image: String,
    #[serde(rename = "dnsServiceIP")]
    pub dns_service_ip: String,
    #[serde(rename = "dnsServiceIPv6")]
    pub dns_service_ipv6: String,
    pub flannel_enabled: bool,
    pub flannel_image: String,
    pub flannel_extra_args: Vec<String>,
    pub flannel_kube_service_host: String,
    pub flannel_kube_service_port: String,
    pub flannel_kube_network_policies_enabled: bool,
    pub flannel_kube_network_policies_image: String,
    pub flannel_backend_type: String,
    pub flannel_backend_port: u16,
    #[serde(rename = "flannelBackendMTU")]
    pub flannel_backend_mtu: u32,
    /// Further fields of the backend.
    pub flannel_backend_extra_config: Value,
    pub flannel_resources: Resources,
    /// Always false: Kubernetes has no such policies since 1.25.
    pub pod_security_policy_enabled: bool,
    /// Whether pods have access to the node's API.
    #[serde(rename = "talosAPIServiceEnabled")]
    pub talos_api_service_enabled: bool,
    /// `flannel`, or `none` if the config brings another network plug-in or no plug-in.
    #[serde(rename = "cniName")]
    pub cni_name: String,
}

impl BootstrapManifestsConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "manifests";
}

impl Spec for BootstrapManifestsConfig {
    const DEFINITION: Definition = open(
        "BootstrapManifestsConfigs.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = wire::BootstrapManifestsConfigSpec;

    fn message(&self) -> wire::BootstrapManifestsConfigSpec {
        wire::BootstrapManifestsConfigSpec {
            server: self.server.clone(),
            cluster_domain: self.cluster_domain.clone(),
            pod_cid_rs: self.pod_cidrs.clone(),
            proxy_enabled: self.proxy_enabled,
            proxy_image: self.proxy_image.clone(),
            proxy_args: self.proxy_args.clone(),
            core_dns_enabled: self.core_dns_enabled,
            core_dns_image: self.core_dns_image.clone(),
            dns_service_ip: self.dns_service_ip.clone(),
            dns_service_i_pv6: self.dns_service_ipv6.clone(),
            flannel_enabled: self.flannel_enabled,
            flannel_image: self.flannel_image.clone(),
            pod_security_policy_enabled: self.pod_security_policy_enabled,
            talos_api_service_enabled: self.talos_api_service_enabled,
            flannel_extra_args: self.flannel_extra_args.clone(),
            flannel_kube_service_host: self.flannel_kube_service_host.clone(),
            flannel_kube_service_port: self.flannel_kube_service_port.clone(),
            flannel_kube_network_policies_enabled: self.flannel_kube_network_policies_enabled,
            flannel_kube_network_policies_image: self.flannel_kube_network_policies_image.clone(),
            cni_name: self.cni_name.clone(),
            flannel_backend_mtu: self.flannel_backend_mtu,
            flannel_backend_type: self.flannel_backend_type.clone(),
            flannel_backend_port: self.flannel_backend_port.into(),
            flannel_resources: Some((&self.flannel_resources).into()),
            flannel_backend_extra_config: object(&self.flannel_backend_extra_config),
            proxy_config: object(&self.proxy_config),
            proxy_resources: Some((&self.proxy_resources).into()),
            proxy_config_checksum: self.proxy_config_checksum.clone(),
        }
    }
}

/// A manifest of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtraManifest {
    /// Name; of one to download, the field that declares it.
    pub name: String,
    /// URL to download it from; empty for an inline manifest.
    #[serde(serialize_with = "exposed")]
    pub url: Secret,
    /// Place in the order of all manifests.
    pub priority: String,
    /// Headers of the request.
    #[serde(serialize_with = "all_exposed")]
    pub extra_headers: BTreeMap<String, Secret>,
    /// YAML of an inline manifest; otherwise empty.
    #[serde(serialize_with = "exposed")]
    pub inline_manifest: Secret,
}

fn all_exposed<S: Serializer>(
    headers: &BTreeMap<String, Secret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.iter().map(|(name, value)| (name, value.expose())))
}

/// Manifests of the config; id [`ExtraManifestsConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtraManifestsConfig {
    /// The manifests.
    pub extra_manifests: Vec<ExtraManifest>,
}

impl ExtraManifestsConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "extra-manifests";
}

impl Spec for ExtraManifestsConfig {
    // URLs, headers and inline manifests may contain secrets.
    const DEFINITION: Definition = sensitive("ExtraManifestsConfigs.kubernetes.talos.dev");

    const IS_LARGE: bool = true;

    type Message = wire::ExtraManifestsConfigSpec;

    fn message(&self) -> wire::ExtraManifestsConfigSpec {
        let manifest = |one: &ExtraManifest| {
            let headers = one.extra_headers.iter();
            wire::ExtraManifest {
                name: one.name.clone(),
                url: one.url.expose().to_owned(),
                priority: one.priority.clone(),
                extra_headers: headers
                    .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                    .collect(),
                inline_manifest: one.inline_manifest.expose().to_owned(),
            }
        };
        wire::ExtraManifestsConfigSpec {
            extra_manifests: self.extra_manifests.iter().map(manifest).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::Sensitivity;
    use serde_json::json;

    use super::*;

    #[test]
    fn bootstrap_settings_have_the_fields_of_the_reference() {
        let config = BootstrapManifestsConfig {
            server: "https://127.0.0.1:7445".to_owned(),
            core_dns_image: "coredns:v1.13.1".to_owned(),
            flannel_backend_mtu: 1400,
            cni_name: "flannel".to_owned(),
            ..BootstrapManifestsConfig::default()
        };
        let yaml = serde_json::to_value(&config).unwrap();
        assert_eq!(yaml["string"], "https://127.0.0.1:7445");
        assert_eq!(yaml["coreDNSImage"], "coredns:v1.13.1");
        assert_eq!(yaml["dnsServiceIPv6"], "");
        assert_eq!(yaml["flannelBackendMTU"], 1400);
        let message = config.message();
        assert_eq!(
            (message.cni_name, message.flannel_backend_mtu),
            ("flannel".to_owned(), 1400)
        );
    }

    #[test]
    fn secrets_of_manifests_are_for_administrators_and_never_in_debug_output() {
        let manifest = ExtraManifest {
            name: "a".to_owned(),
            url: Secret::new("https://hidden"),
            priority: "99".to_owned(),
            extra_headers: BTreeMap::from([("Authorization".to_owned(), Secret::new("hidden"))]),
            inline_manifest: Secret::new(""),
        };
        let config = ExtraManifestsConfig {
            extra_manifests: vec![manifest],
        };
        assert!(!format!("{config:?}").contains("hidden"));
        let yaml = serde_json::to_value(&config).unwrap();
        let headers = &yaml["extraManifests"][0]["extraHeaders"];
        assert_eq!(headers, &json!({ "Authorization": "hidden" }));
        assert_eq!(config.message().extra_manifests[0].url, "https://hidden");
        let definition = ExtraManifestsConfig::DEFINITION;
        assert_eq!(definition.sensitivity, Sensitivity::Sensitive);
    }
}

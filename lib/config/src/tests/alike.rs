//! Equivalent settings have the same support in both forms.

use corten_yaml::table::Support::{self, Acted, Held, Later};

use super::least;

/// A field of the old form, the equivalent one, and its support.
const ALIKE: &[(&str, &str, &str, Support)] = &[
    (
        "cluster.clusterName",
        "KubeClusterConfig",
        "clusterName",
        Acted,
    ),
    (
        "cluster.controlPlane.endpoint",
        "KubeClusterConfig",
        "endpoint",
        Acted,
    ),
    (
        "cluster.network.dnsDomain",
        "KubeNetworkConfig",
        "dnsDomain",
        Acted,
    ),
    (
        "cluster.network.podSubnets",
        "KubeNetworkConfig",
        "podSubnets",
        Acted,
    ),
    (
        "cluster.network.serviceSubnets",
        "KubeNetworkConfig",
        "serviceSubnets",
        Acted,
    ),
    ("cluster.ca", "KubeAPIServerCAConfig", "issuingCA", Acted),
    (
        "cluster.acceptedCAs",
        "KubeAPIServerCAConfig",
        "acceptedCAs",
        Acted,
    ),
    (
        "cluster.aggregatorCA",
        "KubeAggregatorCAConfig",
        "issuingCA",
        Acted,
    ),
    (
        "cluster.serviceAccount",
        "KubeServiceAccountConfig",
        "issuer",
        Acted,
    ),
    (
        "cluster.secretboxEncryptionSecret",
        "KubeEtcdEncryptionConfig",
        "config",
        Acted,
    ),
    ("machine.nodeLabels", "KubeNodeConfig", "labels", Acted),
    (
        "machine.nodeAnnotations",
        "KubeNodeConfig",
        "annotations",
        Acted,
    ),
    ("machine.nodeTaints", "KubeNodeConfig", "taints", Acted),
    ("machine.kubelet.nodeIP", "KubeNodeConfig", "nodeIP", Acted),
    (
        "machine.kubelet.registerWithFQDN",
        "KubeNodeConfig",
        "registerWithFQDN",
        Acted,
    ),
    (
        "machine.kubelet.skipNodeRegistration",
        "KubeNodeConfig",
        "skipNodeRegistration",
        Acted,
    ),
    ("machine.kubelet.image", "KubeletConfig", "image", Acted),
    (
        "machine.kubelet.extraConfig",
        "KubeletConfig",
        "config",
        Acted,
    ),
    (
        "machine.kubelet.extraArgs",
        "KubeletConfig",
        "extraArgs",
        Acted,
    ),
    (
        "machine.kubelet.clusterDNS",
        "KubeletConfig",
        "clusterDNS",
        Acted,
    ),
    (
        "machine.features.kubePrism.port",
        "KubePrismConfig",
        "port",
        Acted,
    ),
    (
        "cluster.apiServer.image",
        "KubeAPIServerConfig",
        "image",
        Acted,
    ),
    (
        "cluster.apiServer.extraArgs",
        "KubeAPIServerConfig",
        "extraArgs",
        Acted,
    ),
    ("cluster.apiServer.env", "KubeAPIServerConfig", "env", Acted),
    (
        "cluster.apiServer.resources",
        "KubeAPIServerConfig",
        "resources",
        Acted,
    ),
    (
        "cluster.apiServer.certSANs",
        "KubeAPIServerConfig",
        "certExtraSANs",
        Acted,
    ),
    (
        "cluster.controlPlane.localAPIServerPort",
        "KubeAPIServerConfig",
        "apiPort",
        Acted,
    ),
    (
        "cluster.apiServer.admissionControl",
        "KubeAdmissionControlConfig",
        "configuration",
        Acted,
    ),
    (
        "cluster.apiServer.auditPolicy",
        "KubeAuditPolicyConfig",
        "configuration",
        Acted,
    ),
    (
        "cluster.apiServer.authorizationConfig",
        "KubeAuthorizerConfig",
        "type",
        Acted,
    ),
    (
        "cluster.controllerManager.image",
        "KubeControllerManagerConfig",
        "image",
        Acted,
    ),
    (
        "machine.controlPlane",
        "KubeControllerManagerConfig",
        "enabled",
        Acted,
    ),
    (
        "cluster.scheduler.image",
        "KubeSchedulerConfig",
        "image",
        Acted,
    ),
    (
        "cluster.scheduler.config",
        "KubeSchedulerConfig",
        "config",
        Acted,
    ),
    (
        "cluster.proxy.disabled",
        "KubeProxyConfig",
        "enabled",
        Acted,
    ),
    ("cluster.proxy.mode", "KubeProxyConfig", "mode", Acted),
    (
        "cluster.coreDNS.disabled",
        "KubeCoreDNSConfig",
        "enabled",
        Acted,
    ),
    (
        "cluster.discovery.registries.service.endpoint",
        "DiscoveryServiceConfig",
        "endpoint",
        Held,
    ),
    ("cluster.id", "DiscoveryIdentityConfig", "clusterID", Held),
    (
        "cluster.secret",
        "DiscoveryIdentityConfig",
        "clusterSecret",
        Acted,
    ),
    (
        "machine.install.image",
        "UnattendedInstallConfig",
        "installer",
        Acted,
    ),
    (
        "machine.install.wipe",
        "UnattendedInstallConfig",
        "provisioning",
        Acted,
    ),
    (
        "machine.registries.mirrors",
        "RegistryMirrorConfig",
        "endpoints",
        Acted,
    ),
    (
        "machine.registries.config",
        "RegistryAuthConfig",
        "identityToken",
        Acted,
    ),
    (
        "machine.registries.config",
        "RegistryTLSConfig",
        "clientIdentity",
        Acted,
    ),
    (
        "machine.baseRuntimeSpecOverrides",
        "CRIBaseRuntimeSpecConfig",
        "overrides",
        Acted,
    ),
    (
        "machine.features.imageCache.localEnabled",
        "ImageCacheConfig",
        "local",
        Acted,
    ),
    ("machine.files", "CRICustomizationConfig", "content", Acted),
    (
        "machine.network.kubespan",
        "KubeSpanConfig",
        "enabled",
        Later,
    ),
    ("machine.pods", "KubeStaticPodConfig", "pod", Acted),
    (
        "machine.kubelet.credentialProviderConfig",
        "KubeCredentialProviderConfig",
        "configuration",
        Acted,
    ),
    (
        "cluster.network.cni.flannel.extraArgs",
        "KubeFlannelCNIConfig",
        "extraArgs",
        Acted,
    ),
    (
        "machine.features.kubernetesTalosAPIAccess.allowedRoles",
        "KubeTalosAPIAccessConfig",
        "allowedRoles",
        Acted,
    ),
    (
        "cluster.inlineManifests",
        "KubeInlineManifestConfig",
        "manifest",
        Acted,
    ),
    (
        "cluster.extraManifests",
        "KubeExternalManifestConfig",
        "url",
        Acted,
    ),
];

#[test]
fn both_forms_are_supported_alike() {
    for (old, kind, field, support) in ALIKE {
        let info = crate::kinds::kind(kind).unwrap();
        let own = corten_yaml::table::find(info.table, field).unwrap().support;
        assert_eq!(least(info.support, own), *support, "{kind}: {field}");
        assert_eq!(of_old_form(old), *support, "{old}");
    }
}

fn of_old_form(path: &str) -> Support {
    use corten_yaml::read::Section as _;
    let mut table = crate::v1alpha1::V1Alpha1::TABLE;
    let mut support = Acted;
    for step in path.split('.') {
        let field = corten_yaml::table::find(table, step).unwrap();
        support = least(support, field.support);
        if let corten_yaml::table::Shape::Fields(inner) = field.shape {
            table = inner;
        }
    }
    support
}

//! Kinds known by name only: refused as not supported yet. Their fields are
//! listed for patches, which may be made where such documents are understood.

use super::KindInfo;
use crate::table::{Field, Support};

macro_rules! known {
    ($( $name:ident $named:literal [ $( $field:literal $(. $flag:ident)? )* ] )*) => {
        /// Kinds that are known by name only.
        pub const KNOWN: &[KindInfo] = &[ $( KindInfo {
            name: stringify!($name),
            doc: "",
            named: $named,
            support: Support::Later,
            table: &[ $( Field::known($field) $(.$flag())? , )* ],
        }, )* ];
    };
}

known! {
    ExternalVolumeConfig true ["name" "filesystemType" "mount"]
    DiscoveryIdentityConfig false ["clusterID" "clusterSecret".secret]
    DiscoveryServiceConfig true ["name" "endpoint"]
    ContainerConfig true ["name" "image" "entrypoint" "args" "workingDir" "runAs" "environment".secret "mounts" "security" "network" "resources" "dependsOn"]
    CRIBaseRuntimeSpecConfig false ["overrides".replace]
    CRICustomizationConfig true ["name" "content".secret]
    ImageCacheConfig false ["local"]
    ImageVerificationConfig false ["rules"]
    RegistryAuthConfig true ["name" "username" "password".secret "auth".secret "identityToken".secret]
    RegistryMirrorConfig true ["name" "endpoints" "skipFallback"]
    RegistryTLSConfig true ["name" "clientIdentity".secret "ca" "insecureSkipVerify"]
    PCIDriverRebindConfig true ["name" "targetDriver"]
    KubeAdmissionControlConfig true ["name" "configuration"]
    KubeAggregatorCAConfig false ["issuingCA".secret "acceptedCAs"]
    KubeAPIServerConfig false ["image" "extraArgs" "env".secret "resources" "apiPort" "certExtraSANs" "startupProbes"]
    KubeAPIServerCAConfig false ["issuingCA".secret "acceptedCAs"]
    KubeAuditPolicyConfig false ["configuration".replace]
    KubeAuthenticationConfig false ["configuration".replace]
    KubeAuthorizerConfig true ["name" "type" "webhook"]
    KubeClusterConfig false ["clusterName" "endpoint"]
    KubeControllerManagerConfig false ["enabled" "image" "extraArgs" "env".secret "resources"]
    KubeCoreDNSConfig false ["enabled" "image"]
    KubeCredentialProviderConfig false ["configuration".replace]
    KubeEtcdEncryptionConfig false ["config".secret]
    KubeExternalManifestConfig true ["name" "headers".secret "url"]
    KubeFlannelCNIConfig false ["backendType" "backendPort" "backendMTU" "backendExtraConfig" "resources" "extraArgs" "kubeNetworkPoliciesEnabled"]
    KubeInlineManifestConfig true ["name" "manifest".secret]
    KubeletConfig false ["image" "config" "extraArgs" "clusterDNS" "defaultRuntimeSeccompProfileEnabled"]
    KubePrismConfig false ["port" "tlsServerName"]
    KubeNetworkConfig false ["dnsDomain" "podSubnets".replace "serviceSubnets".replace "nodeCIDRMaskSizeIPv4" "nodeCIDRMaskSizeIPv6"]
    KubeNodeConfig false ["skipNodeRegistration" "registerWithFQDN" "nodeIP" "labels" "annotations" "taints"]
    KubeProxyConfig false ["enabled" "image" "mode" "config" "extraArgs" "resources"]
    KubeSchedulerConfig false ["enabled" "image" "config" "extraArgs" "env".secret "resources"]
    KubeServiceAccountConfig false ["issuer".secret "accepted"]
    KubeStaticPodConfig true ["name" "pod".replace]
    KubeTalosAPIAccessConfig false ["allowedRoles" "allowedKubernetesNamespaces"]
    BGPInstanceConfig true ["name" "vrf" "localASN" "routerID" "routeSource" "advertise".replace "multipath" "maxPaths" "installRoutes" "importRoutes".replace "neighbors".replace]
    EthernetConfig true ["name" "features" "rings" "channels" "wakeOnLan"]
    HCloudVIPConfig true ["name" "link" "apiToken".secret]
    KubeSpanConfig false ["enabled" "advertiseKubernetesNetworks" "allowDownPeerBypass" "harvestExtraEndpoints" "mtu" "filters"]
    KubeSpanEndpointsConfig false ["extraAnnouncedEndpoints"]
    SideroLinkConfig false ["apiUrl" "uniqueToken".secret]
    UnattendedInstallConfig false ["reboot" "installer" "provisioning"]
    LVMLogicalVolumeConfig true ["name" "type" "mirrors" "stripes" "provisioning"]
    LVMVolumeGroupConfig true ["name" "provisioning"]
    RAIDArrayConfig true ["name" "level" "metadata" "provisioning"]
}

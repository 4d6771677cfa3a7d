//! Documents with a kind: the list of kinds, and their support.
//!
//! The table [`KINDS`] comes from the list at the end of this file. To support a kind, change its word there (`Later`
//! or `Held` to `Acted`); to support a field, change its word in its `section!` block.

mod bond_names;
mod cri;
mod discovery;
mod encryption;
mod ethernet;
mod forwarding;
mod hardware;
mod install;
mod known;
mod kube_addons;
mod kube_cluster;
mod kube_control_plane;
mod kube_node;
mod links;
mod network;
mod registries;
mod runtime;
mod upgrade;
mod volumes;
mod wireguard;

use corten_yaml::read::{self, Reader, Section};
use corten_yaml::table::{Field, Support};
use corten_yaml::tree::Node;

pub use bond_names::BondNames;
pub use cri::*;
pub use discovery::*;
pub use encryption::*;
pub use ethernet::*;
pub use forwarding::*;
pub(crate) use hardware::check as check_hardware;
pub use hardware::*;
pub use install::*;
pub use known::KNOWN;
pub use kube_addons::*;
pub use kube_cluster::*;
pub use kube_control_plane::*;
pub use kube_node::*;
pub use links::*;
pub use network::*;
pub use registries::*;
pub use runtime::*;
pub use upgrade::*;
pub use volumes::*;
pub use wireguard::{WireguardConfig, WireguardPeer};
pub(crate) use wireguard::{check_keepalive, check_peers};

/// Fields of every document with a kind.
pub(crate) const HEADER: &[&str] = &["apiVersion", "kind"];

/// A kind of documents.
#[derive(Debug, Clone, Copy)]
pub struct KindInfo {
    /// The value of `kind:`.
    pub name: &'static str,
    /// Description; empty for a kind known by name only.
    pub doc: &'static str,
    /// Whether there can be several documents, distinguished by `name`.
    pub named: bool,
    /// Support of the kind by the node.
    pub support: Support,
    /// Its fields, without those of every document.
    pub table: &'static [Field],
}

/// A struct with the content of a kind's documents.
pub trait Kind: Sized {
    /// The value of `kind:`.
    const NAME: &'static str;
    /// The content of a document of this kind, else `None`.
    fn of(any: &AnyKind) -> Option<&Self>;
}

macro_rules! kinds {
    ($( $support:ident $count:ident $name:ident; )*) => {
        /// A parsed and checked document with a kind.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "each is the struct of its name")]
        pub enum AnyKind { $( $name(Box<$name>), )* }

        /// All kinds that are parsed. [`KNOWN`] has those known by name only.
        pub const KINDS: &[KindInfo] = &[ $( KindInfo {
            name: stringify!($name),
            doc: <$name as Section>::DOC,
            named: kinds!(@$count),
            support: Support::$support,
            table: <$name as Section>::TABLE,
        }, )* ];

        $( impl Kind for $name {
            const NAME: &'static str = stringify!($name);
            fn of(any: &AnyKind) -> Option<&$name> {
                match any {
                    AnyKind::$name(content) => Some(content),
                    _ => None,
                }
            }
        } )*

        /// Parses a document of a kind in [`KINDS`].
        pub(crate) fn read_kind(kind: &str, node: &Node, reader: &mut Reader<'_>) -> Option<AnyKind> {
            match kind {
                $( stringify!($name) => read::read_section(node, HEADER, reader)
                    .map(|content| AnyKind::$name(Box::new(content))), )*
                _ => None,
            }
        }
    };
    (@named) => { true };
    (@single) => { false };
}

kinds! {
    Acted single HostnameConfig;
    Acted single ResolverConfig;
    Acted single SysctlConfig;
    Acted single UdevRulesConfig;
    Acted named  KmsgLogConfig;
    Acted named  LinkConfig;
    Acted named  LinkAliasConfig;
    Acted named  DummyLinkConfig;
    Acted named  BondConfig;
    Acted named  BridgeConfig;
    Acted named  VLANConfig;
    Acted named  VRFConfig;
    Acted named  VethConfig;
    Acted named  WireguardConfig;
    Acted named  EthernetConfig;
    Acted named  DHCPv4Config;
    Acted named  DHCPv6Config;
    Acted named  Layer2VIPConfig;
    Acted named  BlackholeRouteConfig;
    Acted named  RoutingRuleConfig;
    Acted named  StaticHostConfig;
    Acted single TimeSyncConfig;
    Acted single NetworkDefaultActionConfig;
    Acted named  NetworkRuleConfig;
    Acted named  TCPProbeConfig;
    Acted named  HTTPProbeConfig;
    Acted named  VolumeConfig;
    Acted named  UserVolumeConfig;
    Acted named  RawVolumeConfig;
    Acted named  SwapVolumeConfig;
    Acted named  ExistingVolumeConfig;
    Later single ZswapConfig;
    Acted single FilesystemTrimConfig;
    Later single FilesystemScrubConfig;
    Acted single EventSinkConfig;
    Acted single WatchdogTimerConfig;
    Acted named  TrustedRootsConfig;
    Acted named  RegistryMirrorConfig;
    Acted named  RegistryAuthConfig;
    Acted named  RegistryTLSConfig;
    Acted named  CRICustomizationConfig;
    Acted single CRIBaseRuntimeSpecConfig;
    Acted single ImageCacheConfig;
    Acted named  PCIDriverRebindConfig;
    Acted single EnvironmentConfig;
    Acted single ForwardingConfig;
    Acted single UpgradeConfig;
    Acted named  ExtensionServiceConfig;
    Later named  EtcFileConfig;
    Acted named  KernelModuleConfig;
    Acted single SysfsConfig;
    Later single OOMConfig;
    Held  single SecurityProfileConfig;
    Acted single KubeClusterConfig;
    Acted single KubeNetworkConfig;
    Acted single KubeAPIServerCAConfig;
    Acted single KubeAggregatorCAConfig;
    Acted single KubeServiceAccountConfig;
    Acted single KubeEtcdEncryptionConfig;
    Acted single KubeNodeConfig;
    Acted single KubeletConfig;
    Acted single KubeCredentialProviderConfig;
    Acted single KubePrismConfig;
    Acted named  KubeStaticPodConfig;
    Acted single KubeAPIServerConfig;
    Acted single KubeControllerManagerConfig;
    Acted single KubeSchedulerConfig;
    Acted named  KubeAdmissionControlConfig;
    Acted single KubeAuditPolicyConfig;
    Acted single KubeAuthenticationConfig;
    Acted named  KubeAuthorizerConfig;
    Acted single KubeTalosAPIAccessConfig;
    Acted single KubeProxyConfig;
    Acted single KubeFlannelCNIConfig;
    Acted single KubeCoreDNSConfig;
    Acted named  KubeExternalManifestConfig;
    Acted named  KubeInlineManifestConfig;
    Held  named  DiscoveryServiceConfig;
    Acted single DiscoveryIdentityConfig;
    Later single KubeSpanConfig;
    Later single KubeSpanEndpointsConfig;
    Acted single UnattendedInstallConfig;
}

/// A parsed or known kind by name.
#[must_use]
pub fn kind(name: &str) -> Option<&'static KindInfo> {
    KINDS.iter().chain(KNOWN).find(|kind| kind.name == name)
}

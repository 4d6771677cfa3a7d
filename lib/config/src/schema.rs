//! Which fields there are, what they hold, and whether we act on them.

/// What a field may hold.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A scalar.
    Text,
    /// `true` or `false`.
    Bool,
    /// A number without a fraction.
    Int,
    /// A list of scalars.
    Texts,
    /// A map of scalars.
    TextMap,
    /// A map with these fields.
    Fields(&'static [Field]),
    /// A list of maps with these fields.
    List(&'static [Field]),
    /// Whatever its reader understands.
    Anything,
}

/// Whether the node does what a field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Acted,
    /// It keeps it for a part that comes later (crate documentation).
    Held,
    /// It refuses it.
    NotYet,
}

/// A field of a map.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in the document.
    pub name: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// Whether we act on it.
    pub support: Support,
    /// Whether it, or anything in it, must never be shown.
    pub secret: bool,
}

use Shape::{Anything, Bool, Fields, Int, List, Text, TextMap, Texts};

const fn field(name: &'static str, shape: Shape, support: Support) -> Field {
    Field {
        name,
        shape,
        support,
        secret: false,
    }
}
const fn acted(name: &'static str, shape: Shape) -> Field {
    field(name, shape, Support::Acted)
}
const fn held(name: &'static str, shape: Shape) -> Field {
    field(name, shape, Support::Held)
}
const fn later(name: &'static str) -> Field {
    field(name, Anything, Support::NotYet)
}
const fn secret(name: &'static str, support: Support) -> Field {
    Field {
        name,
        shape: Text,
        support,
        secret: true,
    }
}

/// A certificate and its key, base64 of PEM.
const PAIR: &[Field] = &[acted("crt", Text), secret("key", Support::Acted)];
const CERTIFICATE: &[Field] = &[acted("crt", Text)];

/// The root of the document without a `kind`.
pub const ROOT: &[Field] = &[
    acted("version", Text),
    held("debug", Bool),
    acted("persist", Bool),
    acted("machine", Fields(MACHINE)),
    held("cluster", Fields(CLUSTER)),
];

const MACHINE: &[Field] = &[
    acted("type", Text),
    secret("token", Support::Held),
    acted("ca", Fields(PAIR)),
    acted("acceptedCAs", List(CERTIFICATE)),
    acted("certSANs", Texts),
    acted("network", Fields(NETWORK)),
    acted("sysctls", TextMap),
    held("kubelet", Fields(KUBELET)),
    held("install", Fields(INSTALL)),
    held("nodeLabels", TextMap),
    held("features", Fields(FEATURES)),
    later("controlPlane"),
    later("pods"),
    later("disks"),
    later("files"),
    later("env"),
    later("time"),
    later("sysfs"),
    later("registries"),
    later("systemDiskEncryption"),
    later("udev"),
    later("logging"),
    later("kernel"),
    later("seccompProfiles"),
    later("baseRuntimeSpecOverrides"),
    later("nodeAnnotations"),
    later("nodeTaints"),
];

const NETWORK: &[Field] = &[
    acted("hostname", Text),
    acted("nameservers", Texts),
    later("searchDomains"),
    later("interfaces"),
    later("extraHostEntries"),
    later("kubespan"),
    later("disableSearchDomain"),
];

const KUBELET: &[Field] = &[
    held("image", Text),
    held("clusterDNS", Texts),
    held("defaultRuntimeSeccompProfileEnabled", Bool),
    held("disableManifestsDirectory", Bool),
    later("extraArgs"),
    later("extraMounts"),
    later("extraConfig"),
    later("credentialProviderConfig"),
    later("registerWithFQDN"),
    later("nodeIP"),
    later("skipNodeRegistration"),
];

const INSTALL: &[Field] = &[
    held("disk", Text),
    held("image", Text),
    held("wipe", Bool),
    held("bootloader", Bool),
    held("grubUseUKICmdline", Bool),
    later("diskSelector"),
    later("extraKernelArgs"),
    later("extensions"),
    later("legacyBIOSSupport"),
];

const FEATURES: &[Field] = &[
    acted("rbac", Bool),
    acted("apidCheckExtKeyUsage", Bool),
    held("stableHostname", Bool),
    held("diskQuotaSupport", Bool),
    held(
        "kubePrism",
        Fields(&[held("enabled", Bool), held("port", Int)]),
    ),
    held("hostDNS", Fields(HOST_DNS)),
    later("kubernetesTalosAPIAccess"),
    later("imageCache"),
    later("nodeAddressSortAlgorithm"),
];

const HOST_DNS: &[Field] = &[
    held("enabled", Bool),
    held("forwardKubeDNSToHost", Bool),
    later("resolveMemberNames"),
];

const CLUSTER: &[Field] = &[
    held("id", Text),
    secret("secret", Support::Held),
    held(
        "controlPlane",
        Fields(&[held("endpoint", Text), held("localAPIServerPort", Int)]),
    ),
    held("clusterName", Text),
    held("network", Fields(CLUSTER_NETWORK)),
    secret("token", Support::Held),
    secret("aescbcEncryptionSecret", Support::Held),
    secret("secretboxEncryptionSecret", Support::Held),
    held("ca", Fields(PAIR)),
    held("acceptedCAs", List(CERTIFICATE)),
    held("aggregatorCA", Fields(PAIR)),
    held("serviceAccount", Fields(&[secret("key", Support::Held)])),
    held("apiServer", Fields(API_SERVER)),
    held("controllerManager", Fields(COMPONENT)),
    held("proxy", Fields(PROXY)),
    held("scheduler", Fields(COMPONENT)),
    held("discovery", Fields(DISCOVERY)),
    held("etcd", Fields(ETCD)),
    held("allowSchedulingOnControlPlanes", Bool),
    later("coreDNS"),
    later("externalCloudProvider"),
    later("extraManifests"),
    later("extraManifestHeaders"),
    later("inlineManifests"),
    later("adminKubeconfig"),
    later("allowSchedulingOnMasters"),
];

const CLUSTER_NETWORK: &[Field] = &[
    held("dnsDomain", Text),
    held("podSubnets", Texts),
    held("serviceSubnets", Texts),
    later("cni"),
];

const API_SERVER: &[Field] = &[
    held("image", Text),
    held("certSANs", Texts),
    held("disablePodSecurityPolicy", Bool),
    held("admissionControl", Anything),
    held("auditPolicy", Anything),
    later("extraArgs"),
    later("extraVolumes"),
    later("env"),
    later("resources"),
    later("authorizationConfig"),
];

const COMPONENT: &[Field] = &[
    held("image", Text),
    later("extraArgs"),
    later("extraVolumes"),
    later("env"),
    later("resources"),
    later("config"),
];

const PROXY: &[Field] = &[
    held("image", Text),
    held("disabled", Bool),
    held("mode", Text),
    later("extraArgs"),
];

const DISCOVERY: &[Field] = &[
    held("enabled", Bool),
    held(
        "registries",
        Fields(&[
            held("kubernetes", Fields(&[held("disabled", Bool)])),
            held(
                "service",
                Fields(&[held("disabled", Bool), held("endpoint", Text)]),
            ),
        ]),
    ),
];

const ETCD: &[Field] = &[
    held("image", Text),
    held("ca", Fields(PAIR)),
    later("extraArgs"),
    later("subnet"),
    later("advertisedSubnets"),
    later("listenSubnets"),
];

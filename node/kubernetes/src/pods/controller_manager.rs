//! Static pod of kube-controller-manager.

use super::{Part, flag, probes};
use crate::extra::ADDED_SUBNETS;
use crate::files::secret;
use crate::{ControlPlane, Settings};

const NAME: &str = "kube-controller-manager";
const PORT: u16 = 10257;

pub(super) fn container(settings: &Settings, control_plane: &ControlPlane) -> Part {
    let kubeconfig = secret(NAME, "kubeconfig");
    let mut flags = vec![
        flag("allocate-node-cidrs", "true"),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag("cluster-cidr", Settings::joined(&settings.pods)),
        flag("cluster-signing-cert-file", secret(NAME, "issuing-ca.crt")),
        flag("cluster-signing-key-file", secret(NAME, "issuing-ca.key")),
        flag("configure-cloud-routes", "false"),
        flag("controllers", "*"),
        flag("kubeconfig", &kubeconfig),
        flag("leader-elect", "true"),
        flag("profiling", "false"),
        flag("root-ca-file", secret(NAME, "ca.crt")),
        flag(
            "service-account-private-key-file",
            secret(NAME, "service-account.key"),
        ),
        flag(
            "service-cluster-ip-range",
            Settings::joined(&settings.services),
        ),
        flag("terminated-pod-gc-threshold", "100"),
        flag("tls-min-version", "VersionTLS13"),
        flag("use-service-account-credentials", "true"),
    ];
    for network in &settings.pods {
        let (v4, v6) = control_plane.node_masks;
        let (name, bits) = match network.address.is_ipv4() {
            true => ("node-cidr-mask-size-ipv4", v4),
            false => ("node-cidr-mask-size-ipv6", v6),
        };
        flags.extend(bits.map(|bits| flag(name, bits.to_string())));
    }
    Part {
        name: NAME,
        image: control_plane.images.controller_manager.clone(),
        flags,
        added: &[ADDED_SUBNETS],
        requests: (50, 256),
        capabilities: &[],
        probes: probes(PORT, "/healthz", None),
        extra: control_plane.controller_manager.clone(),
        directories: Vec::new(),
    }
}

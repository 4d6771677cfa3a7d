//! Static pod of kube-scheduler.

use super::{Part, flag, probes};
use crate::ControlPlane;
use crate::files::{config, secret};

const NAME: &str = "kube-scheduler";
const PORT: u16 = 10259;

pub(super) fn container(control_plane: &ControlPlane) -> Part {
    let kubeconfig = secret(NAME, "kubeconfig");
    let flags = vec![
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authentication-tolerate-lookup-failure", "false"),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag("config", config(NAME, "scheduler-config.yaml")),
        flag("leader-elect", "true"),
        flag("profiling", "false"),
        flag("tls-min-version", "VersionTLS13"),
    ];
    Part {
        name: NAME,
        image: control_plane.images.scheduler.clone(),
        flags,
        added: &[],
        requests: (10, 64),
        capabilities: &[],
        probes: probes(PORT, "/livez", Some("/readyz")),
        extra: control_plane.scheduler.clone(),
        directories: Vec::new(),
    }
}

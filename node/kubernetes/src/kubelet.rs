//! The kubelet's configuration (`kubelet.config.k8s.io/v1beta1`), arguments and files.

use std::net::IpAddr;
use std::time::Duration;

use corten_config::Document;
use corten_config::kinds::{KubeCredentialProviderConfig, KubeNodeConfig, KubeletConfig};
use corten_values::{Cidr, Secret};
use corten_yaml::scalars::duration;
use serde_json::{Value, json};

use crate::extra::{merge, with, with_kind};
use crate::subnets::matching;
use crate::{Facts, Identity, Node, Settings, kubeconfig};

/// Directory of the kubelet's files, on the node and in its container.
pub const FILES: &str = "/etc/kubernetes";
/// Directory of the kubelet's own certificates.
pub const CERTIFICATES: &str = "/var/lib/kubelet/pki";
/// Directory of credential provider programs, which come from system extensions.
pub const CREDENTIAL_PROGRAMS: &str = "/usr/local/lib/kubelet/credentialproviders";
/// Name of the credential provider configuration in [`FILES`].
pub const CREDENTIALS: &str = "kubelet-credentialproviderconfig.yaml";
/// Port of the health endpoint.
pub const HEALTH_PORT: u16 = 10248;

/// Feature gate with which the kubelet measures the storage of pods by quotas of the file system.
const QUOTAS: &str = "LocalStorageCapacityIsolationFSQuotaMonitoring";
/// Directory of the config's static pods where the kubelet reads no other pods from files.
const POD_FILES: &str = "/run/kubernetes/pods";

/// Directory in which the kubelet looks for static pods. It contains the pods of the config, one file each. The kubelet
/// skips an invalid file, but refuses a whole list from [`config`]'s URL, which has the control plane's pods.
#[must_use]
pub fn pod_files(reads_manifests: bool) -> String {
    match reads_manifests {
        true => format!("{FILES}/manifests"),
        false => POD_FILES.to_owned(),
    }
}

/// Whether the kubelet runs static pods from files of others in [`FILES`]; never with a `KubeletConfig`.
#[must_use]
pub fn reads_manifests(document: &Document) -> bool {
    let kubelet = &document.machine.kubelet;
    let is_old = document.all::<KubeletConfig>().next().is_none();
    is_old && !kubelet.disable_manifests_directory.unwrap_or_default()
}

/// Labels of Kubernetes that a kubelet may set.
const LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Whether a kubelet may set this label on its own node (Kubernetes, NodeRestriction; `k8s.io/kubelet/pkg/apis`). A
/// kubelet does not start with another one in its arguments.
#[must_use]
pub fn may_label(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_below = |domain: &str| {
        let parts = prefix.strip_suffix(domain);
        parts.is_some_and(|parts| parts.is_empty() || parts.ends_with('.'))
    };
    let is_of_kubernetes = is_below("kubernetes.io") || is_below("k8s.io");
    let is_of_kubelets = is_below("kubelet.kubernetes.io") || is_below("node.kubernetes.io");
    !is_of_kubernetes || is_of_kubelets || LABELS.contains(&key)
}

/// Program and arguments. `addresses` are the node's addresses in Kubernetes, one per family.
#[must_use]
pub fn args(facts: &Facts, node: &Node, addresses: &[IpAddr]) -> Vec<String> {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut labels: Vec<String> = node
        .labels
        .iter()
        .filter(|(name, _)| may_label(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    labels.sort();
    let mut args = vec![
        "/usr/local/bin/kubelet".to_owned(),
        format!("--bootstrap-kubeconfig={FILES}/bootstrap-kubeconfig"),
        format!("--cert-dir={CERTIFICATES}"),
        format!("--config={FILES}/kubelet.yaml"),
        format!("--hostname-override={}", facts.nodename),
        format!("--kubeconfig={FILES}/kubeconfig-kubelet"),
    ];
    if node.is_alone {
        args.retain(|arg| !arg.contains("kubeconfig="));
    }
    if node.has_cloud_provider {
        args.push("--cloud-provider=external".to_owned());
    }
    if node.credentials.is_some() {
        args.push(format!(
            "--image-credential-provider-bin-dir={CREDENTIAL_PROGRAMS}"
        ));
        args.push(format!(
            "--image-credential-provider-config={FILES}/{CREDENTIALS}"
        ));
    }
    if !addresses.is_empty() {
        args.push(format!("--node-ip={}", addresses.join(",")));
    }
    if !labels.is_empty() {
        args.push(format!("--node-labels={}", labels.join(",")));
    }
    match node.args.0.is_empty() {
        true => args,
        false => with(args, &node.args),
    }
}

/// The configuration. `static_pods` is the URL of machined's static pods, `resolver` the file with the name servers for
/// pods.
#[must_use]
pub fn config(settings: &Settings, node: &Node, static_pods: &str, resolver: &str) -> Value {
    let memory = if node.is_control_plane {
        "512Mi"
    } else {
        "384Mi"
    };
    let taints: Vec<Value> = node
        .taints
        .iter()
        .map(|taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect }))
        .collect();
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": format!("{FILES}/pki/ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "clusterDNS": node.dns,
        "clusterDomain": settings.domain,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failSwapOn": false,
        "kubeletCgroups": "/podruntime/kubelet",
        "logging": { "format": "json" },
        "oomScoreAdj": -450,
        "port": 10250,
        "protectKernelDefaults": true,
        "registerWithTaints": &taints,
        "resolvConf": resolver,
        "rotateCertificates": true,
        "seccompDefault": node.seccomp,
        "serializeImagePulls": false,
        "shutdownGracePeriod": "30s",
        "shutdownGracePeriodCriticalPods": "10s",
        "staticPodPath": pod_files(node.reads_manifests),
        "staticPodURL": static_pods,
        "streamingConnectionIdleTimeout": "5m",
        "systemCgroups": "/system",
        "systemReserved": {
            "cpu": "50m",
            "ephemeral-storage": "256Mi",
            "memory": memory,
            "pid": "100",
        },
        "tlsMinVersion": "VersionTLS13",
    });
    if node.has_quotas {
        let gates = json!({ "featureGates": { QUOTAS: true } });
        merge(&mut config, &gates);
    }
    if let Some(own) = &node.config {
        // Reserved resources are one whole: a resource that the config leaves out is not reserved.
        if let (Some(fields), Some(_)) = (config.as_object_mut(), own.get("systemReserved")) {
            fields.remove("systemReserved");
        }
        merge(&mut config, own);
        let own = own.get("registerWithTaints").and_then(Value::as_array);
        // The node's own taints keep pods away until machined removes them, so they stay next to the config's.
        if let Some(own) = own {
            let is_new = |taint: &&Value| !own.iter().any(|one| one["key"] == taint["key"]);
            let all: Vec<&Value> = taints.iter().filter(is_new).chain(own).collect();
            merge(&mut config, &json!({ "registerWithTaints": all }));
        }
    }
    if node.is_alone {
        // Without a cluster, there is no server to authenticate or authorize callers.
        let alone = json!({
            "authentication": { "webhook": { "enabled": false } },
            "authorization": { "mode": "AlwaysAllow" },
            "registerWithTaints": [],
        });
        merge(&mut config, &alone);
    }
    config
}

/// The longest time that a kubelet with this configuration takes to stop its pods at the node's end. A period that the
/// kubelet cannot read counts nothing: the kubelet does not start with it.
#[must_use]
pub fn shutdown_grace(config: &Value) -> Duration {
    let whole = config.get("shutdownGracePeriod").and_then(Value::as_str);
    let whole = whole.and_then(duration).unwrap_or_default();
    let parts = config.get("shutdownGracePeriodByPodPriority");
    let parts = parts.and_then(Value::as_array).into_iter().flatten();
    let parts = parts.filter_map(|part| part.get("shutdownGracePeriodSeconds")?.as_u64());
    whole.max(Duration::from_secs(parts.fold(0, u64::saturating_add)))
}

/// Credential providers for image registries (`kubelet.config.k8s.io/v1`, CredentialProviderConfig).
pub(crate) fn credentials(document: &Document) -> Option<Secret> {
    let own = match document.all::<KubeCredentialProviderConfig>().next() {
        Some(own) => own.configuration.as_ref(),
        None => document.machine.kubelet.credential_provider_config.as_ref(),
    };
    let fields = own?.json();
    let version = "kubelet.config.k8s.io/v1";
    Some(Secret::new(
        with_kind(&fields, version, "CredentialProviderConfig").to_string(),
    ))
}

/// Kubeconfig with which a kubelet requests its certificate.
#[must_use]
pub fn bootstrap_kubeconfig(settings: &Settings, server: &str) -> Value {
    own_kubeconfig(settings, server, Identity::Token(&settings.token))
}

/// Kubeconfig of the kubelet.
#[must_use]
pub fn own_kubeconfig(settings: &Settings, server: &str, identity: Identity<'_>) -> Value {
    let mut whole = kubeconfig(settings, server, "kubelet", identity);
    let cluster = whole.pointer_mut("/clusters/0/cluster");
    let cluster = cluster.and_then(Value::as_object_mut);
    if let (Some(cluster), Some(name)) = (cluster, &settings.prism_name) {
        cluster.insert("tls-server-name".to_owned(), name.clone().into());
    }
    whole
}

/// Whether the node's name in Kubernetes includes its domain.
#[must_use]
pub fn registers_full_name(document: &Document) -> bool {
    let own = document.all::<KubeNodeConfig>().next();
    let kubelet = &document.machine.kubelet;
    let wanted = own.map_or(kubelet.register_with_fqdn, |own| own.register_with_fqdn);
    wanted.unwrap_or_default()
}

/// The node's name in Kubernetes, if an argument of the config gives it.
#[must_use]
pub fn own_name(document: &Document) -> Option<&str> {
    let by_kind = document.all::<KubeletConfig>().next();
    let args = by_kind.map_or(&document.machine.kubelet.extra_args, |own| &own.extra_args);
    let names = args.0.get("hostname-override")?;
    names.last().map(|name| name.trim())
}

/// The node's addresses in Kubernetes: of those that the config's subnets select, the first of each family. Without such
/// subnets, the first of each family that services have, in the order of the networks of services.
#[must_use]
pub fn addresses(document: &Document, settings: &Settings, facts: &Facts) -> Vec<IpAddr> {
    let own = document.all::<KubeNodeConfig>().next();
    let own = own.map_or(&document.machine.kubelet.node_ip, |own| &own.node_ip);
    let meant = match own.valid_subnets.is_empty() {
        true => matching(&facts.addresses, &families(&settings.services)),
        false => matching(&facts.addresses, &own.valid_subnets),
    };
    let mut found: Vec<IpAddr> = Vec::new();
    for address in meant {
        if !found.iter().any(|one| one.is_ipv4() == address.is_ipv4()) {
            found.push(address);
        }
    }
    found
}

/// The networks of all addresses in the families of these networks.
fn families(networks: &[Cidr]) -> Vec<&'static str> {
    let all = networks.iter().map(|network| match network.address {
        IpAddr::V4(_) => "0.0.0.0/0",
        IpAddr::V6(_) => "::/0",
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_may_set_labels_of_users_and_some_of_kubernetes() {
        for (key, may) in [
            ("rack", true),
            ("example.org/rack", true),
            ("notkubernetes.io/x", true),
            ("kubernetes.io", true),
            ("topology.kubernetes.io/zone", true),
            ("node.kubernetes.io/pool", true),
            ("x.node.kubernetes.io/pool", true),
            ("a.kubelet.kubernetes.io/b", true),
            ("topology.kubernetes.io/rack", false),
            ("kubernetes.io/rack", false),
            ("a.k8s.io/b", false),
            ("k8s.io/b", false),
            ("node-role.kubernetes.io/worker", false),
            ("node-restriction.kubernetes.io/secure", false),
            ("x.node-restriction.kubernetes.io/secure", false),
        ] {
            assert_eq!(may_label(key), may, "{key}");
        }
    }
}

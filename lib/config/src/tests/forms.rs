//! A cluster in documents with a kind, as the reference client generates since 1.14.

use super::{
    KEY_TEXT, bare, control_plane, doc, document, future_problems, good, problems, worker,
};
use crate::kinds::{KubeAPIServerCAConfig, KubeNodeConfig};
use crate::redact::canonical;
use crate::{Document, Mode};

fn cluster(name: &str) -> String {
    let fields = format!("clusterName: {name}\nendpoint: https://192.0.2.1:6443");
    doc("KubeClusterConfig", &fields)
}

#[test]
fn default_config_of_the_reference_client_is_accepted() {
    for text in [control_plane(), worker()] {
        assert_eq!(problems(&text), [""; 0]);
        let document = document(&text);
        document.validate(Mode::Metal).unwrap();
        assert_eq!(document.cluster_name(), "demo");
        assert_eq!(document.endpoint(), "https://10.0.2.15:6443");
        let id = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        assert_eq!(document.cluster_id(), Some(id));
        let networks = [document.pod_subnets(), document.service_subnets()].concat();
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.244.0.0/16", "10.96.0.0/12"]);
        assert!(document.host_dns().enabled && document.host_dns().forward);
        let ca = document.all::<KubeAPIServerCAConfig>().next().unwrap();
        assert_ne!(ca.issuing_ca.is_some(), ca.accepted_cas.len() == 1);
    }
    let document = document(&control_plane());
    let node = document.all::<KubeNodeConfig>().next().unwrap();
    assert_eq!(node.labels.len(), 2);
    assert_eq!(
        node.taints["node-role.kubernetes.io/control-plane"],
        "NoSchedule"
    );
}

#[test]
fn secrets_of_documents_are_never_shown() {
    let text = control_plane();
    let config = document(&text);
    let changed = text
        .replace(KEY_TEXT, "bm93LWFub3RoZXI")
        .replace("AgICAg", "AwMDAw");
    let new = document(&changed);
    let compared = [
        canonical(config.trees(), None),
        canonical(new.trees(), Some(config.trees())),
    ];
    assert!(compared[1].contains("(changed)"), "{}", compared[1]);
    let [before, after] = compared;
    for shown in [config.redacted(), before, after, format!("{config:?}")] {
        for secret in [
            KEY_TEXT,
            "bm93LWFub3RoZXI",
            "AgICAg",
            "AwMDAw",
            "0123456789abcdef",
        ] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }
    let redacted = config.redacted();
    assert!(redacted.contains("clusterID: AQEB") && redacted.contains("-----BEGIN CERTIFICATE"));
}

#[test]
fn setting_missing_in_both_forms_is_reported_once() {
    let missing = "cluster is required";
    assert!(problems(&bare("controlplane"))[0].ends_with(missing));
    let missing = "cluster.controlPlane.endpoint, or a KubeClusterConfig, is required";
    for cluster in [
        "cluster: {token: a.b}\n",
        "cluster: {controlPlane: {localAPIServerPort: 6443}}\n",
    ] {
        let found = problems(&format!("{}{cluster}", bare("controlplane")));
        assert!(found.len() == 1 && found[0].ends_with(missing), "{found:?}");
    }
    // Without `cluster`, the document has all required settings.
    let text = format!("{}{}", bare("controlplane"), cluster("a"));
    assert_eq!(problems(&text), [""; 0]);
    // An invalid one is not reported as missing.
    let found = problems(&text.replace("https://192", "192"));
    assert!(
        found.len() == 1 && found[0].contains("endpoint must be a URL"),
        "{found:?}"
    );

    let service = doc(
        "DiscoveryServiceConfig",
        "name: a\nendpoint: https://example.org",
    );
    let found = problems(&format!("{text}{service}"));
    let missing = "needs cluster.id and cluster.secret, or a DiscoveryIdentityConfig";
    assert!(found.len() == 1 && found[0].ends_with(missing), "{found:?}");
    let old = text.replace("\n---", "\ncluster: {id: a, secret: b}\n---");
    assert_eq!(problems(&format!("{old}{service}")), [""; 0]);
    let old = text.replace("\n---", "\ncluster: {discovery: {enabled: true}}\n---");
    let found = problems(&old);
    assert!(
        found.len() == 1 && found[0].contains("cluster.discovery needs"),
        "{found:?}"
    );
}

#[test]
fn setting_given_in_both_forms_is_refused() {
    for (kind, fields, old) in [
        (
            "KubeClusterConfig",
            "clusterName: b\nendpoint: https://a",
            "cluster.clusterName",
        ),
        (
            "KubeClusterConfig",
            "clusterName: b\nendpoint: https://a",
            "cluster.controlPlane.endpoint",
        ),
        (
            "UnattendedInstallConfig",
            "provisioning: {diskSelector: {match: a}}",
            "machine.install",
        ),
        (
            "KubePrismConfig",
            "port: 7445",
            "machine.features.kubePrism",
        ),
        (
            "DiscoveryIdentityConfig",
            "clusterID: a\nclusterSecret: AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=",
            "cluster.secret",
        ),
    ] {
        let found = problems(&format!("{}{}", good(), doc(kind, fields)));
        let why = format!("{kind} excludes {old} (line ");
        assert!(found.iter().any(|p| p.contains(&why)), "{why}: {found:?}");
    }
    let dns = doc("ResolverConfig", "hostDNS: {enabled: true}");
    let old = format!("{}features: {{hostDNS: {{enabled: true}}}}\n", indented());
    let found = problems(&format!("{old}{}{dns}", cluster("a")));
    assert!(
        found.len() == 1
            && found[0].contains("ResolverConfig.hostDNS excludes machine.features.hostDNS"),
        "{found:?}"
    );
    // Its other fields do not conflict.
    let servers = doc("ResolverConfig", "nameservers: [{address: 10.0.0.1}]");
    assert_eq!(
        problems(&format!("{old}{}{servers}", cluster("a"))),
        [""; 0]
    );
}

/// A config that ends inside `machine`, for further fields.
fn indented() -> String {
    format!("{}    ", bare("controlplane"))
}

#[test]
fn control_plane_documents_are_refused_for_a_worker() {
    let text = worker();
    for kind in crate::forms::names() {
        let start = format!("kind: {kind}\n");
        let fields = super::EXAMPLES
            .split("\n---\n")
            .find(|one| one.contains(&start));
        let (_, fields) = fields.unwrap().split_once(&start).unwrap();
        let found = future_problems(&format!("{text}{}", doc(kind, fields)));
        let why = format!("{kind} must not be given to a worker");
        assert!(found.len() == 1 && found[0].ends_with(&why), "{found:?}");
    }
    let own = control_plane();
    let ca = own
        .split("\n---\n")
        .find(|one| one.contains("KubeAPIServerCAConfig"));
    let theirs = text
        .split("\n---\n")
        .find(|one| one.contains("KubeAPIServerCAConfig"));
    let found = problems(&text.replace(theirs.unwrap(), ca.unwrap()));
    let why = "issuingCA must not be given to a worker; acceptedCAs are for it";
    assert!(found.len() == 1 && found[0].ends_with(why), "{found:?}");
}

#[test]
fn worker_shares_no_address_and_is_told_so() {
    let text = worker();
    let old = "interfaces: [{interface: eth0, vip: {ip: 10.0.0.9}, vlans: [{vlanId: 5, vip: {ip: 10.1.0.9}}]}]";
    let old = text.replacen("machine:", &format!("machine:\n    network: {{{old}}}"), 1);
    let found = problems(&old);
    for (found, field) in found.iter().zip(["vip", "vlans[0].vip"]) {
        let why = format!("machine.network.interfaces[0].{field} must not be given to a worker");
        assert!(found.ends_with(&why), "{found}");
    }
    assert_eq!(found.len(), 2, "{found:?}");
    let new = format!(
        "{text}{}",
        doc("Layer2VIPConfig", "name: 10.0.0.9\nlink: eth0")
    );
    let warnings = Document::parse(new.as_bytes()).unwrap().warnings();
    assert!(
        warnings
            .iter()
            .any(|text| text.starts_with("Layer2VIPConfig has no effect on a worker")),
        "{warnings:?}"
    );
}

#[test]
fn install_document_replaces_the_install_field() {
    let text = format!("{}{}", bare("controlplane"), cluster("a"));
    let refusal = document(&text).validate(Mode::Metal).unwrap_err();
    assert!(
        refusal
            .to_string()
            .contains("UnattendedInstallConfig is required")
    );
    let install = doc(
        "UnattendedInstallConfig",
        "provisioning: {diskSelector: {match: disk.size > 1u}}",
    );
    document(&format!("{text}{install}"))
        .validate(Mode::Metal)
        .unwrap();
}

#[test]
fn ptp_device_must_be_a_clock_device_in_both_forms() {
    let new = |device: &str| doc("TimeSyncConfig", &format!("ptp: {{devices: [{device}]}}"));
    let old = |device: &str| {
        let time =
            format!("    time: {{servers: [{device}, 10.0.0.1, '[::1]:1123']}}\n    network:\n");
        good().replace("    network:\n", &time)
    };
    document(&format!("{}{}", good(), new("/dev/ptp0")));
    document(&old("/dev/ptp_kvm"));
    let told = &problems(&format!("{}{}", good(), new("/dev/watchdog")))[0];
    assert!(
        told.contains("ptp.devices[0] must be a clock such as /dev/ptp0"),
        "{told}"
    );
    let told = &problems(&old("/dev/watchdog"))[0];
    assert!(
        told.contains("machine.time.servers[0] must be a name, an IP address"),
        "{told}"
    );
}

#[test]
fn document_adds_to_the_older_field_and_wins() {
    let text = format!(
        "{}---
apiVersion: v1alpha1
kind: KernelModuleConfig
name: nbd
---
apiVersion: v1alpha1
kind: EnvironmentConfig
variables: {{A: new}}
---
apiVersion: v1alpha1
kind: SysctlConfig
params: {{vm.max_map_count: '3'}}
",
        good().replace(
            "machine:\n",
            "machine:\n    env: {A: old, B: old}\n    kernel: {modules: [{name: btrfs}]}\n"
        )
    );
    let document = document(&text);
    let modules: Vec<&str> = document.kernel_modules().into_keys().collect();
    assert!(
        modules.contains(&"btrfs") && modules.contains(&"nbd"),
        "{modules:?}"
    );
    assert_eq!(document.variables()["A"], "new");
    assert_eq!(document.variables()["B"], "old");
    assert_eq!(document.sysctls()["vm.max_map_count"], "3");
}

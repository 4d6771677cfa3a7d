//! Compares what a control plane node writes with what the reference writes for the same config. The tables are the
//! reference's output (v1.14.0-rc.1), as facts.

use std::collections::BTreeSet;

use corten_config::Document;
use corten_pki::Algorithm;
use serde_json::{Value, json};

use super::tests::{document, facts, golden, made, patched, source_without, without_digests};
use crate::pods::static_pods;
use crate::{ControlPlane, Node, Settings, bootstrap_settings, kubelet};

/// Versions of Kubernetes whose output the golden file shows, the newest last.
const VERSIONS: &[&str] = &["1.33.9", "1.34.9", "1.35.9", "1.36.6", "1.37.2"];

/// Arguments of the reference for versions 1.35, 1.36 and 1.37. `S` is the directory of a component's secrets, `C` that
/// of its configuration.
const ARGUMENTS: &[(&str, &str)] = &[
    (
        "kube-apiserver",
        "admission-control-config-file=C/admission-control-config.yaml advertise-address=$(POD_IP) \
         allow-privileged=true anonymous-auth=false api-audiences=https://cp.example.org:6443 audit-log-maxage=30 \
         audit-log-maxbackup=10 audit-log-maxsize=100 audit-log-path=/var/log/audit/kube/kube-apiserver.log \
         audit-policy-file=C/auditpolicy.yaml authorization-config=C/authorization-config.yaml bind-address=0.0.0.0 \
         client-ca-file=S/ca.crt enable-admission-plugins=NodeRestriction enable-bootstrap-token-auth=true \
         encryption-provider-config=S/encryptionconfig.yaml etcd-cafile=S/etcd-client-ca.crt \
         etcd-certfile=S/etcd-client.crt etcd-keyfile=S/etcd-client.key etcd-servers=https://127.0.0.1:2379 \
         kubelet-client-certificate=S/apiserver-kubelet-client.crt kubelet-client-key=S/apiserver-kubelet-client.key \
         kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname profiling=false \
         proxy-client-cert-file=S/front-proxy-client.crt proxy-client-key-file=S/front-proxy-client.key \
         requestheader-allowed-names=front-proxy-client requestheader-client-ca-file=S/aggregator-ca.crt \
         requestheader-extra-headers-prefix=X-Remote-Extra- requestheader-group-headers=X-Remote-Group \
         requestheader-username-headers=X-Remote-User secure-port=6443 \
         service-account-issuer=https://cp.example.org:6443 service-account-key-file=S/service-account.pub \
         service-account-signing-key-file=S/service-account.key service-cluster-ip-range=10.96.0.0/12 \
         tls-cert-file=S/apiserver.crt tls-min-version=VersionTLS13 tls-private-key-file=S/apiserver.key",
    ),
    (
        "kube-controller-manager",
        "allocate-node-cidrs=true authentication-kubeconfig=S/kubeconfig authorization-kubeconfig=S/kubeconfig \
         bind-address=127.0.0.1 cluster-cidr=10.244.0.0/16 cluster-signing-cert-file=S/ca.crt \
         cluster-signing-key-file=S/ca.key configure-cloud-routes=false controllers=* kubeconfig=S/kubeconfig \
         leader-elect=true node-cidr-mask-size-ipv4=24 profiling=false root-ca-file=S/ca.crt \
         service-account-private-key-file=S/service-account.key service-cluster-ip-range=10.96.0.0/12 \
         terminated-pod-gc-threshold=100 tls-min-version=VersionTLS13 use-service-account-credentials=true",
    ),
    (
        "kube-scheduler",
        "authentication-kubeconfig=S/kubeconfig authentication-tolerate-lookup-failure=false \
         authorization-kubeconfig=S/kubeconfig bind-address=127.0.0.1 config=C/scheduler-config.yaml leader-elect=true \
         profiling=false tls-min-version=VersionTLS13",
    ),
];
/// Arguments that differ on purpose: the reference's, and the node's own (docs/compatibility.md).
const DIFFERENT: &[(&str, &str)] = &[
    (
        "anonymous-auth=false",
        "authentication-config=C/authentication-config.yaml",
    ),
    // The private key has the public one.
    (
        "service-account-key-file=S/service-account.pub",
        "service-account-key-file=S/service-account.key",
    ),
    // `ca.crt` has all accepted CAs.
    (
        "cluster-signing-cert-file=S/ca.crt",
        "cluster-signing-cert-file=S/issuing-ca.crt",
    ),
    (
        "cluster-signing-key-file=S/ca.key",
        "cluster-signing-key-file=S/issuing-ca.key",
    ),
    // The default of Kubernetes.
    ("node-cidr-mask-size-ipv4=24", ""),
];

/// The default config with another version of Kubernetes.
fn at(version: &str) -> Document {
    let source = document("").source().replace("1.37.2", version);
    Document::parse(source.as_bytes()).unwrap()
}

/// Pods by name, and configuration files by name.
fn written(document: &Document) -> (Value, Value) {
    let (settings, own, all) = made(document);
    let pods = static_pods(&settings, &own, &all);
    let pods = pods.into_iter();
    let pods = pods.map(|pod| (pod.id.to_owned(), without_digests(pod.pod)));
    let is_config = |name: &str| name.ends_with(".yaml");
    let files = all
        .iter()
        .flat_map(|one| one.config.iter().chain(&one.secrets));
    let files = files.filter(|file| is_config(file.name));
    let files = files.map(|file| {
        let content = serde_json::from_str(file.content.expose()).unwrap();
        (file.name.to_owned(), content)
    });
    let mut files: serde_json::Map<String, Value> = files.collect();
    let node = Node::of(document, &settings).unwrap();
    let kubelet = kubelet::config(&settings, &node, "", "");
    files.insert("kubelet.yaml".to_owned(), kubelet);
    (Value::Object(pods.collect()), Value::Object(files))
}

/// Values of `one` that `other` lacks, by JSON pointer.
fn only_in(one: &Value, other: Option<&Value>, path: &str, found: &mut Vec<String>) {
    match one {
        _ if Some(one) == other => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let other = other.and_then(|other| other.get(name));
                only_in(value, other, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (number, value) in items.iter().enumerate() {
                let other = other.and_then(|other| other.get(number));
                only_in(value, other, &format!("{path}/{number}"), found);
            }
        }
        value => found.push(format!("{path}: {value}")),
    }
}

#[test]
fn versions_of_kubernetes_differ_as_the_golden_file_shows() {
    let newest = written(&at(VERSIONS.last().unwrap()));
    let all = VERSIONS.iter().map(|version| {
        let (pods, files) = written(&at(version));
        let kinds = files.as_object().unwrap().iter();
        let kinds = kinds.map(|(name, file)| (name.clone(), file["apiVersion"].clone()));
        let kinds: serde_json::Map<String, Value> = kinds.collect();
        let mut differs = Vec::new();
        only_in(&pods, Some(&newest.0), "", &mut differs);
        only_in(&files, Some(&newest.1), "", &mut differs);
        let whole = json!({ "kinds": kinds, "differs from the newest": differs });
        ((*version).to_owned(), whole)
    });
    golden("versions.json", &Value::Object(all.collect()));
}

#[test]
fn arguments_are_those_of_the_reference_for_each_version() {
    for version in ["1.35.9", "1.36.6", "1.37.2"] {
        let (pods, _) = written(&at(version));
        for (name, expected) in ARGUMENTS {
            let (secrets, config) = (
                format!("=/system/secrets/kubernetes/{name}/"),
                format!("=/system/config/kubernetes/{name}/"),
            );
            let command = &pods[name]["spec"]["containers"][0]["command"];
            let command = command.as_array().unwrap().iter().skip(1);
            let own: BTreeSet<String> = command
                .map(|line| line.as_str().unwrap().trim_start_matches("--"))
                .map(|line| line.replace(&secrets, "=S/").replace(&config, "=C/"))
                .collect();
            let expected = expected.split_whitespace().map(|line| {
                let other = DIFFERENT.iter().find(|(reference, _)| *reference == line);
                other.map_or(line, |(_, own)| *own).to_owned()
            });
            let expected = expected.filter(|line| !line.is_empty()).collect();
            assert_eq!(own, expected, "{name} {version}");
        }
    }
}

#[test]
fn kubelet_configuration_is_that_of_the_reference() {
    let (_, files) = written(&patched("machine: {features: {diskQuotaSupport: true}}"));
    let mut own = files["kubelet.yaml"].clone();
    // Paths of the node itself; the driver is Kubernetes' default.
    for field in [
        "cgroupDriver",
        "resolvConf",
        "staticPodPath",
        "staticPodURL",
    ] {
        own.as_object_mut().unwrap().remove(field).unwrap();
    }
    let expected = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": "/etc/kubernetes/pki/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupRoot": "/",
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failSwapOn": false,
        "featureGates": { "LocalStorageCapacityIsolationFSQuotaMonitoring": true },
        "kubeletCgroups": "/podruntime/kubelet",
        "logging": { "format": "json" },
        "oomScoreAdj": -450,
        "port": 10250,
        "protectKernelDefaults": true,
        "registerWithTaints": [{
            "key": "node-role.kubernetes.io/control-plane",
            "value": "",
            "effect": "NoSchedule",
        }],
        "rotateCertificates": true,
        "seccompDefault": true,
        "serializeImagePulls": false,
        "shutdownGracePeriod": "30s",
        "shutdownGracePeriodCriticalPods": "10s",
        "streamingConnectionIdleTimeout": "5m",
        "systemCgroups": "/system",
        "systemReserved": {
            "cpu": "50m",
            "ephemeral-storage": "256Mi",
            "memory": "512Mi",
            "pid": "100",
        },
        "tlsMinVersion": "VersionTLS13",
    });
    assert_eq!(own, expected);
}

/// The default config with documents in place of the legacy sections of kubelet, API server, scheduler and others.
fn by_kind(documents: &str) -> Document {
    let source = source_without(&[
        "kubelet:",
        "nodeLabels:",
        "apiServer:",
        "scheduler:",
        "proxy:",
        "network:",
        "serviceAccount:",
    ]);
    let key = corten_pki::new_key(Algorithm::EcdsaP256).unwrap();
    let key = json!(key);
    let usual = [
        "kind: KubeletConfig\nimage: example.org/kubelet:v1.37.2",
        "kind: KubeAPIServerConfig\nimage: example.org/kube-apiserver:v1.37.2",
        "kind: KubeSchedulerConfig\nimage: example.org/kube-scheduler:v1.37.2",
        "kind: KubeProxyConfig\nimage: example.org/kube-proxy:v1.37.2",
        "kind: KubeNetworkConfig\npodSubnets: [10.244.0.0/16]\nserviceSubnets: [10.96.0.0/12]",
        &format!(
            "kind: KubeServiceAccountConfig\nissuer: {{issuerURL: 'https://a', privateKey: {key}}}"
        ),
    ];
    let kind = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let given: Vec<String> = documents.split("---\n").map(kind).collect();
    let usual = usual.iter().filter(|one| !given.contains(&kind(one)));
    let given = documents.split("---\n").filter(|one| !one.is_empty());
    let all = usual.copied().chain(given);
    let all: String = all
        .map(|one| format!("---\napiVersion: v1alpha1\n{one}\n"))
        .collect();
    Document::parse(format!("{source}{all}").as_bytes()).unwrap()
}

#[test]
fn a_kubelet_document_reads_no_static_pods_of_others() {
    let path = |document: &Document| written(document).1["kubelet.yaml"]["staticPodPath"].clone();
    assert_eq!(path(&document("")), "/etc/kubernetes/manifests");
    let own = patched("machine: {kubelet: {disableManifestsDirectory: true}}");
    assert_eq!(path(&own), "/run/kubernetes/pods");
    assert_eq!(path(&by_kind("")), "/run/kubernetes/pods");
}

#[test]
fn an_api_server_document_mounts_the_trusted_cas_and_may_end_the_probes() {
    let (pods, _) = written(&by_kind(""));
    let pod = &pods["kube-apiserver"]["spec"];
    let roots = json!({ "name": "ca-roots", "mountPath": "/etc/ssl/certs", "readOnly": true });
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.contains(&roots), "{mounts:?}");
    let roots = json!({ "name": "ca-roots", "hostPath": { "path": "/etc/ssl/certs" } });
    assert!(pod["volumes"].as_array().unwrap().contains(&roots));
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
    // The legacy form may mount the same directory itself.
    let (pods, _) = written(&document(""));
    let legacy = pods["kube-apiserver"].to_string();
    assert!(!legacy.contains("ca-roots"));
    let kind = "kind: KubeAPIServerConfig\nimage: a:v1.37.2\nstartupProbes: false\n";
    let (pods, _) = written(&by_kind(kind));
    let container = pods["kube-apiserver"]["spec"]["containers"][0].to_string();
    assert!(!container.contains("Probe"), "{container}");
}

#[test]
fn an_authentication_file_of_the_config_replaces_that_of_the_node() {
    let (pods, _) = written(&patched(
        "cluster: {apiServer: {extraArgs: {authentication-config: /var/etc/own.yaml}}}",
    ));
    let container = &pods["kube-apiserver"]["spec"]["containers"][0];
    let command = container["command"].to_string();
    assert!(command.contains("--authentication-config=/var/etc/own.yaml"));
    assert!(!command.contains("/authentication-config.yaml"));
    // The file's rules for anonymous requests are unknown.
    assert!(container["livenessProbe"]["tcpSocket"].is_object());
}

#[test]
fn a_disabled_component_needs_no_image() {
    let kind = "kind: KubeSchedulerConfig\nenabled: false\n";
    let (pods, _) = written(&by_kind(kind));
    assert!(pods.get("kube-scheduler").is_none());
    assert!(pods.get("kube-apiserver").is_some());
    let legacy = "machine: {controlPlane: {controllerManager: {disabled: true}}}
cluster: {controllerManager: {$patch: delete}}";
    let (pods, _) = written(&patched(legacy));
    assert!(pods.get("kube-controller-manager").is_none());
}

#[test]
fn a_proxy_document_gives_kube_proxy_a_configuration_file() {
    let bootstrap = |document: &Document| {
        let settings = Settings::of(document).unwrap();
        bootstrap_settings(&settings, &ControlPlane::of(document).unwrap())
    };
    let kind = "kind: KubeProxyConfig\nimage: a:v1\nmode: iptables\nextraArgs: {v: 2}\n";
    let proxy = bootstrap(&by_kind(kind)).proxy.unwrap();
    let expected = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": "/etc/kubernetes/kubeconfig" },
        "clusterCIDR": "10.244.0.0/16",
        "conntrack": { "maxPerCore": 0 },
        "mode": "iptables",
    });
    assert_eq!(proxy.config, Some(expected));
    let args = [
        "--config=/var/lib/kube-proxy/config.conf",
        "--hostname-override=$(NODE_NAME)",
        "--v=2",
    ];
    assert_eq!(proxy.args, args);
    assert_eq!(bootstrap(&document("")).proxy.unwrap().config, None);
}

#[test]
fn the_dns_service_keeps_its_address_when_kubelets_name_another_server() {
    let document = patched("machine: {kubelet: {clusterDNS: [169.254.20.10]}}");
    let settings = Settings::of(&document).unwrap();
    let node = Node::of(&document, &settings).unwrap();
    let kubelet = kubelet::config(&settings, &node, "", "");
    assert_eq!(kubelet["clusterDNS"], json!(["169.254.20.10"]));
    let own = ControlPlane::of(&document).unwrap();
    let dns = bootstrap_settings(&settings, &own).dns.unwrap();
    assert_eq!(dns.ipv4, Some([10, 96, 0, 10].into()));
    assert_eq!(dns.ipv6, None);
}

#[test]
fn the_kubelet_registers_with_labels_that_a_node_may_set() {
    let document = patched(
        "machine:
  nodeLabels:
    example.org/a: ''
    node.kubernetes.io/b: ''
    x.node.kubernetes.io/c: ''
    topology.kubernetes.io/zone: z
    kubernetes.io/d: ''
    example.kubernetes.io/e: ''
    example.k8s.io/f: ''
    notkubernetes.io/g: ''
",
    );
    let settings = Settings::of(&document).unwrap();
    let node = Node::of(&document, &settings).unwrap();
    let args = kubelet::args(&facts(), &node, &[]);
    let labels = args
        .iter()
        .find_map(|arg| arg.strip_prefix("--node-labels="));
    let expected = "example.org/a=,node.kubernetes.io/b=,notkubernetes.io/g=,rack=a,\
                    topology.kubernetes.io/zone=z,x.node.kubernetes.io/c=";
    assert_eq!(labels, Some(expected));
}

#[test]
fn the_kubelet_expects_the_name_of_the_api_behind_kubeprism() {
    let name = |document: &Document| {
        let settings = Settings::of(document).unwrap();
        let server = settings.server(true);
        let config = kubelet::bootstrap_kubeconfig(&settings, &server);
        let cluster = config["clusters"][0]["cluster"].clone();
        (
            cluster["server"].clone(),
            cluster["tls-server-name"].clone(),
        )
    };
    let kind = "kind: KubePrismConfig\nport: 7445\ntlsServerName: api.example.org\n";
    let expected = (json!("https://127.0.0.1:7445"), json!("api.example.org"));
    assert_eq!(name(&by_kind(kind)), expected);
    assert_eq!(name(&document("")).1, Value::Null);
    // The components call the API server of their own node.
    let (_, _, all) = made(&by_kind(kind));
    let mut secrets = all.iter().flat_map(|one| &one.secrets);
    assert!(secrets.all(|file| !file.content.expose().contains("tls-server-name")));
}

//! Tests Kubernetes settings that differ from the default.

use corten_config::Document;
use corten_pki::Algorithm;
use serde_json::{Value, json};

use super::tests::{document, facts, golden, made, patched, source_without, without_digests};
use crate::files::{Component, authorization};
use crate::pods::static_pods;
use crate::settings::CONTROL_PLANE;
use crate::{ControlPlane, Node, Settings, bootstrap_settings, kubelet};

fn with(patch: &str) -> (Document, Settings, ControlPlane, Node) {
    let document = patched(patch);
    let settings = Settings::of(&document).unwrap();
    let own = ControlPlane::of(&document).unwrap();
    let node = Node::of(&document, &settings).unwrap();
    (document, settings, own, node)
}

fn pods(patch: &str) -> (Vec<Component>, Vec<Value>) {
    let (settings, own, all) = made(&patched(patch));
    let pods = static_pods(&settings, &own, &all);
    (all, pods.into_iter().map(|pod| pod.pod).collect())
}

fn command(pod: &Value) -> Vec<&str> {
    let lines = pod.pointer("/spec/containers/0/command").unwrap();
    let lines = lines.as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap()).collect()
}

#[test]
fn memory_limit_lowers_the_request_and_sets_gomemlimit() {
    let (_, pods) = pods(
        "cluster:
  scheduler:
    resources: {limits: {memory: 32Mi, cpu: 2}}
    env: {MESSAGE: 'a $(POD_IP)'}
",
    );
    let container = pods[2].pointer("/spec/containers/0").unwrap();
    let expected = json!({
        "requests": { "cpu": "10m", "memory": "32Mi" },
        "limits": { "cpu": "2", "memory": "32Mi" },
    });
    assert_eq!(container["resources"], expected);
    let variables = &container["env"];
    assert_eq!(
        variables[1],
        json!({ "name": "GOMEMLIMIT", "value": "31876710" })
    );
    assert_eq!(variables[2]["value"], "a $$(POD_IP)");
}

#[test]
fn api_server_without_anonymous_access_is_probed_by_tcp() {
    let probe = |patch: &str| {
        let (_, pods) = pods(patch);
        pods[0]
            .pointer("/spec/containers/0/livenessProbe")
            .unwrap()
            .clone()
    };
    let oidc = "cluster: {apiServer: {extraArgs: {oidc-issuer-url: 'https://id.example.org'}}}";
    assert_eq!(
        probe(oidc)["tcpSocket"],
        json!({ "host": "127.0.0.1", "port": 6443 })
    );
    let file =
        "cluster: {apiServer: {extraArgs: {authentication-config: /a, secure-port: '7443'}}}";
    assert_eq!(
        probe(file)["tcpSocket"],
        json!({ "host": "127.0.0.1", "port": 7443 })
    );
    for asked in [
        "{}",
        "cluster: {apiServer: {extraArgs: {anonymous-auth: 'true'}}}",
    ] {
        assert_eq!(probe(asked)["httpGet"]["path"], "/livez", "{asked}");
    }
}

#[test]
fn list_arguments_of_the_config_extend_those_of_the_node() {
    let (_, pods) = pods("cluster: {controllerManager: {extraArgs: {controllers: -ttl}}}");
    assert!(command(&pods[1]).contains(&"--controllers=*,-ttl"));
    let subnets = "{extraArgs: {service-cluster-ip-range: 10.200.0.0/16}}";
    let patch = format!("cluster: {{controllerManager: {subnets}, apiServer: {subnets}}}");
    let (_, pods) = self::pods(&patch);
    let range = |pod: &Value| {
        let lines = command(pod).into_iter();
        let mut lines = lines.filter_map(|line| line.strip_prefix("--service-cluster-ip-range="));
        lines.next().unwrap().to_owned()
    };
    // kube-apiserver has one list of subnets, the config's.
    assert_eq!(range(&pods[0]), "10.200.0.0/16");
    assert!(range(&pods[1]).ends_with(",10.200.0.0/16"));
    let (_, _, _, node) = with("machine: {kubelet: {extraArgs: {node-labels: zone=b}}}");
    let args = kubelet::args(&facts(), &node, &[]);
    assert!(
        args.contains(&"--node-labels=rack=a,zone=b".to_owned()),
        "{args:?}"
    );
}

#[test]
fn pods_of_an_ending_node_get_the_periods_of_its_config() {
    for (extra, critical, seconds) in [
        ("{}", "10s", 30),
        ("{shutdownGracePeriod: 1m30s}", "10s", 90),
        (
            "{shutdownGracePeriod: 0s, shutdownGracePeriodCriticalPods: 0s}",
            "0s",
            0,
        ),
        (
            "{shutdownGracePeriod: 0s, shutdownGracePeriodByPodPriority: [{priority: 0, \
             shutdownGracePeriodSeconds: 40}, {priority: 9, shutdownGracePeriodSeconds: 5}]}",
            "10s",
            45,
        ),
        ("{shutdownGracePeriod: soon}", "10s", 0),
    ] {
        let (_, settings, _, node) =
            with(&format!("machine: {{kubelet: {{extraConfig: {extra}}}}}"));
        let config = kubelet::config(&settings, &node, "", "");
        assert_eq!(config["shutdownGracePeriodCriticalPods"], critical);
        assert_eq!(
            kubelet::shutdown_grace(&config).as_secs(),
            seconds,
            "{extra}"
        );
    }
}

#[test]
fn taints_of_the_kubelet_configuration_extend_those_of_the_node() {
    let (_, settings, _, node) = with(
        "machine:
  kubelet: {extraConfig: {registerWithTaints: [{key: a, effect: NoExecute}]}}
",
    );
    let config = kubelet::config(&settings, &node, "", "");
    let taints = config["registerWithTaints"].as_array().unwrap();
    let keys: Vec<&Value> = taints.iter().map(|taint| &taint["key"]).collect();
    assert_eq!(keys, ["node-role.kubernetes.io/control-plane", "a"]);
}

#[test]
fn node_document_names_all_taints_of_a_control_plane_node() {
    let usual = json!([{ "key": CONTROL_PLANE, "value": "", "effect": "NoSchedule" }]);
    let taints = |document: &Document| {
        let settings = Settings::of(document).unwrap();
        let node = Node::of(document, &settings).unwrap();
        kubelet::config(&settings, &node, "", "")["registerWithTaints"].clone()
    };
    let old_form = document("").source().replace(
        "nodeLabels: {rack: a, node-role.kubernetes.io/x: ''}",
        "nodeTaints: {node-role.kubernetes.io/control-plane: NoSchedule}",
    );
    // A taint twice would make the API server refuse the node.
    let old_form = Document::parse(old_form.as_bytes()).unwrap();
    assert_eq!(taints(&old_form), usual);
    let by_kind = |fields: &str| {
        let source = document("").source().to_owned();
        let labels = "  nodeLabels: {rack: a, node-role.kubernetes.io/x: ''}\n";
        let source = source.replace(labels, "");
        let node = format!("{source}---\napiVersion: v1alpha1\nkind: KubeNodeConfig\n{fields}\n");
        taints(&Document::parse(node.as_bytes()).unwrap())
    };
    assert_eq!(
        by_kind(&format!("taints: {{{CONTROL_PLANE}: NoSchedule}}")),
        usual
    );
    assert_eq!(by_kind("labels: {a: b}"), json!([]));
}

#[test]
fn authorizers_are_asked_in_the_order_of_the_config() {
    let order = |patch: &str| {
        let (_, _, own, _) = with(patch);
        let whole = authorization(&own);
        let all = whole["authorizers"].as_array().unwrap().clone();
        all.iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(order("{}"), "node rbac");
    let webhook = "{type: Webhook, name: first, webhook: {timeout: 3s}}";
    let patch = |list: &str| format!("cluster: {{apiServer: {{authorizationConfig: [{list}]}}}}");
    assert_eq!(order(&patch(webhook)), "node rbac first");
    // A webhook before RBAC can deny what RBAC allows.
    let all = format!("{{type: Node, name: n}}, {webhook}, {{type: RBAC, name: r}}");
    assert_eq!(order(&patch(&all)), "n first r");
    let without_rbac = format!("{{type: Node, name: n}}, {webhook}");
    assert_eq!(order(&patch(&without_rbac)), "n rbac first");
    let without_node = "{type: RBAC, name: r, webhook: {timeout: 3s}}";
    assert_eq!(order(&patch(without_node)), "node r");
}

#[test]
fn standalone_kubelet_contacts_no_cluster() {
    let patch = "machine: {kubelet: {skipNodeRegistration: true}}";
    let (_, settings, _, node) = with(patch);
    let args = kubelet::args(&facts(), &node, &[]);
    assert!(
        !args.iter().any(|arg| arg.contains("kubeconfig")),
        "{args:?}"
    );
    let config = kubelet::config(&settings, &node, "", "");
    assert_eq!(config["authorization"]["mode"], "AlwaysAllow");
    assert_eq!(config["authentication"]["webhook"]["enabled"], false);
    assert_eq!(config["authentication"]["anonymous"]["enabled"], false);
    assert_eq!(config["registerWithTaints"], json!([]));
    let (_, pods) = pods(patch);
    assert!(
        !command(&pods[0])
            .iter()
            .any(|line| line.starts_with("--advertise-address"))
    );
}

#[test]
fn registry_credential_providers_are_a_secret_file() {
    let (_, _, _, node) = with(
        "machine:
  kubelet:
    credentialProviderConfig: {providers: [{name: ecr, env: [{name: A, value: hidden}]}]}
",
    );
    let file: Value = serde_json::from_str(node.credentials.as_ref().unwrap().expose()).unwrap();
    assert_eq!(file["kind"], "CredentialProviderConfig");
    assert_eq!(file["apiVersion"], "kubelet.config.k8s.io/v1");
    assert_eq!(file["providers"][0]["name"], "ecr");
    assert!(!format!("{node:?}").contains("hidden"));
    let args = kubelet::args(&facts(), &node, &[]);
    for arg in [
        "--image-credential-provider-bin-dir=/usr/local/lib/kubelet/credentialproviders",
        "--image-credential-provider-config=/etc/kubernetes/kubelet-credentialproviderconfig.yaml",
    ] {
        assert!(args.contains(&arg.to_owned()), "{args:?}");
    }
}

#[test]
fn remote_manifests_are_fetched_in_order_with_their_headers() {
    let (document, _, _, node) = with(
        "
cluster:
  network: {cni: {name: custom, urls: ['https://cni.example.org/a.yaml']}}
  externalCloudProvider: {enabled: true, manifests: ['https://cloud.example.org/b.yaml']}
  extraManifests: ['https://a.example.org/c.yaml']
  extraManifestHeaders: {Authorization: hidden}
",
    );
    let all = document.external_manifests();
    let fields: Vec<(&str, usize)> = all
        .iter()
        .map(|one| (one.field.as_str(), one.headers.len()))
        .collect();
    let expected = [
        ("cluster.network.cni.urls[0]", 0),
        ("cluster.externalCloudProvider.manifests[0]", 0),
        ("cluster.extraManifests[0]", 1),
    ];
    assert_eq!(fields, expected);
    assert!(!format!("{all:?}").contains("hidden"));
    let args = kubelet::args(&facts(), &node, &[]);
    assert!(
        args.contains(&"--cloud-provider=external".to_owned()),
        "{args:?}"
    );
}

/// A config with documents by kind in place of the same settings in the legacy form.
fn by_kind(documents: &str) -> Document {
    let source = source_without(&["network:", "serviceAccount:", "proxy:"]);
    Document::parse(format!("{source}{documents}").as_bytes()).unwrap()
}

#[test]
fn documents_with_a_kind_give_addons_networks_and_issuers() {
    let key = corten_pki::new_key(Algorithm::EcdsaP256).unwrap();
    let indented: String = key.lines().map(|line| format!("    {line}\n")).collect();
    let document = by_kind(&format!(
        "---
apiVersion: v1alpha1
kind: KubeNetworkConfig
podSubnets: [10.244.0.0/16]
serviceSubnets: [10.96.0.0/12]
nodeCIDRMaskSizeIPv4: 25
---
apiVersion: v1alpha1
kind: KubeProxyConfig
image: example.org/kube-proxy:v1.37.2
config: {{conntrack: {{tcpEstablishedTimeout: 1h}}, metricsBindAddress: '0.0.0.0:10249', kind: Other}}
extraArgs: {{v: 2}}
resources: {{limits: {{memory: 40Mi}}}}
---
apiVersion: v1alpha1
kind: KubeFlannelCNIConfig
backendType: wireguard
backendMTU: 1400
backendExtraConfig: {{PersistentKeepaliveInterval: 25}}
extraArgs: [--iface=eth1]
kubeNetworkPoliciesEnabled: true
---
apiVersion: v1alpha1
kind: KubeServiceAccountConfig
issuer:
  issuerURL: https://id.example.org
  privateKey: |
{indented}accepted:
  issuers: [https://old.example.org]
  audiences: [api]
  publicKeys: [\"-----BEGIN PUBLIC KEY-----\\nAAAA\\n-----END PUBLIC KEY-----\"]
"
    ));
    let (settings, own, all) = made(&document);
    let bootstrap = bootstrap_settings(&settings, &own);
    golden(
        "by-kind-bootstrap.json",
        &json!(format!("{bootstrap:#?}").lines().collect::<Vec<_>>()),
    );
    let pods = static_pods(&settings, &own, &all);
    golden(
        "by-kind-kube-apiserver.json",
        &without_digests(pods[0].pod.clone()),
    );
    assert!(command(&pods[1].pod).contains(&"--node-cidr-mask-size-ipv4=25"));
}

#[test]
fn network_documents_without_a_plugin_document_have_no_plugin() {
    let networks = "---
apiVersion: v1alpha1
kind: KubeNetworkConfig
podSubnets: [10.244.0.0/16]
serviceSubnets: [10.96.0.0/12]
---
apiVersion: v1alpha1
kind: KubeServiceAccountConfig
issuer: {issuerURL: 'https://id.example.org', privateKey: KEY}
";
    let key = corten_pki::new_key(Algorithm::EcdsaP256).unwrap();
    let networks = networks.replace("KEY", &json!(key).to_string());
    let proxy = "---
apiVersion: v1alpha1
kind: KubeProxyConfig
enabled: false
";
    let own = ControlPlane::of(&by_kind(&format!("{networks}{proxy}"))).unwrap();
    assert_eq!(own.images.flannel, None);
    assert_eq!(own.images.proxy, None);
}

//! Tests the output for a config, with golden files and rules.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::Document;
use corten_manifests::SHIM_GROUP;
use corten_pki::{Algorithm, Ca};
use corten_values::{Cidr, Secret};
use serde_json::{Value, json};

use crate::certificates::{Cas, Certificates, api_names};
use crate::files::{Component, components};
use crate::pods::{programs, static_pods};
use crate::{
    ControlPlane, Facts, Missing, Node, Settings, admin, bootstrap_settings, etcd, kubelet, nth,
};

pub(super) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn pair(name: &str) -> String {
    let ca = Ca::generate(Algorithm::EcdsaP256, name, "", now()).unwrap();
    let [crt, key] = [&ca.pem().crt, &ca.pem().key].map(|pem| STANDARD.encode(pem));
    format!("{{crt: {crt}, key: {key}}}")
}

pub(super) fn document(more: &str) -> Document {
    let [machine, kubernetes, aggregator, etcd] =
        ["talos", "kubernetes", "front-proxy", "etcd"].map(pair);
    let text = format!(
        "version: v1alpha1
machine:
  type: controlplane
  token: abcdef.0123456789abcdef
  ca: {machine}
  kubelet: {{image: 'example.org/kubelet:v1.37.2', defaultRuntimeSeccompProfileEnabled: true}}
  nodeLabels: {{rack: a, node-role.kubernetes.io/x: ''}}
cluster:
  clusterName: c
  secret: c2VjcmV0
  controlPlane: {{endpoint: 'https://cp.example.org:6443'}}
  network: {{dnsDomain: cluster.local, podSubnets: [10.244.0.0/16], serviceSubnets: [10.96.0.0/12]}}
  token: abcdef.0123456789abcdef
  secretboxEncryptionSecret: c2VjcmV0Ym94
  ca: {kubernetes}
  aggregatorCA: {aggregator}
  serviceAccount: {{key: {key}}}
  apiServer: {{image: 'example.org/kube-apiserver:v1.37.2', certSANs: [api.example.org]}}
  controllerManager: {{image: 'example.org/kube-controller-manager:v1.37.2'}}
  scheduler: {{image: 'example.org/kube-scheduler:v1.37.2'}}
  proxy: {{image: 'example.org/kube-proxy:v1.37.2'}}
  etcd: {{ca: {etcd}, image: 'example.org/etcd:v3.7.3'}}
{more}",
        key = STANDARD.encode(corten_pki::new_key(Algorithm::EcdsaP256).unwrap()),
    );
    Document::parse(text.as_bytes()).unwrap()
}

pub(super) fn facts() -> Facts {
    Facts {
        nodename: "n1".to_owned(),
        hostname: "n1".to_owned(),
        fqdn: "n1.example.org".to_owned(),
        addresses: vec!["10.0.2.15".parse().unwrap(), "fd00::1".parse().unwrap()],
        reachable: vec!["10.0.2.15".parse().unwrap(), "fd00::1".parse().unwrap()],
    }
}

/// The files of all components. Any client certificate serves as the one for etcd.
pub(super) fn files(
    settings: &Settings,
    own: &ControlPlane,
    cas: &Cas,
    certificates: &Certificates,
    key: &Secret,
) -> Vec<Component> {
    let etcd_client = &certificates.front_proxy;
    components(settings, own, cas, certificates, etcd_client, key)
}

/// The settings of a config, and the files of all components with new certificates.
pub(super) fn made(document: &Document) -> (Settings, ControlPlane, Vec<Component>) {
    let settings = Settings::of(document).unwrap();
    let own = ControlPlane::of(document).unwrap();
    let cas = Cas::of(document).unwrap();
    let certificates = Certificates::issue(&cas, &[], now()).unwrap();
    let key = document.service_account_key();
    let all = files(&settings, &own, &cas, &certificates, key);
    (settings, own, all)
}

/// The text of the default config without the lines of these sections.
pub(super) fn source_without(sections: &[&str]) -> String {
    let document = document("");
    let is_in = |line: &&str| {
        let own = line.strip_prefix("  ");
        own.is_some_and(|own| sections.iter().any(|section| own.starts_with(section)))
    };
    let lines = document.source().lines().filter(|line| !is_in(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// `UPDATE=1 cargo test -p corten-kubernetes` rewrites the file.
pub(super) fn golden(name: &str, value: &Value) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden");
    let path = directory.join(name);
    let text = format!("{value:#}\n");
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&directory).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let agreed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, agreed, "UPDATE=1 writes {}", path.display());
}

/// Replaces digests, which cover secrets that are new in each test.
pub(super) fn without_digests(mut pod: Value) -> Value {
    let annotations = pod.pointer_mut("/metadata/annotations").unwrap();
    for (name, digest) in annotations.as_object_mut().unwrap() {
        if name == SHIM_GROUP {
            continue;
        }
        assert_eq!(digest.as_str().unwrap().len(), 64);
        *digest = json!("a digest");
    }
    pod
}

#[test]
fn static_pods_and_configurations_match_the_golden_files() {
    let document = document("");
    let settings = Settings::of(&document).unwrap();
    let own = ControlPlane::of(&document).unwrap();
    let cas = Cas::of(&document).unwrap();
    let names = api_names(&settings, &own, &facts());
    let certificates = Certificates::issue(&cas, &names, now()).unwrap();
    let key = document.service_account_key();
    let all = files(&settings, &own, &cas, &certificates, key);
    for pod in static_pods(&settings, &own, &all) {
        golden(&format!("{}.json", pod.id), &without_digests(pod.pod));
    }
    for file in all.iter().flat_map(|component| &component.config) {
        let value = serde_json::from_str(file.content.expose()).unwrap();
        golden(&file.name.replace(".yaml", ".json"), &value);
    }
    let node = Node::of(&document, &settings).unwrap();
    let addresses = kubelet::addresses(&document, &settings, &facts());
    let config = kubelet::config(&settings, &node, "http://127.0.0.1:1", "/run/resolv.conf");
    golden("kubelet.json", &config);
    let addresses_of_etcd = etcd::Addresses::of(&document, &facts()).unwrap();
    let args = json!({
        "kubelet": kubelet::args(&facts(), &node, &addresses),
        "etcd": etcd::args(&facts(), &addresses_of_etcd, &etcd::Start::New, &own.etcd_args),
        "names": names,
    });
    golden("args.json", &args);
    let settings = bootstrap_settings(&settings, &own);
    golden(
        "bootstrap.json",
        &json!(format!("{settings:#?}").lines().collect::<Vec<_>>()),
    );
}

#[test]
fn pod_restarts_for_files_read_at_start_and_not_for_renewed_certificates() {
    let document = document("");
    let settings = Settings::of(&document).unwrap();
    let own = ControlPlane::of(&document).unwrap();
    let cas = Cas::of(&document).unwrap();
    let pods = |own: &ControlPlane, key: &Secret| {
        let certificates = Certificates::issue(&cas, &[], now()).unwrap();
        let all = files(&settings, own, &cas, &certificates, key);
        static_pods(&settings, own, &all)
    };
    let key = document.service_account_key();
    let before = pods(&own, key);
    assert_eq!(pods(&own, key), before);
    let names = |changed: Vec<crate::pods::StaticPod>| -> Vec<&'static str> {
        let pairs = changed.into_iter().zip(&before);
        let changed = pairs.filter(|(now, before)| now != *before);
        changed.map(|(now, _)| now.id).collect()
    };
    assert_eq!(
        names(pods(&own, &Secret::new("another"))),
        ["kube-apiserver", "kube-controller-manager"]
    );
    let other = ControlPlane {
        secretbox: "b3RoZXI=".to_owned(),
        ..own
    };
    assert_eq!(names(pods(&other, key)), ["kube-apiserver"]);
}

#[test]
fn pod_carries_the_version_of_its_settings_and_the_command_line_that_is_shown() {
    let document = document("");
    let (settings, own, all) = made(&document);
    for (mut pod, program) in static_pods(&settings, &own, &all)
        .into_iter()
        .zip(programs(&settings, &own))
    {
        pod.set_version("7");
        let annotations = &pod.pod["metadata"]["annotations"];
        assert_eq!(annotations["talos.dev/config-version"], "7");
        assert_eq!(pod.id, program.id);
        let container = &pod.pod["spec"]["containers"][0];
        assert_eq!(container["command"], json!(program.command));
        assert_eq!(container["image"], program.image);
        let requests = &container["resources"]["requests"];
        assert_eq!(*requests, json!(program.resources.requests));
    }
}

#[test]
fn secrets_are_in_no_pod_and_no_debug_output() {
    let document = document("");
    let (settings, own, all) = made(&document);
    let pods = format!("{:?}", static_pods(&settings, &own, &all));
    assert!(!pods.contains("PRIVATE KEY") && !pods.contains("c2VjcmV0Ym94"));
    assert!(!format!("{all:?}").contains("PRIVATE KEY"));
}

#[test]
fn missing_ca_or_image_of_the_control_plane_is_named() {
    let worker =
        "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  acceptedCAs: [{crt: ";
    let crt = Ca::generate(Algorithm::Ed25519, "talos", "", now()).unwrap();
    let crt = STANDARD.encode(&crt.pem().crt);
    let text =
        format!("{worker}{crt}}}]\ncluster:\n  controlPlane: {{endpoint: 'https://a:6443'}}\n");
    let document = Document::parse(text.as_bytes()).unwrap();
    assert_eq!(Settings::of(&document), Err(Missing("cluster.ca.crt")));
    assert_eq!(
        ControlPlane::of(&document),
        Err(Missing("cluster.apiServer.image"))
    );
    let error = Cas::of(&document).unwrap_err().to_string();
    assert!(
        error.starts_with("cluster.ca has no certificate and key"),
        "{error}"
    );
}

#[test]
fn accepted_cas_are_in_every_file_that_verifies_a_certificate() {
    let own_form = document("");
    let ca = own_form.kubernetes_ca().unwrap();
    let other = Ca::generate(Algorithm::EcdsaP256, "kubernetes", "", now()).unwrap();
    let other = other.pem().crt.trim();
    let old_form = patched(&format!(
        "cluster: {{acceptedCAs: [{{crt: {}}}]}}",
        STANDARD.encode(other)
    ));
    let whole = json!({
        "apiVersion": "v1alpha1",
        "kind": "KubeAPIServerCAConfig",
        "issuingCA": { "cert": ca.crt, "key": ca.key.expose() },
        "acceptedCAs": [other],
    });
    let text = own_form.source().to_owned();
    let patches = [
        "cluster: {ca: {$patch: delete}}".to_owned(),
        whole.to_string(),
    ];
    let patches = patches.map(|patch| corten_changes::Patch::parse(patch.as_bytes()).unwrap());
    let text = corten_changes::patch(text.as_bytes(), &patches).unwrap();
    for document in [old_form, Document::parse(text.as_bytes()).unwrap()] {
        let settings = Settings::of(&document).unwrap();
        let issuing = document.kubernetes_ca().unwrap().crt.trim().to_owned();
        assert_eq!(settings.cas, format!("{issuing}\n{other}\n"));
        let own = ControlPlane::of(&document).unwrap();
        let cas = Cas::of(&document).unwrap();
        let certificates = Certificates::issue(&cas, &[], now()).unwrap();
        let key = document.service_account_key();
        let all = files(&settings, &own, &cas, &certificates, key);
        let files = all
            .iter()
            .flat_map(|one| one.secrets.iter().map(move |file| (one, file)));
        let (mut bundles, mut kubeconfigs) = (0, 0);
        for (component, file) in files {
            let text = file.content.expose();
            match file.name {
                "ca.crt" => {
                    assert_eq!(text, settings.cas, "{}", component.name);
                    bundles += 1;
                }
                "kubeconfig" => {
                    assert!(text.contains(&STANDARD.encode(&settings.cas)));
                    // The component reads it at its start only, so a new CA restarts it.
                    assert!(file.is_read_once);
                    kubeconfigs += 1;
                }
                // Only the CA that signs.
                "issuing-ca.crt" => assert_eq!(text.trim(), issuing),
                _ => {}
            }
        }
        assert_eq!((bundles, kubeconfigs), (2, 2));
        let server = kubelet::bootstrap_kubeconfig(&settings, "https://a:6443").to_string();
        let operator = admin(&settings, &settings.endpoint, &certificates.scheduler).to_string();
        for kubeconfig in [server, operator] {
            assert!(kubeconfig.contains(&STANDARD.encode(&settings.cas)));
        }
    }
}

#[test]
fn a_kubeconfig_of_the_administrator_calls_the_endpoint() {
    let document = document("");
    let settings = Settings::of(&document).unwrap();
    let cas = Cas::of(&document).unwrap();
    let certificate =
        crate::certificates::admin_certificate(&cas.kubernetes, now(), Duration::from_secs(60));
    let config = admin(&settings, &settings.endpoint, &certificate.unwrap());
    assert_eq!(config["current-context"], "admin@c");
    assert_eq!(
        config["clusters"][0]["cluster"]["server"],
        "https://cp.example.org:6443"
    );
}

#[test]
fn addresses_are_counted_from_the_start_of_their_network() {
    for (network, number, expected) in [
        ("10.96.0.0/12", 10, Some("10.96.0.10")),
        ("10.96.3.4/12", 1, Some("10.96.0.1")),
        ("fd00::/108", 10, Some("fd00::a")),
        ("10.0.0.0/31", 1, Some("10.0.0.1")),
        ("10.0.0.0/31", 2, None),
        ("10.0.0.1/32", 1, None),
        ("::/0", 10, Some("::a")),
        ("0.0.0.0/0", 10, Some("0.0.0.10")),
    ] {
        let found = nth(&Cidr::parse(network).unwrap(), number);
        assert_eq!(
            found.map(|found| found.to_string()).as_deref(),
            expected,
            "{network}"
        );
    }
}

#[test]
fn settings_of_the_config_reach_pods_arguments_and_files() {
    let text = "
machine:
  controlPlane: {scheduler: {disabled: true}}
  kubelet:
    extraArgs: {v: 4, feature-gates: [A=true, B=false]}
    extraConfig: {maxPods: 50, systemReserved: {cpu: 100m}}
    registerWithFQDN: true
  pods: [{apiVersion: v1, kind: Pod, metadata: {name: own}}]
cluster:
  adminKubeconfig: {certLifetime: 1h}
  inlineManifests: [{name: mine, contents: 'kind: Namespace'}]
  apiServer:
    extraArgs: {feature-gates: X=true, oidc-issuer-url: 'https://id.example.org'}
    env: {A: b}
    extraVolumes: [{hostPath: /var/a, mountPath: /a, readonly: true}]
    resources: {limits: {memory: 1Gi}}
  etcd: {extraArgs: {quota-backend-bytes: 4294967296}}
  proxy: {extraArgs: {v: 2}}
";
    let document = patched(text);
    let (settings, own, all) = made(&document);
    let pods = static_pods(&settings, &own, &all);
    let ids: Vec<&str> = pods.iter().map(|pod| pod.id).collect();
    assert_eq!(ids, ["kube-apiserver", "kube-controller-manager"]);
    golden(
        "extra-kube-apiserver.json",
        &without_digests(pods[0].pod.clone()),
    );
    let node = Node::of(&document, &settings).unwrap();
    let kubelet = kubelet::config(&settings, &node, "", "");
    assert_eq!(kubelet["maxPods"], 50);
    // A resource that the config leaves out is not reserved.
    assert_eq!(kubelet["systemReserved"], json!({ "cpu": "100m" }));
    let args = kubelet::args(&facts(), &node, &[]);
    assert!(args.contains(&"--v=4".to_owned()), "{args:?}");
    assert!(
        args.contains(&"--feature-gates=A=true,B=false".to_owned()),
        "{args:?}"
    );
    assert!(kubelet::registers_full_name(&document));
    let addresses = etcd::Addresses::of(&document, &facts()).unwrap();
    let etcd = etcd::args(&facts(), &addresses, &etcd::Start::New, &own.etcd_args);
    assert!(
        etcd.contains(&"--quota-backend-bytes=4294967296".to_owned()),
        "{etcd:?}"
    );
    let bootstrap = bootstrap_settings(&settings, &own);
    assert!(bootstrap.proxy.unwrap().args.contains(&"--v=2".to_owned()));
    let extra = crate::pods::extra_pods(&document);
    assert_eq!(extra[0].0, "default/own");
    assert_eq!(document.inline_manifests()[0].0, "mine");
}

#[test]
fn flannel_calls_the_api_through_kubeprism_if_the_node_has_it() {
    let api = |enabled: bool| {
        let document = patched(&format!(
            "machine: {{features: {{kubePrism: {{enabled: {enabled}, port: 7446}}}}}}"
        ));
        let settings = Settings::of(&document).unwrap();
        let own = ControlPlane::of(&document).unwrap();
        let manifests = bootstrap_settings(&settings, &own);
        manifests.flannel.unwrap().api
    };
    assert_eq!(api(true), Some(([127, 0, 0, 1].into(), 7446)));
    assert_eq!(api(false), None);
}

/// The default config with a patch.
pub(super) fn patched(patch: &str) -> Document {
    let source = document("").source().to_owned();
    let patches = [corten_changes::Patch::parse(patch.as_bytes()).unwrap()];
    let text = corten_changes::patch(source.as_bytes(), &patches).unwrap();
    Document::parse(text.as_bytes()).unwrap()
}

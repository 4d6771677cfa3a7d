//! Compares what the controllers show for a config with a golden file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::Document;
use corten_extension::manifest::{Compatibility, Metadata};
use corten_pki::{Algorithm, Ca};
use corten_resources::controller::{Context, Controller, Failure, Output, Runtime};
use corten_resources::{Draft, Query, Spec, Store};
use corten_types::etcd::EtcdConfig;
use corten_types::extension::ExtensionStatus;
use corten_types::kubernetes::StaticPodServerStatus;
use corten_types::kubernetes_components::{
    ApiServerConfig, ControllerManagerConfig, SchedulerConfig,
};
use corten_types::kubernetes_kubelet::KubeletConfig;
use corten_types::kubernetes_manifests::{BootstrapManifestsConfig, ExtraManifestsConfig};
use corten_types::kubernetes_node::{
    NodeAnnotationSpec, NodeCordonedSpec, NodeIpConfig, NodeLabelSpec, NodeTaintSpec,
};
use corten_types::kubernetes_policies::{
    AdmissionControlConfig, AuditPolicyConfig, AuthenticationConfig, AuthorizationConfig,
    EtcdEncryptionConfig,
};
use corten_types::runtime::{MachineStatus, Readiness};
use corten_types::secrets_kubernetes::{EtcdRoot, KubeletSecrets, KubernetesRoot};
use tokio::sync::watch;
use tokio::time::timeout;

use super::cluster::ClusterSettings;
use super::node::{Cordons, NodeSettings};
use super::show_components;

/// Generous: a busy machine must not fail a test, and an idle one takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shows the components without their certificates and pods.
#[derive(Debug, Clone)]
struct Components {
    config: watch::Receiver<Option<Document>>,
}

impl Controller for Components {
    fn name(&self) -> &'static str {
        "test.ComponentsController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<ApiServerConfig>(),
            Output::exclusive::<ControllerManagerConfig>(),
            Output::exclusive::<SchedulerConfig>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = super::super::next(&mut self.config, context).await;
            show_components(context, config.as_ref())?;
        }
    }
}

struct Node {
    store: Store,
    config: watch::Sender<Option<Document>>,
}

/// A node whose controllers run until the end of the test.
fn node() -> Node {
    let store = Store::new();
    let config = watch::Sender::new(None);
    let mut runtime = Runtime::new(store.clone());
    let watched = || config.subscribe();
    let cluster = ClusterSettings { config: watched() };
    runtime.add(cluster).unwrap();
    runtime.add(NodeSettings { config: watched() }).unwrap();
    runtime.add(Components { config: watched() }).unwrap();
    runtime.add(Cordons).unwrap();
    let url = "http://127.0.0.1:1".to_owned();
    let draft = Draft::new(StaticPodServerStatus::ID, StaticPodServerStatus { url });
    store.register::<StaticPodServerStatus>().unwrap();
    store.register::<MachineStatus>().unwrap();
    store.register::<ExtensionStatus>().unwrap();
    store.create(draft, "test").unwrap();
    tokio::spawn(runtime.run(|notice| panic!("{notice}")));
    Node { store, config }
}

/// The config, and the certificate and key of its CA in base64.
pub(in super::super) fn config(image_tag: &str) -> (Document, [String; 2]) {
    let ca = Ca::generate(Algorithm::EcdsaP256, "c", "", SystemTime::now()).unwrap();
    let [crt, key] = [&ca.pem().crt, &ca.pem().key].map(|pem| STANDARD.encode(pem));
    let pair = format!("{{crt: {crt}, key: {key}}}");
    let text = format!(
        "version: v1alpha1
machine:
  type: controlplane
  token: abcdef.0123456789abcdef
  ca: {pair}
  kubelet:
    image: 'example.org/kubelet:v1.37.2'
    extraArgs: {{v: '4'}}
    extraMounts: [{{destination: /var/a, source: /var/a, type: bind, options: [bind, rw]}}]
    nodeIP: {{validSubnets: [10.0.0.0/8, '!10.1.0.0/16']}}
  nodeLabels: {{rack: a}}
  nodeAnnotations: {{note: b}}
  nodeTaints: {{dedicated: 'x:NoSchedule'}}
cluster:
  clusterName: c
  controlPlane: {{endpoint: 'https://cp.example.org:6443'}}
  network: {{dnsDomain: cluster.local, podSubnets: [10.244.0.0/16], serviceSubnets: [10.96.0.0/12]}}
  token: abcdef.0123456789abcdef
  secretboxEncryptionSecret: c2VjcmV0Ym94
  ca: {pair}
  aggregatorCA: {pair}
  serviceAccount: {{key: {key}}}
  apiServer:
    image: 'example.org/kube-apiserver:{image_tag}'
    certSANs: [api.example.org]
    extraArgs: {{v: '2'}}
    env: {{A: b}}
    extraVolumes: [{{hostPath: /var/b, mountPath: /b, readonly: true}}]
    resources: {{limits: {{memory: 2Gi}}}}
    admissionControl: [{{name: PodSecurity, configuration: {{kind: PodSecurityConfiguration}}}}]
  controllerManager: {{image: 'example.org/kube-controller-manager:v1.37.2'}}
  scheduler: {{image: 'example.org/kube-scheduler:v1.37.2', config: {{parallelism: 8}}}}
  proxy: {{image: 'example.org/kube-proxy:v1.37.2'}}
  etcd: {{ca: {pair}, image: 'example.org/etcd:v3.7.3', advertisedSubnets: [10.0.0.0/8], extraArgs: {{quota-backend-bytes: '1'}}}}
  extraManifests: ['https://example.org/a.yaml']
  extraManifestHeaders: {{Token: t}}
  inlineManifests: [{{name: b, contents: 'apiVersion: v1'}}]
"
    );
    (Document::parse(text.as_bytes()).unwrap(), [crt, key])
}

impl Node {
    /// Waits until a resource exists, and returns its version.
    async fn version<S: Spec>(&self, id: &str, is: impl Fn(&S) -> bool) -> String {
        let wait = async {
            loop {
                let found = self.store.get_as::<S>(id);
                if let Some(found) = found.filter(|found| is(found)) {
                    return found.metadata().version.to_string();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap()
    }

    async fn gone<S: Spec>(&self, id: &str) {
        let wait = async {
            while self.store.get_as::<S>(id).is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap();
    }

    fn print<S: Spec>(&self, text: &mut String) {
        let definition = S::DEFINITION;
        let namespace = definition.default_namespace;
        let found = self
            .store
            .list(namespace, definition.type_name, &Query::default());
        for resource in found.unwrap() {
            let yaml = resource.spec().to_yaml().unwrap();
            let id = &resource.metadata.pointer.id;
            write!(text, "# {} {id}\n{yaml}", definition.type_name).unwrap();
        }
    }
}

fn any<S>(_: &S) -> bool {
    true
}

/// `UPDATE=1 cargo test -p corten-controllers settings` rewrites the file.
#[tokio::test]
async fn settings_of_a_control_plane_node_match_the_golden_file() {
    let node = node();
    let (config, [crt, key]) = config("v1.37.2");
    node.config.send_replace(Some(config));
    node.version::<EtcdRoot>(EtcdRoot::ID, any).await;
    node.version::<NodeTaintSpec>("dedicated", any).await;
    let last = format!("final-{}", SchedulerConfig::ID);
    node.version::<SchedulerConfig>(&last, any).await;
    let mut text = String::new();
    node.print::<ApiServerConfig>(&mut text);
    node.print::<ControllerManagerConfig>(&mut text);
    node.print::<SchedulerConfig>(&mut text);
    node.print::<AdmissionControlConfig>(&mut text);
    node.print::<AuditPolicyConfig>(&mut text);
    node.print::<AuthenticationConfig>(&mut text);
    node.print::<AuthorizationConfig>(&mut text);
    node.print::<EtcdEncryptionConfig>(&mut text);
    node.print::<BootstrapManifestsConfig>(&mut text);
    node.print::<ExtraManifestsConfig>(&mut text);
    node.print::<EtcdConfig>(&mut text);
    node.print::<KubernetesRoot>(&mut text);
    node.print::<EtcdRoot>(&mut text);
    node.print::<KubeletConfig>(&mut text);
    node.print::<KubeletSecrets>(&mut text);
    node.print::<NodeIpConfig>(&mut text);
    node.print::<NodeLabelSpec>(&mut text);
    node.print::<NodeAnnotationSpec>(&mut text);
    node.print::<NodeTaintSpec>(&mut text);
    let text = text.replace(&crt, "CRT").replace(&key, "KEY");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kubernetes/settings/golden.yaml");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let agreed = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, agreed, "UPDATE=1 writes {}", path.display());
}

#[tokio::test]
async fn version_of_a_components_settings_changes_with_its_image_only() {
    let node = node();
    let (first, _) = config("v1.37.2");
    let second = first.clone();
    node.config.send_replace(Some(first));
    let has = |tag: &'static str| move |own: &ApiServerConfig| own.image.ends_with(tag);
    let api = ApiServerConfig::ID;
    assert_eq!(node.version(api, has("v1.37.2")).await, "1");
    let (other, _) = config("v1.37.3");
    node.config.send_replace(Some(other));
    assert_eq!(node.version(api, has("v1.37.3")).await, "2");
    let scheduler = SchedulerConfig::ID;
    assert_eq!(node.version::<SchedulerConfig>(scheduler, any).await, "1");
    node.config.send_replace(Some(second));
    assert_eq!(node.version(api, has("v1.37.2")).await, "3");
}

#[tokio::test]
async fn worker_shows_no_settings_of_the_control_plane_and_no_keys() {
    let node = node();
    let (config, _) = config("v1.37.2");
    node.config.send_replace(Some(config));
    node.version::<KubernetesRoot>(KubernetesRoot::ID, any)
        .await;
    let ca = Ca::generate(Algorithm::EcdsaP256, "c", "", SystemTime::now()).unwrap();
    let crt = STANDARD.encode(&ca.pem().crt);
    let worker = format!(
        "version: v1alpha1
machine:
  type: worker
  token: abcdef.0123456789abcdef
  ca: {{crt: {crt}, key: ''}}
  kubelet: {{image: 'example.org/kubelet:v1.37.2'}}
cluster:
  controlPlane: {{endpoint: 'https://cp.example.org:6443'}}
  token: abcdef.0123456789abcdef
  ca: {{crt: {crt}, key: ''}}
"
    );
    let worker = Document::parse(worker.as_bytes()).unwrap();
    node.config.send_replace(Some(worker));
    node.gone::<KubernetesRoot>(KubernetesRoot::ID).await;
    node.gone::<EtcdRoot>(EtcdRoot::ID).await;
    node.gone::<ApiServerConfig>(ApiServerConfig::ID).await;
    node.version::<KubeletConfig>("kubelet", any).await;
    node.version::<KubeletSecrets>(KubeletSecrets::ID, any)
        .await;
}

#[tokio::test]
async fn node_is_labelled_or_annotated_with_its_system_extensions() {
    let node = node();
    let (config, _) = config("v1.37.2");
    for (id, name, version) in [("0", "a", "1.2.3"), ("1", "b", "1.2 3"), ("2", "+c", "1")] {
        let extension = ExtensionStatus {
            image: format!("{name}.sqsh"),
            metadata: Metadata {
                name: name.to_owned(),
                version: version.to_owned(),
                author: String::new(),
                description: String::new(),
                compatibility: Compatibility::default(),
                extra_info: String::new(),
            },
        };
        node.store.put(Draft::new(id, extension), "test").unwrap();
    }
    node.config.send_replace(Some(config));
    let label = |own: &NodeLabelSpec| own.value == "1.2.3";
    node.version("extensions.talos.dev/a", label).await;
    let annotation = |own: &NodeAnnotationSpec| own.value == "1.2 3";
    node.version("extensions.talos.dev/b", annotation).await;
    let wrong = node
        .store
        .get_as::<NodeLabelSpec>("extensions.talos.dev/+c");
    assert!(wrong.is_none());
}

#[tokio::test]
async fn node_that_shuts_down_is_marked_as_cordoned_and_one_that_reboots_is_not() {
    let node = node();
    let status = |stage| MachineStatus {
        stage,
        status: Readiness {
            ready: false,
            unmet_conditions: Vec::new(),
        },
    };
    let put = |stage| {
        let draft = Draft::new(MachineStatus::ID, status(stage));
        node.store.put(draft, "test").unwrap()
    };
    put("shutting down");
    let id = NodeCordonedSpec::ID;
    node.version::<NodeCordonedSpec>(id, any).await;
    put("rebooting");
    node.gone::<NodeCordonedSpec>(id).await;
}

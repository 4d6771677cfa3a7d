//! Shows the running kubelet, its kubeconfig and, on a control plane node, its static pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use corten_cluster::{Access, static_pods};
use corten_config::Document;
use corten_credentials::access::KUBECONFIG;
use corten_kubernetes::Settings;
use corten_kubernetes::kubelet::CERTIFICATES;
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::KUBELET_FILES;
use corten_supervisor::kubernetes::KUBELET;
use corten_types::kubernetes::{Nodename, StaticPod};
use corten_types::kubernetes_kubelet::{ID, KubeletKubeconfig, KubeletSpec, KubeletStatus};
use corten_types::kubernetes_node::StaticPodStatus;
use corten_types::runtime::Service;
use corten_types::secrets_kubernetes::KubernetesDynamicCerts;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::super::pod_status::{id, is_ready};
use super::super::settings::show;
use super::super::{Complaints, extra_pods};

/// Poll interval: the kubelet reports no change of a static pod (the reference's value).
const PAUSE: Duration = Duration::from_secs(15);
/// Poll interval while a static pod is not ready: clients wait for it.
const SOON: Duration = Duration::from_secs(2);
/// Time that the kubelet and the API server, which it asks about its callers, get to start before an obstacle is logged.
const STARTS: Duration = Duration::from_secs(60);
/// Time that the kubelet gets for a new pod: it asks for its static pods every 20 s.
const ACCEPTED: Duration = Duration::from_secs(45);
/// Port of the kubelet's API.
const PORT: u16 = 10250;
/// Error if the kubelet does not accept a pod.
const REFUSED: &str = "does not run these static pods of the config, whose reason is in its log: correct machine.pods or \
                       the KubeStaticPodConfig";
/// Certificate that a kubelet signs itself, with its CA. With `serverTLSBootstrap`, the cluster's CA signs another.
const OWN_CERTIFICATE: &str = "kubelet.crt";

#[derive(Debug, Clone)]
pub(super) struct KubeletState {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for KubeletState {
    fn name(&self) -> &'static str {
        "k8s.KubeletStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Service>(Dependency::Weak).with_id(KUBELET),
            Input::of::<KubeletSpec>(Dependency::Weak).with_id(ID),
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
            Input::of::<StaticPod>(Dependency::Weak),
            Input::of::<KubernetesDynamicCerts>(Dependency::Weak)
                .with_id(KubernetesDynamicCerts::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<KubeletStatus>(),
            Output::exclusive::<KubeletKubeconfig>(),
            Output::exclusive::<StaticPodStatus>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut complaints = Complaints::default();
        let mut silence = Complaints::of_lasting(STARTS);
        let mut missing = BTreeMap::new();
        let mut pause = PAUSE;
        loop {
            let service = context.get::<Service>(KUBELET)?;
            let is_running = service.as_ref().is_some_and(|service| service.running);
            tokio::select! {
                () = context.event() => {}
                () = sleep(pause), if is_running => {}
            }
            let service = context.get::<Service>(KUBELET)?;
            let is_running = service.as_ref().is_some_and(|service| service.running);
            let spec = context.get::<KubeletSpec>(ID)?.filter(|_| is_running);
            let status = spec.map(|spec| KubeletStatus {
                image: spec.image.clone(),
            });
            let pods = match is_running {
                true => self.pods(context).await?,
                false => None,
            };
            context.start_outputs();
            show(context, ID, status)?;
            show(context, ID, kubeconfig())?;
            pause = match &pods {
                Some(Ok(pods)) if !pods.iter().all(|(_, status)| is_ready(status)) => SOON,
                _ => PAUSE,
            };
            match pods {
                // A kubelet that starts again gets the time again.
                None => {
                    missing.clear();
                    silence.none();
                }
                // A failed request proves nothing about the pods of a running kubelet.
                Some(Err(why)) => {
                    if service.is_some_and(|service| service.healthy) {
                        silence.say("status of static pods", &why);
                    }
                    continue;
                }
                Some(Ok(pods)) => {
                    silence.none();
                    let absent = absent(context, &pods)?;
                    missing.retain(|id, _| absent.contains(id));
                    for id in absent {
                        missing.entry(id).or_insert_with(Instant::now);
                    }
                    let refused = missing
                        .iter()
                        .filter(|(_, since)| since.elapsed() > ACCEPTED);
                    let refused: Vec<&str> = refused.map(|(id, _)| id.as_str()).collect();
                    match refused.as_slice() {
                        [] => complaints.none(),
                        refused => {
                            complaints.say(KUBELET, &format!("{REFUSED}: {}", refused.join(", ")));
                        }
                    }
                    for (id, status) in pods {
                        context.put(Draft::new(&id, StaticPodStatus(status)))?;
                    }
                }
            }
            context.remove_others::<StaticPodStatus>()?;
        }
    }
}

/// Ids of the static pods of the config that the kubelet does not have.
fn absent(context: &Context, pods: &[(String, Value)]) -> Result<BTreeSet<String>, Failure> {
    let Some(node) = context.get::<Nodename>(Nodename::ID)? else {
        return Ok(BTreeSet::new());
    };
    let wanted = context.list::<StaticPod>()?;
    let wanted = wanted
        .iter()
        .filter(|pod| pod.metadata().owner == extra_pods::NAME);
    let is_absent = |id: &String| !pods.iter().any(|(other, _)| other == id);
    let wanted = wanted.filter_map(|pod| id(&pod.0, &node.nodename));
    Ok(wanted.filter(is_absent).collect())
}

/// Static pods by id, each with its status; or why the kubelet gives none.
type Pods = Result<Vec<(String, Value)>, String>;

impl KubeletState {
    /// The static pods of the running kubelet; `None` where the node may not ask.
    async fn pods(&self, context: &Context) -> Result<Option<Pods>, Failure> {
        let certificates = context.get::<KubernetesDynamicCerts>(KubernetesDynamicCerts::ID)?;
        let nodename = context.get::<Nodename>(Nodename::ID)?;
        let (Some(certificates), Some(nodename)) = (certificates, nodename) else {
            return Ok(None);
        };
        let config = self.config.borrow().clone();
        let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
        let Some(settings) = settings else {
            return Ok(None);
        };
        let own = Path::new(CERTIFICATES).join(OWN_CERTIFICATE);
        let own = fs::read_to_string(own).unwrap_or_default();
        let client = &certificates.api_server_kubelet_client;
        let access = Access {
            server: format!("https://{}:{PORT}", Ipv4Addr::LOCALHOST),
            server_name: None,
            ca: format!("{}\n{own}", settings.cas),
            crt: client.crt.clone(),
            key: client.key.expose().to_owned(),
        };
        let pods = static_pods(&access, &nodename.nodename).await;
        Ok(Some(pods.map_err(|error| describe(&error))))
    }
}

/// The kubelet's kubeconfig, if it has one.
fn kubeconfig() -> Option<KubeletKubeconfig> {
    let text = fs::read(Path::new(KUBELET_FILES).join(KUBECONFIG)).ok()?;
    Some(KubeletKubeconfig {
        hash: hex::encode(Sha256::digest(text)),
    })
}

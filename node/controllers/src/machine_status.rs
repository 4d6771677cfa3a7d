//! Shows whether the node performs its role, and which conditions it does not meet.

use std::collections::BTreeSet;
use std::fmt::Display;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::view::{ServiceState, ServiceView};
use corten_supervisor::{OPTIONAL, extension};
use corten_types::config::MachineType;
use corten_types::kubernetes::{Nodename, StaticPod};
use corten_types::kubernetes_components::{
    ApiServerConfig, ControllerManagerConfig, SchedulerConfig,
};
use corten_types::kubernetes_kubelet::{self, KubeletSpec};
use corten_types::kubernetes_node::{NodeStatus, StaticPodStatus};
use corten_types::network::NodeAddress;
use corten_types::runtime::{MachineStatus, Readiness, UnmetCondition};
use corten_types::stage::Stage;
use tokio::sync::watch;

use super::kubernetes::pod_status::{id, is_ready};

#[derive(Debug, Clone)]
pub(super) struct MachineStatuses {
    pub(super) stage: watch::Receiver<Stage>,
    /// Reason why the node is locked, if it is.
    pub(super) lock: watch::Receiver<Option<String>>,
    pub(super) views: watch::Receiver<Vec<ServiceView>>,
}

impl Controller for MachineStatuses {
    fn name(&self) -> &'static str {
        "runtime.MachineStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT),
            Input::of::<MachineType>(Dependency::Weak).with_id(MachineType::ID),
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
            Input::of::<KubeletSpec>(Dependency::Weak).with_id(kubernetes_kubelet::ID),
            Input::of::<NodeStatus>(Dependency::Weak),
            Input::of::<ControllerManagerConfig>(Dependency::Weak)
                .with_id(ControllerManagerConfig::ID),
            Input::of::<SchedulerConfig>(Dependency::Weak).with_id(SchedulerConfig::ID),
            Input::of::<StaticPod>(Dependency::Weak),
            Input::of::<StaticPodStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<MachineStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = self.stage.changed() => if changed.is_err() {
                    return Ok(());
                },
                changed = self.lock.changed() => if changed.is_err() {
                    return Ok(());
                },
                changed = self.views.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let stage = *self.stage.borrow_and_update();
            let lock = self.lock.borrow_and_update().clone();
            let off = services(&self.views.borrow_and_update());
            let mut lacking: Vec<UnmetCondition> = lock.into_iter().map(locked).collect();
            if matches!(stage, Stage::Maintenance | Stage::Running) {
                let current = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
                let reachable = current.is_some_and(|current| !current.addresses.is_empty());
                lacking.extend(off);
                lacking.extend(network(reachable));
            }
            if stage == Stage::Running {
                lacking.extend(kubernetes(context)?);
            }
            let status = status(stage, lacking);
            context.put(Draft::new(MachineStatus::ID, status))?;
        }
    }
}

fn status(stage: Stage, unmet_conditions: Vec<UnmetCondition>) -> MachineStatus {
    let (stage, can_be_ready) = match stage {
        // The API has no stage for a locked node; such a node does not complete its boot.
        Stage::Booting | Stage::Locked => ("booting", false),
        Stage::Maintenance => ("maintenance", true),
        Stage::Running => ("running", true),
        Stage::Rebooting => ("rebooting", false),
        Stage::ShuttingDown => ("shutting down", false),
        Stage::Resetting => ("resetting", false),
    };
    let ready = can_be_ready && unmet_conditions.is_empty();
    MachineStatus {
        stage,
        status: Readiness {
            ready,
            unmet_conditions,
        },
    }
}

fn services(views: &[ServiceView]) -> Option<UnmetCondition> {
    let reasons: Vec<String> = views
        .iter()
        .filter(|view| !is_off(view))
        .filter_map(|view| match (view.state, view.healthy) {
            (ServiceState::Running, Some(true)) => None,
            (ServiceState::Running, _) => Some(format!("{} is not healthy", view.id)),
            _ => Some(format!("{} is not running", view.id)),
        })
        .collect();
    (!reasons.is_empty()).then(|| unmet("services", reasons.join(", ")))
}

/// Whether the service is intentionally off, so that it is not a failure.
fn is_off(view: &ServiceView) -> bool {
    let is_optional = OPTIONAL.contains(&view.id.as_str());
    match view.state {
        ServiceState::Initialized => is_optional,
        ServiceState::Finished => is_optional || extension::is_one(&view.id),
        _ => false,
    }
}

fn locked(reason: String) -> UnmetCondition {
    unmet("owner", reason)
}

fn network(reachable: bool) -> Option<UnmetCondition> {
    (!reachable).then(|| unmet("network", "no address yet".to_owned()))
}

/// Unmet conditions of a node of a cluster: static pods, on a control plane node, and the readiness that Kubernetes reports.
fn kubernetes(context: &Context) -> Result<Vec<UnmetCondition>, Failure> {
    let node = context.get::<Nodename>(Nodename::ID)?;
    let kubelet = context.get::<KubeletSpec>(kubernetes_kubelet::ID)?;
    let (Some(node), Some(kubelet)) = (node, kubelet) else {
        return Ok(Vec::new());
    };
    // Empty if an argument of the kubelet gives the node another name, under which nothing is found.
    let name = &kubelet.expected_nodename;
    if name.is_empty() {
        return Ok(Vec::new());
    }
    let mut lacking = Vec::new();
    let kind = context.get::<MachineType>(MachineType::ID)?;
    // A worker may not ask its kubelet for its pods.
    if kind.is_some_and(|kind| kind.name != "worker") {
        let pods = context.list::<StaticPod>()?;
        let statuses = context.list::<StaticPodStatus>()?;
        let runs = |id: &String| {
            let status = statuses.iter().find(|status| status.id() == id);
            status.is_some_and(|status| is_ready(&status.0))
        };
        let ids = pods.iter().filter_map(|pod| id(&pod.0, name));
        // The node makes the pod of the API server after etcd has started, and the others after the API server.
        let manager = context.get::<ControllerManagerConfig>(ControllerManagerConfig::ID)?;
        let scheduler = context.get::<SchedulerConfig>(SchedulerConfig::ID)?;
        let components = [
            (ApiServerConfig::ID, true),
            (
                ControllerManagerConfig::ID,
                manager.is_some_and(|manager| manager.enabled),
            ),
            (
                SchedulerConfig::ID,
                scheduler.is_some_and(|scheduler| scheduler.enabled),
            ),
        ];
        let components = components
            .iter()
            .filter(|(_, enabled)| *enabled && !node.skip_node_registration);
        let components = components.map(|(id, _)| format!("kube-system/{id}-{name}"));
        let ids: BTreeSet<String> = ids.chain(components).collect();
        let ids = ids.into_iter().filter(|id| !runs(id));
        let reasons: Vec<String> = ids.map(not_ready).collect();
        lacking.extend((!reasons.is_empty()).then(|| unmet("staticPods", reasons.join(", "))));
    }
    if !node.skip_node_registration {
        let status = context.get::<NodeStatus>(name)?;
        let is_ready = status.is_some_and(|status| status.node_ready);
        let reason = || unmet("nodeReady", not_ready(format_args!("node {name}")));
        lacking.extend((!is_ready).then(reason));
    }
    Ok(lacking)
}

fn unmet(name: &str, reason: String) -> UnmetCondition {
    UnmetCondition {
        name: name.to_owned(),
        reason,
    }
}

fn not_ready(subject: impl Display) -> String {
    format!("{subject} is not ready")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;
    use serde_json::{Value, json};

    use super::*;

    fn view(id: &str, state: ServiceState, healthy: bool) -> ServiceView {
        ServiceView {
            id: id.to_owned(),
            state,
            pid: None,
            healthy: Some(healthy),
            health_message: String::new(),
            health_changed: SystemTime::now(),
            events: Vec::new(),
        }
    }

    async fn until(store: &Store, expected: &str) {
        sample::until::<MachineStatus>(store, MachineStatus::ID, |status| {
            status.is_some_and(|status| {
                let unmet = status.status.unmet_conditions.iter();
                let reasons: Vec<_> = unmet.map(|unmet| unmet.reason.as_str()).collect();
                let ready = status.status.ready;
                format!("{} {ready} {}", status.stage, reasons.join("; ")) == expected
            })
        })
        .await;
    }

    /// A machine, and what its controller watches.
    struct Observed {
        store: Store,
        stage: watch::Sender<Stage>,
        lock: watch::Sender<Option<String>>,
        views: watch::Sender<Vec<ServiceView>>,
    }

    impl Observed {
        fn at(stage: Stage) -> Observed {
            let observed = Observed {
                store: Store::new(),
                stage: watch::Sender::new(stage),
                lock: watch::Sender::default(),
                views: watch::Sender::default(),
            };
            let mut runtime = Runtime::new(observed.store.clone());
            let controller = MachineStatuses {
                stage: observed.stage.subscribe(),
                lock: observed.lock.subscribe(),
                views: observed.views.subscribe(),
            };
            runtime.add(controller).unwrap();
            tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            observed
        }
    }

    #[tokio::test]
    async fn node_is_ready_when_no_condition_is_unmet() {
        let Observed {
            store,
            stage,
            lock,
            views,
        } = Observed::at(Stage::Booting);
        until(&store, "booting false ").await;
        let running = |id, healthy| view(id, ServiceState::Running, healthy);
        let stopped = view("trustd", ServiceState::Stopping, false);
        views.send_replace(vec![
            running("udevd", true),
            running("apid", false),
            stopped,
        ]);
        stage.send_replace(Stage::Running);
        until(
            &store,
            "running false apid is not healthy, trustd is not running; no address yet",
        )
        .await;
        views.send_replace(vec![running("udevd", true), running("apid", true)]);
        let addresses = vec!["10.0.2.15/24".to_owned()];
        let sort_algorithm = "v1";
        let current = NodeAddress {
            addresses,
            sort_algorithm,
        };
        store
            .put(Draft::new(NodeAddress::CURRENT, current), "")
            .unwrap();
        until(&store, "running true ").await;
        lock.send_replace(Some("STATE is damaged".to_owned()));
        stage.send_replace(Stage::Locked);
        until(&store, "booting false STATE is damaged").await;
        lock.send_replace(None);
        stage.send_replace(Stage::Rebooting);
        until(&store, "rebooting false ").await;
    }

    fn put(store: &Store, id: &str, spec: impl corten_resources::Spec) {
        store.put(Draft::new(id, spec), "").unwrap();
    }

    fn kubelet(nodename: &str) -> KubeletSpec {
        KubeletSpec {
            image: "kubelet".to_owned(),
            args: Vec::new(),
            extra_mounts: Vec::new(),
            expected_nodename: nodename.to_owned(),
            config: Value::Null,
            credential_provider_config: Value::Null,
        }
    }

    #[tokio::test]
    async fn node_of_a_cluster_is_ready_when_its_static_pods_and_kubernetes_say_so() {
        let observed = Observed::at(Stage::Running);
        let store = &observed.store;
        let current = NodeAddress {
            addresses: vec!["10.0.2.15/24".to_owned()],
            sort_algorithm: "v1",
        };
        put(store, NodeAddress::CURRENT, current);
        let name = "controlplane";
        put(store, MachineType::ID, MachineType { name });
        let node = Nodename {
            nodename: "n1".to_owned(),
            hostname_version: "1".to_owned(),
            skip_node_registration: false,
        };
        put(store, Nodename::ID, node);
        // Without a kubelet, the node is in no cluster.
        until(store, "running true ").await;

        put(store, kubernetes_kubelet::ID, kubelet("n1"));
        let pod = "kube-system/kube-apiserver-n1";
        let lacking = format!("running false {pod} is not ready; node n1 is not ready");
        until(store, &lacking).await;
        let web = json!({"metadata": {"name": "web"}});
        put(store, "default/web", StaticPod(web));
        let status = |ready| json!({"conditions": [{"type": "Ready", "status": ready}]});
        put(store, pod, StaticPodStatus(status("False")));
        let node = NodeStatus {
            nodename: "n1".to_owned(),
            node_ready: true,
            ..NodeStatus::default()
        };
        put(store, "n1", node);
        let lacking = format!("running false default/web-n1 is not ready, {pod} is not ready");
        until(store, &lacking).await;
        put(store, pod, StaticPodStatus(status("True")));
        until(store, "running false default/web-n1 is not ready").await;
        put(store, "default/web-n1", StaticPodStatus(status("True")));
        until(store, "running true ").await;
        put(store, pod, StaticPodStatus(status("False")));
        until(store, &format!("running false {pod} is not ready")).await;
        put(store, pod, StaticPodStatus(status("True")));
        // The pods that follow the API server count before the node has made them.
        let manager = ControllerManagerConfig {
            enabled: true,
            ..ControllerManagerConfig::default()
        };
        put(store, ControllerManagerConfig::ID, manager);
        put(store, SchedulerConfig::ID, SchedulerConfig::default());
        let later = "kube-system/kube-controller-manager-n1";
        until(store, &format!("running false {later} is not ready")).await;
        put(store, later, StaticPodStatus(status("True")));
        until(store, "running true ").await;
        put(store, later, StaticPodStatus(status("False")));
        until(store, &format!("running false {later} is not ready")).await;
        // A node with a name of its own in the cluster cannot be found there.
        put(store, kubernetes_kubelet::ID, kubelet(""));
        until(store, "running true ").await;
    }

    #[test]
    fn optional_service_counts_as_missing_only_when_it_is_requested() {
        assert!(is_off(&view("registryd", ServiceState::Initialized, false)));
        assert!(is_off(&view("registryd", ServiceState::Finished, false)));
        assert!(!is_off(&view("registryd", ServiceState::Waiting, false)));
        assert!(!is_off(&view(
            "containerd",
            ServiceState::Initialized,
            false
        )));
        assert!(is_off(&view("ext-once", ServiceState::Finished, false)));
        assert!(!is_off(&view("ext-broken", ServiceState::Failed, false)));
    }
}

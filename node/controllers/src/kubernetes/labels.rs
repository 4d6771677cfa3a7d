//! Sets labels and annotations of the node; on a control plane node also its taints, and the labels that a kubelet may not
//! set on its own node. Removes the cordon of the last shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_cluster::{Metadata, Taint};
use corten_config::Document;
use corten_credentials::access::of_node;
use corten_kubernetes::kubelet::may_set;
use corten_kubernetes::{Node, Settings};
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::kubernetes::Nodename;
use tokio::sync::watch;

use super::{next, next_within};

/// Retry interval: the kubelet may register the node late.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Labels<W> {
    pub(super) config: watch::Receiver<Option<Document>>,
    pub(super) world: W,
}

/// The cluster whose node is labelled.
pub(super) trait World: Clone + Send + Sync + 'static {
    /// Labels the node of this name as the config says.
    fn label(
        &self,
        config: &Document,
        nodename: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// The real cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Api;

impl<W: World> Controller for Labels<W> {
    fn name(&self) -> &'static str {
        "k8s.NodeApplyController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut is_pending = false;
        loop {
            // The name of the node may change while it is not registered yet.
            let config = match is_pending {
                true => next_within(PAUSE, &mut self.config, context).await,
                false => next(&mut self.config, context).await,
            };
            is_pending = false;
            let nodename = context.get::<Nodename>(Nodename::ID)?;
            let (Some(config), Some(nodename)) = (config, nodename) else {
                continue;
            };
            if Settings::of(&config).is_err() || nodename.skip_node_registration {
                continue;
            }
            // A node that is not registered yet is no reason to warn; the kubelet's log has the cause.
            let labelled = self.world.label(&config, &nodename.nodename).await;
            is_pending = labelled.is_err();
        }
    }
}

impl World for Api {
    async fn label(&self, config: &Document, nodename: &str) -> Result<(), String> {
        let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
        let node = Node::of(config, &settings).map_err(|missing| missing.to_string())?;
        let cluster = of_node(config, &settings)?;
        let applied = cluster.apply_node_metadata(nodename, &wanted(node)).await;
        applied.map_err(|error| describe(&error))?;
        // The previous shutdown has cordoned the node.
        let uncordoned = cluster.uncordon(nodename).await;
        uncordoned.map_err(|error| describe(&error))
    }
}

/// What the node sets itself. Kubernetes lets a worker change no taint of its own, and not every label.
fn wanted(node: Node) -> Metadata {
    let mut labels: BTreeMap<String, String> = node.all_labels().into_iter().collect();
    let mut taints: BTreeMap<String, Taint> = node.taints.into_iter().map(taint).collect();
    if !node.is_control_plane {
        labels.retain(|name, _| may_set(name));
        taints.clear();
    }
    Metadata {
        labels,
        annotations: node.annotations.into_iter().collect(),
        taints,
    }
}

fn taint(taint: corten_kubernetes::Taint) -> (String, Taint) {
    let corten_kubernetes::Taint { key, value, effect } = taint;
    (key, Taint { value, effect })
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Draft, Store};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    /// Timeout for work that takes milliseconds on an idle machine, far below a test's end.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A cluster without this node. It reports the name of each attempt.
    #[derive(Debug, Clone)]
    struct Unregistered(mpsc::UnboundedSender<String>);

    impl World for Unregistered {
        async fn label(&self, _config: &Document, nodename: &str) -> Result<(), String> {
            self.0.send(nodename.to_owned()).unwrap();
            Err("the node is not registered".to_owned())
        }
    }

    #[test]
    fn a_worker_sets_the_labels_that_kubernetes_lets_it_set() {
        let names = ["example.org/a", "example.kubernetes.io/b"];
        let pair = |name: &str| (name.to_owned(), String::new());
        let node = |is_control_plane: bool| Node {
            is_control_plane,
            labels: names.map(pair).into(),
            annotations: vec![pair("c")],
            taints: vec![corten_kubernetes::Taint {
                key: "d".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }],
            ..Node::default()
        };
        let seen = |is_control_plane: bool| {
            let wanted = wanted(node(is_control_plane));
            let labels: Vec<String> = wanted.labels.into_keys().collect();
            (
                labels.join(" "),
                wanted.annotations.len(),
                wanted.taints.len(),
            )
        };
        assert_eq!(seen(false), ("example.org/a".to_owned(), 1, 0));
        let all = "example.kubernetes.io/b example.org/a node-role.kubernetes.io/control-plane";
        assert_eq!(seen(true), (all.to_owned(), 1, 1));
    }

    #[tokio::test]
    async fn node_that_is_not_registered_yet_is_labelled_under_its_later_name() {
        let (sender, mut attempts) = mpsc::unbounded_channel();
        let ca = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
        let config = sample::config("", &format!("  ca: {{crt: {ca}}}\n"));
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let labels = Labels {
            config: watch::Sender::new(Some(config)).subscribe(),
            world: Unregistered(sender),
        };
        runtime.add(labels).unwrap();
        let name = |name: &str| {
            let name = Nodename {
                nodename: name.to_owned(),
                hostname_version: "1".to_owned(),
                skip_node_registration: false,
            };
            store.put(Draft::new(Nodename::ID, name), "").unwrap();
        };
        name("early");
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let mut is_tried = async |name: &str| {
            let tried = async { while attempts.recv().await.unwrap() != name {} };
            timeout(PATIENCE, tried).await.unwrap();
        };
        is_tried("early").await;
        name("late");
        is_tried("late").await;
    }
}

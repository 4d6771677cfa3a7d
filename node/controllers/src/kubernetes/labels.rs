//! Sets labels, annotations and taints of the node's object in the cluster: on a control plane node as an administrator,
//! on a worker as its kubelet, as far as that may. Removes the cordon of the last shutdown.

use std::time::Duration;

use corten_base::console;
use corten_cluster::{Metadata, Taint};
use corten_config::Document;
use corten_credentials::access::of_node;
use corten_kubernetes::kubelet::may_label;
use corten_kubernetes::{Node, Settings};
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::extension::ExtensionStatus;
use corten_types::kubernetes::Nodename;
use corten_types::kubernetes_kubelet::{ID, KubeletKubeconfig};
use corten_types::kubernetes_node::NodeStatus;
use tokio::sync::watch;

use super::settings::of_extensions;
use super::{Complaints, next, next_within};

/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Labels<W> {
    pub(super) config: watch::Receiver<Option<Document>>,
    pub(super) world: W,
}

/// The cluster whose node is labelled.
pub(super) trait World: Clone + Send + Sync + 'static {
    /// Gives the node of this name the metadata. Returns the keys that the node may not set.
    fn label(
        &self,
        config: &Document,
        nodename: &str,
        wanted: &Metadata,
    ) -> impl Future<Output = Result<Vec<String>, String>> + Send;
    /// Undoes the cordon of the node's last shutdown.
    fn uncordon(
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
        vec![
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
            // A node that registers again, or that another client changes, gets its metadata back.
            Input::of::<NodeStatus>(Dependency::Weak),
            Input::of::<ExtensionStatus>(Dependency::Weak),
            Input::of::<KubeletKubeconfig>(Dependency::Weak).with_id(ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut is_pending = false;
        // Later cordons are those of an operator, or of a shutdown that has begun.
        let mut is_uncordoned = false;
        let mut left_out = Vec::new();
        let mut complaints = Complaints::default();
        loop {
            let config = match is_pending {
                true => next_within(PAUSE, &mut self.config, context).await,
                false => next(&mut self.config, context).await,
            };
            is_pending = false;
            let nodename = context.get::<Nodename>(Nodename::ID)?;
            let (Some(config), Some(nodename)) = (config, nodename) else {
                continue;
            };
            let Some(mut wanted) = wanted(&config) else {
                continue;
            };
            let name = &nodename.nodename;
            if context.get::<NodeStatus>(name)?.is_none() {
                continue;
            }
            let extensions = of_extensions(context)?;
            wanted.labels.extend(extensions.labels);
            wanted.annotations.extend(extensions.annotations);
            let done = match self.world.label(&config, name, &wanted).await {
                Ok(keys) => {
                    say_left_out(&mut left_out, keys);
                    match is_uncordoned {
                        true => Ok(()),
                        false => self.world.uncordon(&config, name).await,
                    }
                }
                Err(why) => Err(why),
            };
            is_pending = done.is_err();
            is_uncordoned |= done.is_ok();
            match done {
                Ok(()) => complaints.none(),
                Err(why) => {
                    complaints.say("the metadata of this node's object in the cluster", &why);
                }
            }
        }
    }
}

/// The metadata in the config; `None` on a node that does not register.
fn wanted(config: &Document) -> Option<Metadata> {
    let settings = Settings::of(config).ok()?;
    let node = Node::of(config, &settings).ok()?;
    (!node.is_alone).then(|| Metadata {
        labels: node.all_labels().into_iter().collect(),
        annotations: node.annotations.into_iter().collect(),
        taints: node.taints.into_iter().map(taint).collect(),
    })
}

/// Logs the keys that the node may not set, once.
fn say_left_out(said: &mut Vec<String>, keys: Vec<String>) {
    if *said != keys && !keys.is_empty() {
        console::warn(&format!(
            "labels and taints of this node: a kubelet may not change {}; change them with kubectl, or remove the \
             node's object and restart its kubelet",
            keys.join(", ")
        ));
    }
    *said = keys;
}

impl World for Api {
    async fn label(
        &self,
        config: &Document,
        nodename: &str,
        wanted: &Metadata,
    ) -> Result<Vec<String>, String> {
        let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
        let cluster = of_node(config, &settings)?;
        let applied = cluster.apply_node_metadata(nodename, wanted, may_label);
        applied.await.map_err(|error| describe(&error))
    }

    async fn uncordon(&self, config: &Document, nodename: &str) -> Result<(), String> {
        let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
        let uncordoned = of_node(config, &settings)?.uncordon(nodename).await;
        uncordoned.map_err(|error| describe(&error))
    }
}

fn taint(taint: corten_kubernetes::Taint) -> (String, Taint) {
    let corten_kubernetes::Taint { key, value, effect } = taint;
    (key, Taint { value, effect })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Draft, Store};
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    /// Timeout for work that takes milliseconds on an idle machine, far below a test's end.
    const PATIENCE: Duration = Duration::from_secs(60);
    const CA: &str =
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

    /// A request to a cluster: a node with its labels, or an uncordoned node.
    #[derive(Debug, PartialEq)]
    enum Asked {
        Labels(String, BTreeMap<String, String>),
        Uncordon(String),
    }

    /// A cluster that takes all metadata.
    #[derive(Debug, Clone)]
    struct Fake(mpsc::UnboundedSender<Asked>);

    impl World for Fake {
        async fn label(
            &self,
            _: &Document,
            nodename: &str,
            wanted: &Metadata,
        ) -> Result<Vec<String>, String> {
            let asked = Asked::Labels(nodename.to_owned(), wanted.labels.clone());
            self.0.send(asked).unwrap();
            Ok(Vec::new())
        }

        async fn uncordon(&self, _: &Document, nodename: &str) -> Result<(), String> {
            self.0.send(Asked::Uncordon(nodename.to_owned())).unwrap();
            Ok(())
        }
    }

    struct Bench {
        store: Store,
        config: watch::Sender<Option<Document>>,
        asked: mpsc::UnboundedReceiver<Asked>,
    }

    impl Bench {
        fn start(nodename: &str) -> Bench {
            let (sender, asked) = mpsc::unbounded_channel();
            let config = watch::Sender::new(Some(config("a")));
            let store = Store::new();
            let mut runtime = Runtime::new(store.clone());
            let labels = Labels {
                config: config.subscribe(),
                world: Fake(sender),
            };
            runtime.add(labels).unwrap();
            let bench = Bench {
                store,
                config,
                asked,
            };
            bench.name(nodename);
            tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            bench
        }

        fn name(&self, nodename: &str) {
            let name = Nodename {
                nodename: nodename.to_owned(),
                hostname_version: "1".to_owned(),
                skip_node_registration: false,
            };
            self.store.put(Draft::new(Nodename::ID, name), "").unwrap();
        }

        /// The node as the cluster has it.
        fn registered(&self, nodename: &str, annotation: &str) {
            let status = NodeStatus {
                nodename: nodename.to_owned(),
                node_ready: true,
                unschedulable: false,
                labels: BTreeMap::new(),
                annotations: [("a".to_owned(), annotation.to_owned())].into(),
                pod_cidrs: Vec::new(),
            };
            self.store.put(Draft::new(nodename, status), "").unwrap();
        }

        async fn next(&mut self) -> Asked {
            timeout(PATIENCE, self.asked.recv()).await.unwrap().unwrap()
        }

        async fn is_labelled(&mut self, nodename: &str, rack: &str) {
            let Asked::Labels(name, labels) = self.next().await else {
                panic!("uncordoned again");
            };
            assert_eq!((name.as_str(), labels["rack"].as_str()), (nodename, rack));
        }
    }

    /// A worker's config.
    fn config(rack: &str) -> Document {
        let kubelet = "kubelet: {image: 'example.org/kubelet:v1.37.2'}";
        let machine = format!("nodeLabels: {{rack: {rack}}}\n  {kubelet}");
        sample::config(&machine, &format!("  ca: {{crt: {CA}}}\n"))
    }

    #[tokio::test]
    async fn node_is_labelled_under_its_later_name_once_it_is_registered() {
        let mut bench = Bench::start("early");
        bench.name("late");
        bench.registered("late", "1");
        bench.is_labelled("late", "a").await;
        assert_eq!(bench.next().await, Asked::Uncordon("late".to_owned()));
    }

    #[tokio::test]
    async fn node_gets_changed_labels_and_those_that_it_lost() {
        let mut bench = Bench::start("n");
        bench.registered("n", "1");
        bench.is_labelled("n", "a").await;
        assert_eq!(bench.next().await, Asked::Uncordon("n".to_owned()));
        bench.config.send_replace(Some(config("b")));
        bench.is_labelled("n", "b").await;
        // An operator's cordon comes with a change, too, and stays.
        bench.registered("n", "2");
        bench.is_labelled("n", "b").await;
        let status = bench.store.get_as::<NodeStatus>("n").unwrap();
        assert_eq!(status.annotations["a"], "2");
    }
}

//! The machine config as resources.

use corten_config::Document;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_resources::{Draft, Store, StoreError};
use corten_types::config::{ClusterInfo, MachineConfig, MachineType};
use tokio::sync::watch;

const NAME: &str = "config.MachineConfigController";

/// Shows a config that the node has accepted and is about to apply. A client that reads the config after its call, to
/// change it once more, must not get the former one.
///
/// # Errors
/// The store refuses the resource.
pub fn show(store: &Store, document: &Document) -> Result<(), StoreError> {
    store.put(text(document), NAME).map(drop)
}

#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The newest accepted config, whose text is shown.
    pub(super) accepted: watch::Receiver<Option<Document>>,
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Config {
    fn name(&self) -> &'static str {
        NAME
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<MachineConfig>(),
            Output::exclusive::<MachineType>(),
            Output::exclusive::<ClusterInfo>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let accepted = self.accepted.borrow_and_update().clone();
            let config = self.config.borrow_and_update().clone();
            context.start_outputs();
            if let Some(document) = accepted {
                context.put(text(&document))?;
            }
            if let Some(document) = config {
                put(context, &document)?;
            }
            context.remove_others::<MachineConfig>()?;
            context.remove_others::<MachineType>()?;
            context.remove_others::<ClusterInfo>()?;
            let changed = tokio::select! {
                changed = self.accepted.changed() => changed,
                changed = self.config.changed() => changed,
            };
            if changed.is_err() {
                return Ok(());
            }
        }
    }
}

fn text(document: &Document) -> Draft {
    let source = document.source().to_owned();
    let (key, value) = MachineConfig::IS_TEXT;
    Draft::new(MachineConfig::ID, MachineConfig { source }).annotation(key, value)
}

fn put(context: &mut Context, document: &Document) -> Result<(), Failure> {
    let kind = MachineType::from(document.machine.kind);
    context.put(Draft::new(MachineType::ID, kind))?;
    let info = ClusterInfo {
        id: document.cluster_id().unwrap_or_default().to_owned(),
        name: document.cluster_name().to_owned(),
    };
    context.put(Draft::new(ClusterInfo::ID, info))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::controller::Runtime;

    use super::*;

    #[tokio::test]
    async fn config_text_machine_type_and_cluster_are_shown() {
        for cluster in [
            "cluster:\n  id: some\n  clusterName: one\n  controlPlane: {endpoint: 'https://10.0.0.1:6443'}\n",
            "---\napiVersion: v1alpha1\nkind: KubeClusterConfig\nclusterName: one\nendpoint: https://10.0.0.1:6443\n\
             ---\napiVersion: v1alpha1\nkind: DiscoveryIdentityConfig\nclusterID: some\n\
             clusterSecret: AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n",
        ] {
            of_config(cluster).await;
        }
    }

    #[tokio::test]
    async fn accepted_config_is_shown_before_it_is_applied() {
        let config = |name: &str| {
            let cluster = format!(
                "cluster:\n  clusterName: {name}\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n"
            );
            sample::read(&format!("{}{cluster}", sample::machine("")))
        };
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let (sender, accepted) = watch::channel(Some(config("old")));
        let active = watch::Sender::new(Some(config("old")));
        let controller = Config {
            accepted,
            config: active.subscribe(),
        };
        runtime.add(controller).unwrap();
        let shown = || {
            let shown = store.get_as::<MachineConfig>(MachineConfig::ID);
            shown.map(|shown| shown.source.clone())
        };
        let client = async {
            while shown().is_none() {
                tokio::task::yield_now().await;
            }
            let (new, newest) = (config("new"), config("newest"));
            for one in [&new, &newest] {
                sender.send_replace(Some(one.clone()));
                show(&store, one).unwrap();
                assert_eq!(shown().unwrap(), one.source());
            }
            // The first of them is active; the second waits.
            active.send_replace(Some(new));
            let is_active = || {
                let info = store.get_as::<ClusterInfo>(ClusterInfo::ID);
                info.is_some_and(|info| info.name == "new")
            };
            while !is_active() {
                tokio::task::yield_now().await;
            }
            assert_eq!(shown().unwrap(), newest.source());
            // The node returns to the former config, such as after a trial.
            sender.send_replace(Some(config("old")));
            while shown().unwrap() == newest.source() {
                tokio::task::yield_now().await;
            }
            drop(sender);
        };
        tokio::join!(runtime.run(|notice| panic!("{notice}")), client);
    }

    async fn of_config(cluster: &str) {
        let text = format!("# by hand\n{}{cluster}", sample::machine(""));
        let document = sample::read(&text);
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let (sender, config) = watch::channel(Some(document));
        drop(sender);
        let accepted = config.clone();
        runtime.add(Config { accepted, config }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        let config = store.get_as::<MachineConfig>(MachineConfig::ID).unwrap();
        assert_eq!(config.source, text);
        assert!(!config.metadata().annotations.is_empty());
        assert!(!format!("{config:?}").contains("worker"));
        let kind = store.get_as::<MachineType>(MachineType::ID).unwrap();
        assert_eq!(kind.name, "worker");
        let info = store.get_as::<ClusterInfo>(ClusterInfo::ID).unwrap();
        assert_eq!((&*info.id, &*info.name), ("some", "one"));
    }
}

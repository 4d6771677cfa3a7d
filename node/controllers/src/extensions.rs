//! Shows the system extensions of the root file system, those loaded at run time, and the settings of their services
//! from the machine config.

use std::path::PathBuf;

use corten_base::console;
use corten_config::{Document, kinds};
use corten_extension::layers::{self, Layer};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::extension::{
    ExtensionServiceConfig, ExtensionServiceConfigStatus, ExtensionStatus,
};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct Extensions {
    /// `/`, except in tests.
    root: PathBuf,
    /// Layers loaded at run time, the lowest first.
    loaded: watch::Receiver<Vec<Layer>>,
}

impl Extensions {
    pub(super) fn new(loaded: watch::Receiver<Vec<Layer>>) -> Extensions {
        Extensions {
            root: "/".into(),
            loaded,
        }
    }
}

impl Controller for Extensions {
    fn name(&self) -> &'static str {
        "runtime.ExtensionStatusController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ExtensionStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let (layers, problems) = layers::list(&self.root)
            .map_err(|error| format!("cannot list {}: {error}", layers::DIRECTORY))?;
        for problem in problems {
            console::warn(&format!("an extension is not listed: {problem}"));
        }
        loop {
            let loaded = self.loaded.borrow_and_update().clone();
            context.start_outputs();
            for (place, layer) in layers.iter().chain(&loaded).enumerate() {
                let status = ExtensionStatus {
                    image: layer.image.clone(),
                    metadata: layer.manifest.metadata.clone(),
                };
                context.put(Draft::new(&place.to_string(), status))?;
            }
            context.remove_others::<ExtensionStatus>()?;
            if self.loaded.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Shows the wanted settings of extension services.
#[derive(Debug, Clone)]
pub(super) struct ServiceConfigs {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for ServiceConfigs {
    fn name(&self) -> &'static str {
        "runtime.ExtensionServiceConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ExtensionServiceConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            context.start_outputs();
            let wanted = config
                .iter()
                .flat_map(Document::all::<kinds::ExtensionServiceConfig>);
            for one in wanted {
                context.put(Draft::new(&one.name, ExtensionServiceConfig::from(one)))?;
            }
            context.remove_others::<ExtensionServiceConfig>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Shows which settings of extension services are in effect.
#[derive(Debug, Clone)]
pub(super) struct ServiceConfigStatuses {
    /// Settings whose files are written.
    pub(super) in_place: watch::Receiver<Vec<kinds::ExtensionServiceConfig>>,
}

impl Controller for ServiceConfigStatuses {
    fn name(&self) -> &'static str {
        "runtime.ExtensionServiceConfigStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<ExtensionServiceConfig>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ExtensionServiceConfigStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.in_place.changed() => {}
            }
            let in_place = self.in_place.borrow_and_update().clone();
            context.start_outputs();
            for wanted in context.list::<ExtensionServiceConfig>()? {
                // Until these settings are written, the previous ones are in effect.
                let is_this = |one: &kinds::ExtensionServiceConfig| {
                    one.name == wanted.id() && ExtensionServiceConfig::from(one) == *wanted
                };
                if in_place.iter().any(is_this) {
                    let spec_version = wanted.metadata().version.to_string();
                    let status = ExtensionServiceConfigStatus { spec_version };
                    context.put(Draft::new(wanted.id(), status))?;
                }
            }
            context.remove_others::<ExtensionServiceConfigStatus>()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use std::time::Duration;

    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Sensitivity, Spec as _, Store};
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn extension_compatibility_uses_the_release_clients_see() {
        let release = corten_extension::manifest::release();
        assert_eq!(format!("v{release}"), corten_api::COMPATIBLE_WITH);
    }

    #[tokio::test]
    async fn extensions_are_numbered_from_the_lowest() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(layers::DIRECTORY)).unwrap();
        for (image, name) in [("00-a.squashfs", "a"), ("01-b.squashfs", "b")] {
            let text = format!("version: v1alpha1\nmetadata: {{name: {name}, version: v2}}\n");
            fs::write(root.path().join(layers::manifest_path(image)), text).unwrap();
        }
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let (sender, loaded) = watch::channel(Vec::new());
        let root = root.path().to_owned();
        runtime.add(Extensions { root, loaded }).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let listed = async |count: usize| {
            let listed = async {
                while store.list_as::<ExtensionStatus>().len() != count {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(20), listed).await.unwrap();
        };
        listed(2).await;
        let second = store.get_as::<ExtensionStatus>("1").unwrap();
        assert_eq!(second.image, "01-b.squashfs");
        assert_eq!(second.metadata.name, "b");
        // An extension loaded at run time is the topmost layer.
        let manifest = second.metadata.clone();
        sender.send_replace(vec![Layer {
            image: "hello@sha256:00".to_owned(),
            manifest: corten_extension::Manifest {
                version: "v1alpha1".to_owned(),
                metadata: manifest,
            },
        }]);
        listed(3).await;
        let third = store.get_as::<ExtensionStatus>("2").unwrap();
        assert_eq!(third.image, "hello@sha256:00");
        sender.send_replace(Vec::new());
        listed(2).await;
    }

    fn document(content: &str) -> Document {
        sample::kind(&format!(
            "ExtensionServiceConfig\nname: ups\nenvironment: [B=2]\n\
             configFiles: [{{content: {content}, mountPath: /etc/ups.conf}}]"
        ))
    }

    #[tokio::test]
    async fn extension_service_config_is_shown_with_its_status() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let config = watch::Sender::new(Some(document("one")));
        let in_place = watch::Sender::default();
        let configs = ServiceConfigs {
            config: config.subscribe(),
        };
        runtime.add(configs).unwrap();
        let statuses = ServiceConfigStatuses {
            in_place: in_place.subscribe(),
        };
        runtime.add(statuses).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let of = |document: &Document| {
            let all = document.all::<kinds::ExtensionServiceConfig>();
            all.cloned().collect::<Vec<_>>()
        };
        let in_place_is = async |version: Option<&str>| {
            sample::until::<ExtensionServiceConfigStatus>(&store, "ups", |status| {
                status.map(|status| &*status.spec_version) == version
            })
            .await
        };
        in_place.send_replace(of(&document("one")));
        in_place_is(Some("1")).await;
        let shown = store.get_as::<ExtensionServiceConfig>("ups").unwrap();
        assert_eq!(
            (&*shown.files[0].content, &*shown.environment[0]),
            ("one", "B=2")
        );
        assert!(!format!("{shown:?}").contains("one"));
        config.send_replace(Some(document("two")));
        in_place_is(None).await;
        in_place.send_replace(of(&document("two")));
        in_place_is(Some("2")).await;
        config.send_replace(None);
        in_place_is(None).await;
        let definition = ExtensionServiceConfig::DEFINITION;
        assert_eq!(definition.sensitivity, Sensitivity::Sensitive);
    }
}

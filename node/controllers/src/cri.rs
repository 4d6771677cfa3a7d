//! Shows containerd's settings from the config, other than registries.

use corten_config::Document;
use corten_config::cri::base_spec;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, GraphError, Output, Runtime};
use corten_types::cri::{BaseRuntimeSpecConfig, CustomizationConfig};
use tokio::sync::watch;

/// Adds the controllers of this file.
pub(super) fn add(
    runtime: &mut Runtime,
    config: &watch::Receiver<Option<Document>>,
) -> Result<(), GraphError> {
    let config = config.clone();
    runtime.add(BaseSpecs {
        config: config.clone(),
    })?;
    runtime.add(Customizations { config })
}

/// Shows the fragments of containerd's configuration.
#[derive(Debug, Clone)]
struct Customizations {
    config: watch::Receiver<Option<Document>>,
}

impl Controller for Customizations {
    fn name(&self) -> &'static str {
        "cri.CustomizationConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<CustomizationConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            let parts = config.iter().flat_map(Document::containerd_parts);
            context.start_outputs();
            for (name, content) in parts {
                let content = content.expose().to_owned();
                context.put(Draft::new(name, CustomizationConfig { content }))?;
            }
            context.remove_others::<CustomizationConfig>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Shows the base runtime spec of pod containers and its overrides.
#[derive(Debug, Clone)]
struct BaseSpecs {
    config: watch::Receiver<Option<Document>>,
}

impl Controller for BaseSpecs {
    fn name(&self) -> &'static str {
        "cri.RuntimeSpecConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<BaseRuntimeSpecConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            let overrides = config.as_ref().and_then(Document::base_spec_overrides);
            context.start_outputs();
            let default = BaseRuntimeSpecConfig(base_spec());
            context.put(Draft::new(BaseRuntimeSpecConfig::DEFAULT, default))?;
            if let Some(overrides) = overrides {
                let overrides = BaseRuntimeSpecConfig(overrides);
                context.put(Draft::new(BaseRuntimeSpecConfig::OVERRIDES, overrides))?;
            }
            context.remove_others::<BaseRuntimeSpecConfig>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample::{self, until};
    use corten_resources::{AnySpec as _, Sensitivity, Spec as _, Store};
    use prost_types::value::Kind;

    use super::*;

    #[tokio::test]
    async fn containerd_parts_and_overrides_are_shown_and_removed_with_the_config() {
        let store = Store::new();
        let config = watch::Sender::new(None);
        let mut runtime = Runtime::new(store.clone());
        add(&mut runtime, &config.subscribe()).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let id = BaseRuntimeSpecConfig::DEFAULT;
        let default = until::<BaseRuntimeSpecConfig>(&store, id, |it| it.is_some()).await;
        assert!(default.unwrap().to_yaml().unwrap().contains("CAP_CHOWN"));

        let files = "files: [{path: /etc/cri/conf.d/20-customization.part, content: '[metrics]'}]";
        let more = "---\napiVersion: v1alpha1\nkind: CRICustomizationConfig\nname: pause\ncontent: |\n  [metrics]\n  \
                    address = 'hunter2'\n---\napiVersion: v1alpha1\nkind: CRIBaseRuntimeSpecConfig\noverrides: \
                    {process: {noNewPrivileges: false, oomScoreAdj: 5}}\n";
        config.send_replace(Some(sample::config(files, more)));
        let old = until::<CustomizationConfig>(&store, "customization", |it| it.is_some()).await;
        assert_eq!(old.unwrap().content, "[metrics]");
        let new = until::<CustomizationConfig>(&store, "pause", |it| it.is_some())
            .await
            .unwrap();
        assert!(new.message().content.contains("hunter2"));
        assert!(!format!("{:?}", *new).contains("hunter2"));
        let sensitivity = CustomizationConfig::DEFINITION.sensitivity;
        assert_eq!(sensitivity, Sensitivity::Sensitive);
        let id = BaseRuntimeSpecConfig::OVERRIDES;
        let overrides = until::<BaseRuntimeSpecConfig>(&store, id, |it| it.is_some()).await;
        let object = overrides.unwrap().message().object.unwrap();
        let Some(Kind::StructValue(process)) = &object.fields["process"].kind else {
            panic!("{object:?}");
        };
        let kind = |name: &str| process.fields[name].kind.clone();
        assert_eq!(kind("oomScoreAdj"), Some(Kind::NumberValue(5.0)));
        assert_eq!(kind("noNewPrivileges"), Some(Kind::BoolValue(false)));

        config.send_replace(Some(sample::config("", "")));
        until::<CustomizationConfig>(&store, "customization", |it| it.is_none()).await;
        until::<CustomizationConfig>(&store, "pause", |it| it.is_none()).await;
        until::<BaseRuntimeSpecConfig>(&store, id, |it| it.is_none()).await;
    }
}

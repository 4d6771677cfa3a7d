//! Shows containerd's access to image registries, from the config and the image cache.

use corten_config::Document;
use corten_containerd::registries::with_cache;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::image_cache::ImageCacheConfig;
use corten_types::registries::RegistriesConfig;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct RegistryConfigs {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for RegistryConfigs {
    fn name(&self) -> &'static str {
        "cri.RegistriesConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<ImageCacheConfig>(Dependency::Weak).with_id(ImageCacheConfig::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<RegistriesConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
            }
            let config = self.config.borrow_and_update().clone();
            let registries = config.as_ref().map(Document::registries);
            let cache = context.get::<ImageCacheConfig>(ImageCacheConfig::ID)?;
            let is_served = cache.is_some_and(|cache| cache.status == "ready");
            let registries = with_cache(registries.unwrap_or_default(), is_served);
            let shown = RegistriesConfig::from(&registries);
            context.put(Draft::new(RegistriesConfig::ID, shown))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Sensitivity, Spec as _, Store};

    use super::*;

    #[tokio::test]
    async fn registry_config_is_shown_with_the_image_cache_first() {
        let store = Store::new();
        let config = watch::Sender::new(None);
        let mut runtime = Runtime::new(store.clone());
        let registries = RegistryConfigs {
            config: config.subscribe(),
        };
        runtime.add(registries).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let shows = async |wanted: &[&str]| {
            sample::until::<RegistriesConfig>(&store, RegistriesConfig::ID, |shown| {
                let text = shown.map(|shown| shown.to_yaml().unwrap());
                text.is_some_and(|text| wanted.iter().all(|part| text.contains(part)))
            })
            .await
            .unwrap()
        };
        shows(&["{}\n"]).await;
        let old =
            "registries: {mirrors: {docker.io: {endpoints: ['http://m:1/x'], overridePath: true}}}";
        let new = "---\napiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: m:1\nidentityToken: t0k3n\n";
        config.send_replace(Some(sample::config(old, new)));
        let parts = [
            "mirrors:",
            "docker.io",
            "http://m:1/x",
            "overridePath: true",
            "auths:",
            "t0k3n",
        ];
        let shown = shows(&parts).await;
        let message = shown.message();
        assert_eq!(
            message.registry_auths["m:1"].registry_identity_token,
            "t0k3n"
        );
        assert!(!format!("{:?}", *shown).contains("t0k3n"));
        assert_eq!(
            RegistriesConfig::DEFINITION.sensitivity,
            Sensitivity::Sensitive
        );
        let cache = ImageCacheConfig {
            status: "ready",
            copy_status: "skipped",
            roots: vec![],
        };
        store
            .put(Draft::new(ImageCacheConfig::ID, cache), "")
            .unwrap();
        let first = |shown: &RegistriesConfig, name: &str| {
            let message = shown.message();
            let mirrors = message.registry_mirrors.get(name).cloned();
            mirrors.map(|it| it.mirror_endpoints[0].endpoint_endpoint.clone())
        };
        let cache = Some("http://127.0.0.1:3172".to_owned());
        sample::until::<RegistriesConfig>(&store, RegistriesConfig::ID, |shown| {
            shown.is_some_and(|it| first(it, "docker.io") == cache && first(it, "*") == cache)
        })
        .await;
    }
}

//! Shows whether the node serves its image cache.

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::IMAGE_CACHE;
use corten_supervisor::REGISTRYD;
use corten_types::image_cache::ImageCacheConfig;
use corten_types::runtime::Service;
use corten_types::volume::VolumeStatus;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct ImageCache {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for ImageCache {
    fn name(&self) -> &'static str {
        "cri.ImageCacheConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<VolumeStatus>(Dependency::Weak).with_id(corten_volumes::IMAGE_CACHE),
            Input::of::<Service>(Dependency::Weak).with_id(REGISTRYD),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ImageCacheConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
            }
            let wanted = self
                .config
                .borrow_and_update()
                .as_ref()
                .is_some_and(Document::serves_image_cache);
            let volume = context.get::<VolumeStatus>(corten_volumes::IMAGE_CACHE)?;
            let service = context.get::<Service>(REGISTRYD)?;
            let is_mounted = volume.is_some_and(|volume| volume.phase == "ready");
            let is_served = service.is_some_and(|service| service.running);
            let config = status(wanted, is_mounted && is_served);
            context.put(Draft::new(ImageCacheConfig::ID, config))?;
        }
    }
}

fn status(wanted: bool, served: bool) -> ImageCacheConfig {
    let (status, copy_status, roots) = match (wanted, served) {
        (false, _) => ("disabled", "unknown", vec![]),
        (true, false) => ("preparing", "unknown", vec![]),
        (true, true) => ("ready", "skipped", vec![IMAGE_CACHE]),
    };
    ImageCacheConfig {
        status,
        copy_status,
        roots,
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    #[tokio::test]
    async fn image_cache_is_ready_once_mounted_and_served() {
        let document = sample::kind("ImageCacheConfig\nlocal: {enabled: true}");
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let config = watch::Sender::new(None);
        let cache = ImageCache {
            config: config.subscribe(),
        };
        runtime.add(cache).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let shows = async |wanted: &str| {
            sample::until::<ImageCacheConfig>(&store, ImageCacheConfig::ID, |shown| {
                shown.is_some_and(|shown| shown.status == wanted)
            })
            .await
        };
        shows("disabled").await;
        config.send_replace(Some(document));
        shows("preparing").await;
        let volume = VolumeStatus {
            phase: "ready",
            ..VolumeStatus::default()
        };
        store
            .put(Draft::new(corten_volumes::IMAGE_CACHE, volume), "")
            .unwrap();
        let service = Service {
            running: true,
            healthy: false,
            unknown: true,
        };
        store.put(Draft::new(REGISTRYD, service), "").unwrap();
        let shown = shows("ready").await;
        assert_eq!(shown.unwrap().roots, [IMAGE_CACHE]);
    }
}

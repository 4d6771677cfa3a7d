//! Removes unused images of containerd's namespace `system`: installers, and former images of etcd and the kubelet. The
//! kubelet does the same for the images of pods.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use corten_base::console;
use corten_config::Document;
use corten_containerd::client::{Containerd, Image, SYSTEM};
use corten_kubernetes::own_images;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::CONTAINERD;
use corten_types::runtime::Service;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::{Code, Status};

/// Interval of the search for unused images (the reference's).
const INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Time that an unused image stays (the reference's): an operator may have sent it for a later call.
const GRACE: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Clone)]
pub(super) struct ImageGc<S> {
    pub(super) config: watch::Receiver<Option<Document>>,
    pub(super) store: S,
}

/// Interface to containerd; tests have their own.
pub(super) trait ImageStore: Clone + Send + Sync + 'static {
    /// All images.
    fn images(&self) -> impl Future<Output = Result<Vec<Image>, Status>> + Send;
    /// Names of the images of all containers.
    fn used(&self) -> impl Future<Output = Result<Vec<String>, Status>> + Send;
    /// Removes the image of this name.
    fn remove(&self, name: &str) -> impl Future<Output = Result<(), Status>> + Send;
}

impl ImageStore for Containerd {
    async fn images(&self) -> Result<Vec<Image>, Status> {
        self.images(SYSTEM).await
    }

    async fn used(&self) -> Result<Vec<String>, Status> {
        let containers = self.containers(SYSTEM).await?;
        Ok(containers.into_iter().map(|one| one.image).collect())
    }

    async fn remove(&self, name: &str) -> Result<(), Status> {
        self.remove_image(SYSTEM, name).await
    }
}

impl<S: ImageStore> Controller for ImageGc<S> {
    fn name(&self) -> &'static str {
        "cri.ImageGCController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Service>(Dependency::Weak).with_id(CONTAINERD)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut first_seen = HashMap::new();
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = context.event() => continue,
                _ = ticks.tick() => {}
            }
            let runtime = context.get::<Service>(CONTAINERD)?;
            let config = self.config.borrow().clone();
            let (Some(config), true) = (config, runtime.is_some_and(|service| service.healthy))
            else {
                continue;
            };
            if let Err(status) = self.collect(&config, &mut first_seen).await {
                let why = status.message();
                console::warn(&format!("cannot remove unused images: {why}"));
            }
        }
    }
}

impl<S: ImageStore> ImageGc<S> {
    async fn collect(
        &self,
        config: &Document,
        first_seen: &mut HashMap<String, Instant>,
    ) -> Result<(), Status> {
        let images = self.store.images().await?;
        let mut wanted: BTreeSet<String> = self.store.used().await?.into_iter().collect();
        wanted.extend(own_images(config));
        let now = (SystemTime::now(), Instant::now());
        for name in stale(&images, &wanted, first_seen, now) {
            match self.store.remove(&name).await {
                Err(status) if status.code() == Code::NotFound => continue,
                removed => removed?,
            }
            console::say(&format!("removed the unused image {name}"));
        }
        Ok(())
    }
}

/// Names of images that have arrived at least [`GRACE`] ago, and that nothing has used since. `first_seen` holds when
/// this function first saw each unused image. A clock that jumps alone makes no image stale.
fn stale(
    images: &[Image],
    wanted: &BTreeSet<String>,
    first_seen: &mut HashMap<String, Instant>,
    (clock, now): (SystemTime, Instant),
) -> Vec<String> {
    let named = images.iter().filter(|image| wanted.contains(&image.name));
    let named = named.map(|image| image.digest.as_str());
    let pinned = wanted.iter().filter_map(|name| name.split_once('@'));
    let digests: BTreeSet<&str> = named.chain(pinned.map(|(_, digest)| digest)).collect();
    let is_unused = |image: &&Image| !digests.contains(image.digest.as_str());
    let mut unused: Vec<&Image> = images.iter().filter(is_unused).collect();
    first_seen.retain(|name, _| unused.iter().any(|image| image.name == *name));
    unused.retain(|image| {
        let first = *first_seen.entry(image.name.clone()).or_insert(now);
        let here = clock.duration_since(image.updated).unwrap_or_default();
        here.min(now.duration_since(first)) >= GRACE
    });
    unused.iter().map(|image| image.name.clone()).collect()
}

#[cfg(test)]
#[path = "image_gc_tests.rs"]
mod tests;

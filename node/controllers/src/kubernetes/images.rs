//! Pulls the images of etcd and the kubelet before they start, so that an unreachable registry does not make them fail.

use std::future::pending;
use std::time::{Duration, SystemTime};

use corten_base::console;
use corten_config::Document;
use corten_containerd::client::{Containerd, Purpose, SYSTEM};
use corten_kubernetes::service_images;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::kubernetes::{ETCD, ETCD_RESTORE, KUBELET};
use corten_supervisor::supervisor::Conditions;
use corten_supervisor::view::{ServiceState, ServiceView};
use corten_supervisor::{CONTAINERD, Condition};
use corten_types::runtime::Service;
use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::Complaints;

/// Timeout of a pull.
const PULL: Duration = Duration::from_secs(900);
/// Retry interval.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Images<R> {
    pub(super) config: watch::Receiver<Option<Document>>,
    pub(super) services: watch::Receiver<Vec<ServiceView>>,
    pub(super) runtime: R,
    pub(super) conditions: Conditions,
}

/// Interface to containerd; tests have their own.
pub(super) trait Runtime: Clone + Send + Sync + 'static {
    /// Whether the image is unpacked.
    fn has(&self, image: &str) -> impl Future<Output = bool> + Send;
    /// Pulls the image by the registries of the config, and unpacks it.
    fn pull(
        &self,
        config: &Document,
        image: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

impl Runtime for Containerd {
    async fn has(&self, image: &str) -> bool {
        self.is_unpacked(SYSTEM, image).await
    }

    async fn pull(&self, config: &Document, image: &str) -> Result<(), String> {
        // Progress of the pull is discarded.
        let (steps, _) = mpsc::channel(1);
        let registries = config.registries();
        let pull = self.pull(SYSTEM, image, Purpose::Containers, &registries, steps);
        pull.await.map_err(|status| status.message().to_owned())
    }
}

impl<R: Runtime> Controller for Images<R> {
    fn name(&self) -> &'static str {
        "cri.SystemImageController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Service>(Dependency::Weak).with_id(CONTAINERD)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut configs = self.config.clone();
        context.event().await;
        loop {
            let config = configs.borrow_and_update().clone();
            let runtime = context.get::<Service>(CONTAINERD)?;
            let config = config.filter(|_| runtime.is_some_and(|service| service.healthy));
            // A changed config may correct the registry of a pull that hangs.
            tokio::select! {
                () = self.keep_all(config.as_ref()) => {}
                () = context.event() => {}
                Ok(()) = configs.changed() => {}
            }
        }
    }
}

impl<R: Runtime> Images<R> {
    /// Keeps the wanted images on the node, each by itself. Never returns.
    async fn keep_all(&self, config: Option<&Document>) {
        if let Some(config) = config {
            let images = service_images(config);
            join_all(images.iter().map(|image| self.keep(config, image))).await;
        }
        pending::<()>().await;
    }

    /// Pulls an image that the node does not have, and looks again when a service does not start. Never returns.
    async fn keep(&self, config: &Document, image: &str) {
        let tell = |holds| {
            let condition = Condition::Image(image.to_owned());
            self.conditions.set(condition, holds);
        };
        let mut services = self.services.clone();
        let mut complaints = Complaints::default();
        loop {
            let before = waiting(&services.borrow_and_update());
            if !self.runtime.has(image).await {
                if !complaints.is_some() {
                    console::say(&format!("pulling {image}"));
                    tell(Err("it is being pulled".to_owned()));
                }
                if let Err(why) = self.pull(config, image).await {
                    complaints.say(&format!("the image {image}"), &why);
                    tell(Err(why));
                    sleep(PAUSE).await;
                    continue;
                }
            }
            complaints.none();
            tell(Ok(()));
            let is_news = |views: &Vec<ServiceView>| {
                let now = waiting(views);
                !now.is_empty() && now != before
            };
            if services.wait_for(is_news).await.is_err() {
                // The supervisor ends only with machined.
                pending::<()>().await;
            }
        }
    }

    async fn pull(&self, config: &Document, image: &str) -> Result<(), String> {
        match timeout(PULL, self.runtime.pull(config, image)).await {
            Ok(pulled) => pulled,
            Err(_) => Err(format!(
                "containerd did not pull it within {} s; check the registry and the network",
                PULL.as_secs()
            )),
        }
    }
}

/// Services of these images that do not start, with the time of their last event. Someone may have removed the image.
fn waiting(views: &[ServiceView]) -> Vec<(String, Option<SystemTime>)> {
    let waits = |view: &&ServiceView| {
        [ETCD, ETCD_RESTORE, KUBELET].contains(&view.id.as_str())
            && matches!(view.state, ServiceState::Waiting | ServiceState::Failed)
    };
    let last = |view: &ServiceView| view.events.last().map(|event| event.at);
    let waiting = views.iter().filter(waits);
    waiting.map(|view| (view.id.clone(), last(view))).collect()
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;

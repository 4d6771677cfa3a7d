//! Pulls the images of etcd and the kubelet before they start, so that an unreachable registry does not make them fail.

use std::collections::BTreeSet;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_containerd::client::{Containerd, Purpose, SYSTEM};
use corten_kubernetes::{ControlPlane, Node, Settings};
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_services::supervisor::Conditions;
use corten_services::{CONTAINERD, Condition};
use corten_types::runtime::Service;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::{Complaints, next};

/// Timeout of a pull.
const PULL: Duration = Duration::from_secs(900);
/// Retry interval.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Images {
    pub(super) config: watch::Receiver<Option<Document>>,
    pub(super) containerd: Containerd,
    pub(super) conditions: Conditions,
}

impl Controller for Images {
    fn name(&self) -> &'static str {
        "cri.SystemImageController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Service>(Dependency::Weak).with_id(CONTAINERD)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut there = BTreeSet::new();
        let mut complaints = Complaints::default();
        loop {
            let config = next(&mut self.config, context).await;
            let runtime = context.get::<Service>(CONTAINERD)?;
            if !runtime.is_some_and(|service| service.healthy) {
                continue;
            }
            let Some(config) = config else { continue };
            for image in wanted(&config) {
                while !there.contains(&image) {
                    let condition = Condition::Image(image.clone());
                    match self.pull(&config, &image).await {
                        Ok(()) => {
                            self.conditions.set(condition, Ok(()));
                            complaints.none();
                            there.insert(image.clone());
                        }
                        Err(why) => {
                            complaints.say(&format!("the image {image}"), &why);
                            self.conditions.set(condition, Err(why));
                            sleep(PAUSE).await;
                        }
                    }
                    // The wanted images may have changed.
                    if self.config.has_changed().unwrap_or_default() {
                        break;
                    }
                }
            }
        }
    }
}

impl Images {
    async fn pull(&self, config: &Document, image: &str) -> Result<(), String> {
        if self.containerd.is_unpacked(SYSTEM, image).await {
            return Ok(());
        }
        console::say(&format!("pulling {image}"));
        // Progress of the pull is discarded.
        let (steps, _) = mpsc::channel(1);
        let registries = config.registries();
        let pull = self
            .containerd
            .pull(SYSTEM, image, Purpose::Containers, &registries, steps);
        match timeout(PULL, pull).await {
            Ok(pulled) => pulled.map_err(|status| status.message().to_owned()),
            Err(_) => Err(format!(
                "containerd did not pull it within {} s; check the registry and the network",
                PULL.as_secs()
            )),
        }
    }
}

/// Images of the services that a node with this config runs.
fn wanted(config: &Document) -> Vec<String> {
    let Ok(settings) = Settings::of(config) else {
        return Vec::new();
    };
    let kubelet = Node::of(config, &settings).map(|node| node.image);
    let etcd = config
        .machine
        .kind
        .is_control_plane()
        .then(|| ControlPlane::of(config).map(|own| own.images.etcd));
    let etcd = etcd.and_then(Result::ok);
    etcd.into_iter().chain(kubelet).collect()
}

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use corten_resources::controller::Runtime as Controllers;
use corten_resources::{Draft, Store};
use corten_supervisor::supervisor::testing::{World, spec, world};

use super::super::settings::tests::config;
use super::*;

/// Timeout for work that takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
const ETCD_IMAGE: &str = "example.org/etcd:v3.7.3";
const KUBELET_IMAGE: &str = "example.org/kubelet:v1.37.2";

/// A containerd with these unpacked images, and registries that answer for all images but some.
#[derive(Debug, Clone)]
struct Fake {
    unpacked: Arc<Mutex<BTreeSet<String>>>,
    refused: &'static str,
    hangs: &'static str,
    pulls: mpsc::UnboundedSender<String>,
}

impl Runtime for Fake {
    async fn has(&self, image: &str) -> bool {
        self.unpacked.lock().unwrap().contains(image)
    }

    async fn pull(&self, _: &Document, image: &str) -> Result<(), String> {
        self.pulls.send(image.to_owned()).unwrap();
        if image == self.hangs {
            pending::<()>().await;
        }
        if image == self.refused {
            return Err("no such image".to_owned());
        }
        self.unpacked.lock().unwrap().insert(image.to_owned());
        Ok(())
    }
}

struct Bench {
    world: World,
    config: watch::Sender<Option<Document>>,
    unpacked: Arc<Mutex<BTreeSet<String>>>,
    pulls: mpsc::UnboundedReceiver<String>,
}

impl Bench {
    /// Runs the controller on a control plane node, with services that need these images.
    fn start(unpacked: &[&str], refused: &'static str, hangs: &'static str) -> Bench {
        let unpacked = unpacked.iter().copied().map(str::to_owned).collect();
        let unpacked = Arc::new(Mutex::new(unpacked));
        let config = watch::Sender::new(Some(config("v1.37.2").0));
        let (pulls, pulled) = mpsc::unbounded_channel();
        let world = world();
        let store = Store::new();
        let mut controllers = Controllers::new(store.clone());
        let images = Images {
            config: config.subscribe(),
            services: world.supervisor.watch(),
            runtime: Fake {
                unpacked: unpacked.clone(),
                refused,
                hangs,
                pulls,
            },
            conditions: world.supervisor.conditions(),
        };
        controllers.add(images).unwrap();
        let healthy = Service {
            running: true,
            healthy: true,
            unknown: false,
        };
        store.put(Draft::new(CONTAINERD, healthy), "").unwrap();
        tokio::spawn(controllers.run(|notice| panic!("{notice}")));
        for (id, image) in [(ETCD, ETCD_IMAGE), (KUBELET, KUBELET_IMAGE)] {
            let mut service = spec(id);
            service.needs = vec![Condition::Image(image.to_owned())];
            world.supervisor.declare(service);
        }
        Bench {
            world,
            config,
            unpacked,
            pulls: pulled,
        }
    }

    async fn is_pulled(&mut self, image: &str) {
        let pulled = timeout(PATIENCE, self.pulls.recv()).await.unwrap();
        assert_eq!(pulled.unwrap(), image);
    }
}

#[tokio::test]
async fn kubelet_starts_while_the_image_of_etcd_cannot_be_pulled() {
    let bench = Bench::start(&[], ETCD_IMAGE, "");
    bench.world.until_up(KUBELET).await;
    let why = format!("Waiting for the image {ETCD_IMAGE} (no such image)");
    bench.world.until_said(ETCD, &why).await;
}

#[tokio::test]
async fn kubelet_starts_while_the_pull_of_etcd_hangs() {
    let mut bench = Bench::start(&[KUBELET_IMAGE], "", ETCD_IMAGE);
    bench.world.until_up(KUBELET).await;
    bench.is_pulled(ETCD_IMAGE).await;
    assert!(bench.pulls.is_empty(), "an unpacked image was pulled");
}

#[tokio::test]
async fn removed_image_is_pulled_again_for_the_next_start() {
    let mut bench = Bench::start(&[ETCD_IMAGE, KUBELET_IMAGE], "", "");
    bench.world.until_up(KUBELET).await;
    bench.unpacked.lock().unwrap().remove(KUBELET_IMAGE);
    bench.world.fake.end(KUBELET, 1);
    bench.is_pulled(KUBELET_IMAGE).await;
    bench.world.until_up(KUBELET).await;
}

#[tokio::test]
async fn changed_config_begins_a_hung_pull_anew() {
    let mut bench = Bench::start(&[KUBELET_IMAGE], "", ETCD_IMAGE);
    bench.is_pulled(ETCD_IMAGE).await;
    bench.config.send_replace(Some(config("v1.37.1").0));
    bench.is_pulled(ETCD_IMAGE).await;
}

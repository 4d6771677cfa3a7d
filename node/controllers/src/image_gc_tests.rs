use std::sync::{Arc, Mutex};

use corten_base::sample;
use corten_resources::controller::Runtime;
use corten_resources::{Draft, Store};
use tokio::time::sleep;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// An image that arrived at this time.
fn image(name: &str, digest: &str, updated: SystemTime) -> Image {
    Image {
        name: name.to_owned(),
        digest: digest.to_owned(),
        size: 1,
        created: SystemTime::UNIX_EPOCH,
        updated,
        labels: HashMap::new(),
    }
}

fn wanted(names: &[&str]) -> BTreeSet<String> {
    names.iter().copied().map(str::to_owned).collect()
}

/// What is stale at the beginning, and after the grace period.
fn at_both_ends(images: &[Image], wanted: &BTreeSet<String>) -> [Vec<String>; 2] {
    let (clock, now) = (SystemTime::now(), Instant::now());
    let mut first_seen = HashMap::new();
    [Duration::ZERO, GRACE].map(|later| {
        let at = (clock + later, now + later);
        stale(images, wanted, &mut first_seen, at)
    })
}

#[test]
fn only_images_that_nothing_names_become_stale() {
    let old = SystemTime::UNIX_EPOCH;
    let images = [
        image("registry.example/kubelet:2", "sha256:b", old),
        image("registry.example/kubelet:1", "sha256:a", old),
        // Another name of a wanted image, and an extension that an operator has imported.
        image("import:2", "sha256:b", old),
        image("import:hello", "sha256:c", old),
    ];
    let wanted = wanted(&[
        "registry.example/kubelet:2",
        "registry.example/hello@sha256:c",
    ]);
    let [first, last] = at_both_ends(&images, &wanted);
    assert!(first.is_empty(), "{first:?}");
    assert_eq!(last, ["registry.example/kubelet:1"]);
}

#[test]
fn image_sent_again_for_a_later_upgrade_stays_for_another_grace_period() {
    let installer = "import:installer";
    let (clock, now) = (SystemTime::now(), Instant::now());
    let mut first_seen = HashMap::new();
    let mut stale_at = |sent: Duration, later: Duration| {
        let images = [image(installer, "sha256:a", clock + sent)];
        let at = (clock + later, now + later);
        stale(&images, &BTreeSet::new(), &mut first_seen, at)
    };
    let again = GRACE - MINUTE;
    assert!(stale_at(Duration::ZERO, Duration::ZERO).is_empty());
    assert!(stale_at(Duration::ZERO, again).is_empty());
    assert!(stale_at(again, GRACE).is_empty());
    assert_eq!(stale_at(again, again + GRACE), [installer]);
}

#[test]
fn image_that_was_used_meanwhile_stays_for_another_grace_period() {
    let images = [image("kubelet:1", "sha256:a", SystemTime::UNIX_EPOCH)];
    let (clock, now) = (SystemTime::now(), Instant::now());
    let mut first_seen = HashMap::new();
    let mut stale_at = |used: &[&str], later: Duration| {
        let at = (clock + later, now + later);
        stale(&images, &wanted(used), &mut first_seen, at)
    };
    assert!(stale_at(&[], Duration::ZERO).is_empty());
    assert!(stale_at(&["kubelet:1"], GRACE / 2).is_empty());
    assert!(stale_at(&[], GRACE).is_empty());
    assert_eq!(stale_at(&[], GRACE * 2), ["kubelet:1"]);
}

#[test]
fn clock_that_jumps_makes_no_image_stale() {
    let clock = SystemTime::now();
    let images = [image("a", "sha256:a", clock)];
    let now = Instant::now();
    let mut first_seen = HashMap::new();
    for clock in [clock, clock + GRACE * 9, clock - GRACE] {
        let stale = stale(&images, &BTreeSet::new(), &mut first_seen, (clock, now));
        assert!(stale.is_empty(), "{stale:?}");
    }
}

/// Images by name, one of which is that of a container.
#[derive(Debug, Clone)]
struct Fake(Arc<Mutex<Vec<&'static str>>>);

impl ImageStore for Fake {
    async fn images(&self) -> Result<Vec<Image>, Status> {
        let names = self.0.lock().unwrap();
        let images = names.iter();
        let images = images.map(|name| image(name, name, SystemTime::UNIX_EPOCH));
        Ok(images.collect())
    }

    async fn used(&self) -> Result<Vec<String>, Status> {
        Ok(vec![String::new(), "running".to_owned()])
    }

    async fn remove(&self, name: &str) -> Result<(), Status> {
        self.0.lock().unwrap().retain(|one| *one != name);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn unused_image_is_removed_after_the_grace_period() {
    let images = Arc::new(Mutex::new(vec!["kubelet:2", "running", "installer"]));
    let config = sample::config(
        "kubelet: {image: 'kubelet:2'}",
        "  ca: {crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=}\n",
    );
    let config = watch::Sender::new(Some(config));
    let store = Store::new();
    let mut runtime = Runtime::new(store.clone());
    let gc = ImageGc {
        config: config.subscribe(),
        store: Fake(images.clone()),
    };
    runtime.add(gc).unwrap();
    let healthy = Service {
        running: true,
        healthy: true,
        unknown: false,
    };
    store.put(Draft::new(CONTAINERD, healthy), "").unwrap();
    tokio::spawn(runtime.run(|notice| panic!("{notice}")));
    sleep(GRACE - MINUTE).await;
    assert_eq!(images.lock().unwrap().len(), 3);
    sleep(INTERVAL).await;
    assert_eq!(*images.lock().unwrap(), ["kubelet:2", "running"]);
}

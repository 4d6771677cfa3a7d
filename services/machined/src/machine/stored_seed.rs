//! Stores the network settings of a cloud's last answer, and follows them at a boot until the cloud answers. Without
//! them, a machine whose addresses only the cloud knows has no network while the metadata service is down.

use std::path::Path;
use std::sync::Arc;

use corten_base::console;
use corten_base::durable;
use corten_network::seed::Seed;
use corten_network::stored_seed::StoredSeed;
use corten_volumes::{Progress, STATE};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::Machine;
use super::platform::{Heard, seed_of};

impl Machine {
    /// Follows the stored settings of the platform that the kernel's parameters name, and stores its answers.
    pub(super) async fn follow_stored_seed(self: Arc<Machine>) {
        let Some(platform) = corten_platform::find(self.cmdline.platform()) else {
            return;
        };
        let state = Path::new(STATE.target);
        let find = || durable::is_volume(state).then(|| StoredSeed::new(state, platform.name));
        follow(&self.platform, self.volumes.subscribe(), find).await;
    }
}

/// Acts as soon as `find` finds STATE, which may appear late, and after each answer of the platform.
async fn follow(
    heard: &Heard,
    mut volumes: watch::Receiver<Progress>,
    find: impl Fn() -> Option<StoredSeed>,
) {
    let mut instance = heard.instance.subscribe();
    let mut is_loaded = false;
    loop {
        volumes.mark_unchanged();
        let said = instance.borrow_and_update().clone();
        match (find(), said) {
            (Some(stored), Some(instance)) => store(stored, seed_of(&instance)).await,
            (Some(stored), None) if !is_loaded => {
                // An unusable file is reported once.
                is_loaded = true;
                load(&stored, heard);
            }
            (None, _) | (Some(_), None) => {}
        }
        let changed = tokio::select! {
            changed = volumes.changed() => changed,
            changed = instance.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Hands the stored settings to the network, unless the platform has answered.
fn load(stored: &StoredSeed, heard: &Heard) {
    match stored.load() {
        Ok(Some(seed)) => {
            let is_used = heard.seed.send_if_modified(|current| {
                let is_first = current.is_none();
                current.get_or_insert_with(|| Arc::new(seed));
                is_first
            });
            if is_used {
                console::say(
                    "network: following the platform's answer of an earlier boot, until it answers",
                );
            }
        }
        Ok(None) => {}
        Err(why) => console::warn(&format!(
            "network: the platform's answer of an earlier boot is not used: {why}; the next answer replaces the file"
        )),
    }
}

async fn store(stored: StoredSeed, seed: Seed) {
    let saved = spawn_blocking(move || stored.save(&seed)).await;
    let why = match saved {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    console::warn(&format!(
        "network: the platform's answer is not stored for the next boot: {why}"
    ));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use corten_platform::{Instance, Network, News};
    use corten_seed::{SeedLink, SeedMatch, SeedNetwork, SeedShape};
    use corten_values::Cidr;
    use tokio::time::sleep;

    use super::*;

    const PLATFORM: &str = "digital-ocean";

    fn answer(address: &str) -> Instance {
        let card = SeedShape::Card(SeedMatch::default());
        let link = SeedLink {
            addresses: vec![Cidr::parse(address).unwrap()],
            ..SeedLink::new("eth0", card)
        };
        Instance {
            config: Some(b"machine: {token: secret}".to_vec()),
            network: Network {
                seed: SeedNetwork {
                    links: vec![link],
                    ..SeedNetwork::default()
                },
                hostname: Some("n1".to_owned()),
                time_servers: vec!["time.example.org".to_owned()],
                external: Vec::new(),
            },
            ..Instance::default()
        }
    }

    /// A node whose STATE is a directory, mounted from the moment that a test says so.
    #[derive(Default)]
    struct World {
        heard: Heard,
        volumes: watch::Sender<Progress>,
        is_mounted: AtomicBool,
    }

    impl World {
        fn mount(&self) {
            self.is_mounted.store(true, Relaxed);
            self.volumes.send_replace(Progress::Settled);
        }

        fn say(&self, address: &str) {
            let news = News::Said(Box::new(answer(address)));
            self.heard.hear(PLATFORM, news);
        }

        fn followed(&self) -> Option<Seed> {
            self.heard.seed.borrow().as_deref().cloned()
        }

        /// Runs `test` beside the code under test.
        async fn run(&self, stored: &StoredSeed, test: impl Future<Output = ()>) {
            let find = || self.is_mounted.load(Relaxed).then(|| stored.clone());
            tokio::select! {
                () = follow(&self.heard, self.volumes.subscribe(), find) => panic!("it has ended"),
                () = test => {}
            }
        }
    }

    /// Waits for the stored settings; the test runner's timeout bounds the wait.
    async fn is_stored(stored: &StoredSeed, address: &str) {
        let expected = Ok(Some(seed_of(&answer(address))));
        while stored.load() != expected {
            sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn network_of_an_earlier_boot_is_followed_while_the_platform_never_answers() {
        let directory = tempfile::tempdir().unwrap();
        let stored = StoredSeed::new(directory.path(), PLATFORM);
        let first = World::default();
        first.mount();
        let boot = async {
            first.say("192.0.2.8/24");
            is_stored(&stored, "192.0.2.8/24").await;
        };
        first.run(&stored, boot).await;
        let file = directory.path().join("platform-network.json");
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains("secret"), "{text}");

        let second = World::default();
        let boot = async {
            let why = "no answer".to_owned();
            second.heard.hear(PLATFORM, News::Waiting(why));
            assert_eq!(second.followed(), None);
            second.mount();
            let mut seed = second.heard.seed.subscribe();
            seed.wait_for(Option::is_some).await.unwrap();
            assert_eq!(second.followed(), Some(seed_of(&answer("192.0.2.8/24"))));
            // The config of the platform is still awaited.
            assert!(second.heard.instance.borrow().is_none());
            // The platform has moved the machine meanwhile.
            second.say("192.0.2.9/24");
            is_stored(&stored, "192.0.2.9/24").await;
            assert_eq!(second.followed(), Some(seed_of(&answer("192.0.2.9/24"))));
        };
        second.run(&stored, boot).await;
    }

    #[tokio::test]
    async fn answer_before_the_disk_is_stored_and_never_replaced_by_the_former_one() {
        let directory = tempfile::tempdir().unwrap();
        let stored = StoredSeed::new(directory.path(), PLATFORM);
        stored.save(&seed_of(&answer("192.0.2.8/24"))).unwrap();
        let world = World::default();
        let boot = async {
            world.say("192.0.2.9/24");
            world.mount();
            is_stored(&stored, "192.0.2.9/24").await;
            assert_eq!(world.followed(), Some(seed_of(&answer("192.0.2.9/24"))));
        };
        world.run(&stored, boot).await;
        // The answer may also come between the look for one and the end of the read.
        stored.save(&seed_of(&answer("192.0.2.8/24"))).unwrap();
        load(&stored, &world.heard);
        assert_eq!(world.followed(), Some(seed_of(&answer("192.0.2.9/24"))));
    }

    #[tokio::test]
    async fn unusable_network_of_an_earlier_boot_is_ignored_until_the_platform_answers() {
        for (text, owner) in [(Some("{"), PLATFORM), (None, "vultr")] {
            let directory = tempfile::tempdir().unwrap();
            let other = StoredSeed::new(directory.path(), owner);
            other.save(&seed_of(&answer("192.0.2.8/24"))).unwrap();
            if let Some(text) = text {
                fs::write(directory.path().join("platform-network.json"), text).unwrap();
            }
            let stored = StoredSeed::new(directory.path(), PLATFORM);
            stored.load().unwrap_err();
            let world = World::default();
            load(&stored, &world.heard);
            assert_eq!(world.followed(), None);
            world.mount();
            let boot = async {
                world.say("192.0.2.9/24");
                is_stored(&stored, "192.0.2.9/24").await;
            };
            world.run(&stored, boot).await;
        }
    }
}

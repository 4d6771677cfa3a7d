//! Follows the cloud's data about this machine, from its metadata service or a volume beside the machine.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use corten_acquire::Source;
use corten_base::console;
use corten_base::sysfs;
use corten_base::trusted_roots::CA_FILE;
use corten_network::seed::Seed;
use corten_platform::{Card, Client, Instance, Local, News, Pace, follow};
use corten_server::node::Node as _;
use corten_types::network::bytes;
use tokio::sync::watch;
use tokio::time::timeout;

use super::{ADDRESS_PATIENCE, Machine};
use crate::state::NodeState;

/// Mount point of the platform's volume.
const MOUNT_POINT: &str = "/run/platform-source";
const NETWORK_CARDS: &str = "/sys/class/net";

/// Answer of a config source; `None` if it has no config.
///
/// # Errors
/// The source has, or may have, a config that cannot be used.
pub(super) type Answer = Result<Option<Vec<u8>>, String>;

/// Data that the platform has given.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Network settings of a NoCloud seed or a cloud, once they are read.
    pub seed: watch::Sender<Option<Arc<Seed>>>,
    /// All data of a cloud, once it has answered.
    pub instance: watch::Sender<Option<Arc<Instance>>>,
}

impl Heard {
    /// Publishes an answer of the platform, and logs everything else.
    pub(super) fn hear(&self, platform: &str, news: News) {
        match news {
            News::Waiting(what) => {
                console::say(&format!("waiting for the platform {platform}: {what}"));
            }
            News::Wrong(what) => console::warn(&format!("platform {platform}: {what}")),
            News::Said(instance) => {
                self.seed.send_replace(Some(Arc::new(seed_of(&instance))));
                self.instance.send_replace(Some(Arc::from(instance)));
            }
        }
    }

    /// Waits for an answer of the platform with another config than the known one, and returns the config.
    pub(super) async fn config(&self, known: Option<&Answer>) -> Answer {
        let mut instance = self.instance.subscribe();
        let is_new = |said: &Option<Arc<Instance>>| {
            let said = said.as_deref().map(answer_of);
            said.is_some_and(|said| known != Some(&said))
        };
        match instance.wait_for(is_new).await {
            Ok(said) => said.as_deref().map_or(Ok(None), answer_of),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn answer_of(instance: &Instance) -> Answer {
    match &instance.unusable {
        Some(why) => Err(why.clone()),
        None => Ok(instance.config.clone()),
    }
}

impl Machine {
    /// Follows the platform that the kernel's parameters name, for as long as the node runs. A platform without a
    /// source of data needs no client.
    pub(super) async fn follow_platform(self: Arc<Machine>) {
        let Some(platform) = corten_platform::find(self.cmdline.platform()) else {
            return;
        };
        let mut setup = self.setup.subscribe();
        if setup.wait_for(Option::is_some).await.is_err() {
            return;
        }
        if platform.volume.is_some() {
            self.supervisor.up("udevd").await;
        }
        if !platform.bases.is_empty() {
            let route = corten_platform::await_route(platform, self.network.reachable());
            let _ = timeout(ADDRESS_PATIENCE, route).await;
        }
        let name = platform.name;
        console::say(&format!(
            "asking the platform {name} for this machine's metadata"
        ));
        let client = Client::new(&fs::read(CA_FILE).unwrap_or_default());
        if platform.wants_report {
            tokio::spawn(self.clone().report_ready(client.clone()));
        }
        follow(
            platform,
            client,
            Arc::new(ThisMachine {
                node: self.node.clone(),
                has_source: self.takes_config_of_platform(),
            }),
            Pace::default(),
            cards,
            |news| self.platform.hear(name, news),
        )
        .await;
    }

    /// Reports to the platform that the machine runs, once the node's API can be called.
    async fn report_ready(self: Arc<Machine>, client: Client) {
        self.supervisor.up("apid").await;
        let tell = |what| {
            console::say(&format!(
                "reporting to the platform that the machine runs: {what}"
            ));
        };
        corten_platform::report_ready(client, Pace::default(), tell).await;
    }

    /// Whether the kernel's parameters name no other source of the config than the platform.
    fn takes_config_of_platform(&self) -> bool {
        let sources = corten_acquire::Sources::read(&self.cmdline, "");
        sources.is_ok_and(|sources| matches!(sources.platform, Some(Source::Platform(_))))
    }
}

/// The network settings of an answer.
pub(super) fn seed_of(instance: &Instance) -> Seed {
    let network = instance.network.clone();
    Seed {
        network: network.seed,
        hostname: network.hostname,
        time_servers: network.time_servers,
        ..Seed::default()
    }
}

/// Local sources of this machine: volumes and the hypervisor's guest info.
struct ThisMachine {
    node: Arc<NodeState>,
    /// Whether the platform is the source of the machine config.
    has_source: bool,
}

impl Local for ThisMachine {
    fn volume(
        &self,
        labels: &[&str],
        files: &[&str],
    ) -> Result<Option<Vec<Option<Vec<u8>>>>, String> {
        match labels {
            [] => corten_acquire::read_discs(files, Path::new(MOUNT_POINT)),
            labels => corten_acquire::read_files(labels, files, Path::new(MOUNT_POINT)),
        }
    }

    fn guestinfo(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        corten_platform::guestinfo(&mut corten_sys::vmware::call, key)
    }

    fn needs_config(&self) -> bool {
        self.has_source && self.node.config().is_none()
    }
}

/// Network cards of the machine, sorted by name.
fn cards() -> Vec<Card> {
    cards_of(Path::new(NETWORK_CARDS))
}

fn cards_of(class: &Path) -> Vec<Card> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let links = entries.map(|entry| entry.path());
    let mut cards: Vec<Card> = links
        .filter(|link| link.join("device").exists())
        .filter_map(|link| {
            let name = link.file_name()?.to_str()?.to_owned();
            let mac = bytes(&sysfs::read(&link.join("address")));
            let mac = mac.try_into().ok()?;
            Some(Card { name, mac })
        })
        .collect();
    cards.sort_by(|one, other| one.name.cmp(&other.name));
    cards
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refused_config_of_a_platform_is_awaited_until_its_answer_changes() {
        let heard = Heard::default();
        let said = |config: Option<&str>, unusable: Option<&str>, region: &str| {
            let mut instance = Instance {
                config: config.map(|config| config.as_bytes().to_vec()),
                unusable: unusable.map(str::to_owned),
                ..Instance::default()
            };
            region.clone_into(&mut instance.metadata.region);
            heard.hear("aws", News::Said(Box::new(instance)));
        };
        said(None, Some("user-data: is broken gzip"), "a");
        let refused = heard.config(None).await;
        assert_eq!(refused, Err("user-data: is broken gzip".to_owned()));
        // A change of other metadata is no new config.
        said(None, Some("user-data: is broken gzip"), "b");
        let patience = Duration::from_secs(3600);
        let same = timeout(patience, heard.config(Some(&refused))).await;
        assert!(same.is_err(), "{same:?}");
        let correct = async {
            sleep(Duration::from_secs(1)).await;
            said(Some("machine: {}"), None, "b");
        };
        let (corrected, ()) = tokio::join!(heard.config(Some(&refused)), correct);
        assert_eq!(corrected, Ok(Some(b"machine: {}".to_vec())));
    }

    #[test]
    fn physical_links_are_devices_with_an_ethernet_address() {
        let class = tempfile::tempdir().unwrap();
        for (name, address, is_device) in [
            ("eth1", "52:54:00:00:00:02\n", true),
            ("eth0", "52:54:00:00:00:01\n", true),
            ("lo", "00:00:00:00:00:00\n", false),
            ("ib0", "80:00:02:08:fe:80:00:00:00:00:00:00:00:02\n", true),
            ("wwan0", "\n", true),
        ] {
            let link = class.path().join(name);
            fs::create_dir(&link).unwrap();
            fs::write(link.join("address"), address).unwrap();
            if is_device {
                fs::create_dir(link.join("device")).unwrap();
            }
        }
        let cards = cards_of(class.path());
        let found: Vec<(&str, u8)> = cards
            .iter()
            .map(|card| (&*card.name, card.mac[5]))
            .collect();
        assert_eq!(found, [("eth0", 1), ("eth1", 2)]);
    }
}

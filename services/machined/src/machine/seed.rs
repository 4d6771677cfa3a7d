//! Follows the network settings of a NoCloud seed. The seed is read at every boot, and kept for boots without it.

use std::path::Path;
use std::sync::Arc;

use corten_acquire::SEED_LABELS;
use corten_base::console;
use corten_base::sysfs;
use corten_network::seed::{Files, Kept, NAMES, Place, Seed};
use corten_platform::{Instance, Metadata};
use corten_volumes::{Progress, STATE};
use tokio::time::timeout;

use super::{ADDRESS_PATIENCE, Machine};

/// Mount point of the seed's volume; the volume of the machine config may be mounted at the same time.
const MOUNT_POINT: &str = "/run/seed-source";

impl Machine {
    /// Has the network follow the seed: first the kept one, then the present one.
    pub(super) async fn follow_seed(self: Arc<Machine>) {
        if self.cmdline.platform() != "nocloud" {
            return;
        }
        let mut setup = self.setup.subscribe();
        if setup.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let place = Place::read(&sysfs::read(Path::new("/sys/class/dmi/id/product_serial")));
        let is_known = self.use_kept(&place);
        let shown = match &place.url {
            Some(url) => format!("seed at {}", corten_acquire::shown(url)),
            None => format!("seed on volume {}", SEED_LABELS.join(" or ")),
        };
        let found = match self.find_seed(&place, &shown).await {
            Ok(Some(files)) => Some(files),
            Ok(None) => {
                console::say(&format!("network: there is no {shown}"));
                None
            }
            Err(why) => {
                console::warn(&format!("network: the {shown} is not used: {why}"));
                None
            }
        };
        let used = found.filter(|files| self.use_seed(files, &place, &shown));
        // The disk may appear late, with its driver, and only then the kept seed. An unusable seed is not kept: the
        // next boot reports it again and follows the seed kept before.
        let mut volumes = self.volumes.subscribe();
        if volumes
            .wait_for(|now| *now != Progress::Awaited)
            .await
            .is_err()
        {
            return;
        }
        match used {
            Some(files) => keep(&files),
            None if !is_known && !self.use_kept(&place) => {
                // The serial number alone may give the machine's name.
                self.use_seed(&Files::default(), &place, "serial number");
            }
            None => {}
        }
    }

    async fn find_seed(
        self: &Arc<Machine>,
        place: &Place,
        shown: &str,
    ) -> Result<Option<Files>, String> {
        match &place.url {
            Some(url) => {
                let _ = timeout(ADDRESS_PATIENCE, self.network.reachable()).await;
                let (machine, url) = (Arc::clone(self), url.clone());
                let find = move || corten_acquire::fetch_seed(&url, &machine.facts()).map(Some);
                corten_acquire::look(shown, find).await
            }
            None => {
                self.supervisor.up("udevd").await;
                let find =
                    || corten_acquire::read_volume(SEED_LABELS, NAMES, Path::new(MOUNT_POINT));
                corten_acquire::look(shown, find).await
            }
        }
    }

    /// Uses the kept seed; returns whether there was a usable one.
    fn use_kept(&self, place: &Place) -> bool {
        let Some(kept) = Kept::on_volume(Path::new(STATE.target)) else {
            return false;
        };
        match kept.load() {
            Ok(Some(files)) => self.use_seed(&files, place, "seed of an earlier boot"),
            Ok(None) => false,
            Err(error) => {
                console::warn(&format!("network: cannot read the stored seed: {error}"));
                false
            }
        }
    }

    /// Hands the seed to the network; returns whether it is usable. An unusable seed changes nothing.
    fn use_seed(&self, files: &Files, place: &Place, shown: &str) -> bool {
        match Seed::parse(files, place) {
            Ok(seed) => {
                if seed != Seed::default() {
                    console::say(&format!("network: following the {shown}"));
                }
                let instance = instance_of(self.cmdline.platform(), &seed);
                self.platform
                    .instance
                    .send_replace(Some(Arc::new(instance)));
                self.platform.seed.send_replace(Some(Arc::new(seed)));
                true
            }
            Err(why) => {
                console::warn(&format!("network: the {shown} is not used: {why}"));
                false
            }
        }
    }
}

/// Facts about the machine from a seed, apart from its network. The serial number may give the name.
fn instance_of(platform: &str, seed: &Seed) -> Instance {
    let metadata = Metadata::of_seed(&seed.identity);
    Instance {
        metadata: Metadata {
            platform: platform.to_owned(),
            hostname: seed.hostname.clone().unwrap_or_default(),
            ..metadata
        },
        ..Instance::default()
    }
}

/// Keeps the seed for the next boot.
fn keep(files: &Files) {
    let Some(kept) = Kept::on_volume(Path::new(STATE.target)) else {
        return;
    };
    if let Err(error) = kept.save(files) {
        console::warn(&format!("network: cannot store the seed: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_identifies_the_machine_under_the_name_of_its_serial_number() {
        let meta = b"local-hostname: a\ninstance-id: i-1\nregion: r\n".to_vec();
        let seed = Seed::parse(&[None, Some(meta)], &Place::read("ds=nocloud;h=b")).unwrap();
        let metadata = instance_of("nocloud", &seed).metadata;
        let shown = [
            &metadata.platform,
            &metadata.hostname,
            &metadata.instance_id,
            &metadata.region,
        ];
        assert_eq!(shown, ["nocloud", "b", "i-1", "r"]);
    }
}

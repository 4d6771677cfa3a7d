//! Stores the DHCP addresses of links on STATE: after a boot, a link requests its former address.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use corten_base::console;
use corten_base::durable;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Limit of stored links, beyond any real machine.
const MOST: usize = 64;
/// Size limit of the file in bytes; names and addresses are short.
const LONGEST: u64 = 16 * 1024;

/// An address that is stored.
pub trait Stored: Copy + Eq + Send + Serialize + DeserializeOwned + 'static {
    /// The file of such addresses: a JSON map from link names to addresses.
    const FILE: &'static str;
}

impl Stored for Ipv4Addr {
    const FILE: &'static str = "dhcp4.json";
}

impl Stored for Ipv6Addr {
    const FILE: &'static str = "dhcp6.json";
}

/// Handle to the stored addresses; cheap to clone.
#[derive(Debug, Clone)]
pub struct Former {
    mount_point: PathBuf,
    /// Held from reading to writing, because each link has a client of its own.
    changing: Arc<Mutex<()>>,
}

impl Former {
    /// Stores addresses on the volume mounted here, now or later; without a mounted volume it stores nothing.
    #[must_use]
    pub fn on_volume(mount_point: &Path) -> Former {
        Former {
            mount_point: mount_point.to_owned(),
            changing: Arc::default(),
        }
    }

    /// Former address of this link.
    #[must_use]
    pub fn address<A: Stored>(&self, link: &str) -> Option<A> {
        self.is_kept().then(|| self.read().remove(link)).flatten()
    }

    /// Stores the address of this link. A failure is only logged: the lease holds anyway.
    pub fn keep<A: Stored>(&self, link: &str, address: A) {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_kept() {
            return;
        }
        let mut all = self.read::<A>();
        if all.insert(link.to_owned(), address) == Some(address) {
            return;
        }
        while all.len() > MOST {
            let other = all.keys().find(|name| *name != link).cloned();
            all.remove(&other.unwrap_or_default());
        }
        let written = serde_json::to_vec(&all)
            .map_err(io::Error::from)
            .and_then(|bytes| durable::replace(&self.mount_point, A::FILE, &bytes));
        if let Err(error) = written {
            console::warn(&format!(
                "network: the address of {link} is not kept for the next boot: {error}"
            ));
        }
    }

    fn is_kept(&self) -> bool {
        durable::is_volume(&self.mount_point)
    }

    /// All stored addresses. A broken or foreign file counts as empty and is replaced by the next write.
    fn read<A: Stored>(&self) -> BTreeMap<String, A> {
        let path = self.mount_point.join(A::FILE);
        let mut bytes = Vec::new();
        let read =
            File::open(&path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
        let found = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
            Err(error) => Err(error.to_string()),
            Ok(length) if length as u64 > LONGEST => {
                Err(format!("it is longer than {LONGEST} bytes"))
            }
            Ok(_) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        };
        found.unwrap_or_else(|why| {
            console::warn(&format!(
                "network: ignoring {}, the file with the addresses of earlier boots: {why}",
                path.display()
            ));
            BTreeMap::new()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_base::testing::on_a_volume;

    use super::*;

    const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x50);
    const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
    const FILE: &str = Ipv6Addr::FILE;

    #[test]
    fn former_address_is_kept_across_a_reboot() {
        on_a_volume("mode=700", |volume| {
            let former = Former::on_volume(volume);
            assert_eq!(former.address::<Ipv6Addr>("eth0"), None);
            former.keep("eth0", Ipv6Addr::LOCALHOST);
            former.keep("eth0", OWN_V4);
            former.keep("eth1", Ipv6Addr::LOCALHOST);
            former.keep("eth0", OWN);
            let former = Former::on_volume(volume);
            assert_eq!(former.address("eth0"), Some(OWN));
            assert_eq!(former.address("eth1"), Some(Ipv6Addr::LOCALHOST));
            assert_eq!(former.address("eth0"), Some(OWN_V4));
            assert_eq!(former.address::<Ipv4Addr>("eth1"), None);
            assert_eq!(former.address::<Ipv6Addr>("eth2"), None);
        });
    }

    #[test]
    fn former_address_is_not_stored_without_a_volume() {
        let directory = tempfile::tempdir().unwrap();
        let former = Former::on_volume(directory.path());
        former.keep("eth0", OWN);
        assert_eq!(former.address::<Ipv6Addr>("eth0"), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn malformed_address_file_is_ignored_and_replaced() {
        on_a_volume("mode=700", |volume| {
            let former = Former::on_volume(volume);
            let long = format!("{{\"eth0\":\"{OWN}\"}}{}", " ".repeat(16 * 1024));
            for text in ["", "[]", "{\"eth0\":\"10.0.0.1\"}", "{\"eth0\":", &long] {
                fs::write(volume.join(FILE), text).unwrap();
                assert_eq!(former.address::<Ipv6Addr>("eth0"), None, "{text}");
                former.keep("eth0", OWN);
                assert_eq!(former.address("eth0"), Some(OWN), "{text}");
            }
            fs::remove_file(volume.join(FILE)).unwrap();
            fs::create_dir(volume.join(FILE)).unwrap();
            former.keep("eth0", OWN);
            assert_eq!(former.address::<Ipv6Addr>("eth0"), None);
        });
    }

    #[test]
    fn number_of_stored_links_is_bounded() {
        on_a_volume("mode=700", |volume| {
            let former = Former::on_volume(volume);
            for number in 0..MOST + 10 {
                former.keep(&format!("eth{number}"), OWN);
            }
            assert_eq!(former.read::<Ipv6Addr>().len(), MOST);
            former.keep("a", OWN);
            assert_eq!(former.address("a"), Some(OWN));
            assert!(fs::metadata(volume.join(FILE)).unwrap().len() < LONGEST);
        });
    }
}

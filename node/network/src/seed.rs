//! A NoCloud seed: configuration that a cloud or hypervisor provides to a machine (cloud-init's documentation:
//! "NoCloud").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corten_base::durable;
use corten_seed::{SeedIdentity, SeedNetwork, identity, network};

use corten_values::is_host_name;

/// Location of a seed, from the machine's serial number (SMBIOS type 1):
/// `ds=nocloud;h=NAME;s=http://server/directory/`. All fields but the first are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// URL of the directory, with a trailing `/`; absent for a CIDATA volume.
    pub url: Option<String>,
    /// Host name of the machine; it overrides the one in `meta-data`.
    pub hostname: Option<String>,
}

impl Place {
    /// Parses the serial number; one without a seed gives the default.
    #[must_use]
    pub fn read(serial: &str) -> Place {
        let mut fields = serial.trim().split(';');
        if !matches!(fields.next(), Some("ds=nocloud" | "ds=nocloud-net")) {
            return Place::default();
        }
        let mut place = Place::default();
        for field in fields {
            match field.split_once('=') {
                Some(("s" | "seedfrom", url)) if is_url(url) => {
                    let end = if url.ends_with('/') { "" } else { "/" };
                    place.url = Some(format!("{url}{end}"));
                }
                Some(("h" | "local-hostname", name)) if is_host_name(name) => {
                    place.hostname = Some(name.to_owned());
                }
                _ => {}
            }
        }
        place
    }
}

fn is_url(text: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
}

/// Names of the network files, in the order of [`Files`].
pub const NAMES: [&str; 2] = ["network-config", "meta-data"];

/// Contents of the files; `None` for a missing file.
pub type Files = [Option<Vec<u8>>; 2];

/// Network settings from a seed or a cloud's metadata service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seed {
    /// Links, addresses, routes, name servers.
    pub network: SeedNetwork,
    /// Host name of the machine.
    pub hostname: Option<String>,
    /// Time servers.
    pub time_servers: Vec<String>,
    /// Identity of the machine on the platform, from `meta-data`.
    pub identity: SeedIdentity,
}

impl Seed {
    /// Parses the files. Either may be missing.
    ///
    /// # Errors
    /// All problems of the first broken file, with the file's name.
    pub fn parse(files: &Files, place: &Place) -> Result<Seed, String> {
        let [config, meta] = files;
        let wrong = |file: &str, problems: &dyn std::fmt::Display| {
            format!("{file}: {problems}; correct it on the seed and restart the node")
        };
        let [config_name, meta_name] = NAMES;
        let network = network(config.as_deref().unwrap_or_default())
            .map_err(|problems| wrong(config_name, &problems))?;
        let identity = identity(meta.as_deref().unwrap_or_default())
            .map_err(|problems| wrong(meta_name, &problems))?;
        let hostname = place.hostname.as_deref().or(identity.name());
        Ok(Seed {
            network: network.unwrap_or_default(),
            hostname: hostname.map(str::to_owned),
            time_servers: Vec::new(),
            identity,
        })
    }
}

/// Copy of the seed files on disk, so that the node keeps its network after the seed is removed.
#[derive(Debug, Clone)]
pub struct Kept(PathBuf);

impl Kept {
    /// The copy on a volume; `None` when no volume is mounted there.
    #[must_use]
    pub fn on_volume(mount_point: &Path) -> Option<Kept> {
        durable::is_volume(mount_point).then(|| Kept(mount_point.join("seed")))
    }

    /// Loads the stored files; `None` when there are none.
    ///
    /// # Errors
    /// The volume cannot be read.
    pub fn load(&self) -> io::Result<Option<Files>> {
        let read = |name: &str| match fs::read(self.0.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let [config, meta] = NAMES;
        let files = [read(config)?, read(meta)?];
        Ok(files.iter().any(Option::is_some).then_some(files))
    }

    /// Replaces the stored files with these. On return they are durable.
    ///
    /// # Errors
    /// The volume is full or broken; each file has its old or its new content.
    pub fn save(&self, files: &Files) -> io::Result<()> {
        if self.load()?.as_ref() == Some(files) {
            return Ok(());
        }
        fs::create_dir_all(&self.0)?;
        for (name, bytes) in NAMES.iter().zip(files) {
            match bytes {
                Some(bytes) => durable::replace(&self.0, name, bytes)?,
                None => durable::remove_if_there(&self.0.join(name))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nocloud_seed_location_is_read_from_the_serial_number() {
        let place = |url: Option<&str>, hostname: Option<&str>| Place {
            url: url.map(str::to_owned),
            hostname: hostname.map(str::to_owned),
        };
        for (serial, expected) in [
            ("", place(None, None)),
            ("ds=nocloud", place(None, None)),
            ("h=a;ds=nocloud", place(None, None)),
            (
                "ds=nocloud-net;s=http://10.0.0.1/n;h=a.b\n",
                place(Some("http://10.0.0.1/n/"), Some("a.b")),
            ),
            (
                "ds=nocloud;seedfrom=https://x/;local-hostname=a",
                place(Some("https://x/"), Some("a")),
            ),
            ("ds=nocloud;s=/var/lib/seed;h=-a;i=1;x", place(None, None)),
        ] {
            assert_eq!(Place::read(serial), expected, "{serial}");
        }
    }

    #[test]
    fn seed_problems_are_reported_with_file_and_field() {
        let parse = |config: &str, meta: &str| {
            let files = [Some(config.into()), Some(meta.into())];
            Seed::parse(&files, &Place::default())
        };
        let network = parse("version: 2\nethernets: {eth0: {addresses: [a]}}\n", "").unwrap_err();
        assert!(
            network.starts_with(
                "network-config: line 2, column 32: ethernets.eth0.addresses[0] must be an address"
            ),
            "{network}"
        );
        let meta = parse("", "local-hostname: 'a b'\n").unwrap_err();
        assert!(
            meta.starts_with("meta-data: line 1, column 17: local-hostname must be"),
            "{meta}"
        );
        let meta = "hostname: a\nlocal-hostname: b\ninstance-id: i\npublic-keys: {x: y}\n";
        let seed = parse("", meta).unwrap();
        assert_eq!(seed.hostname.as_deref(), Some("a"));
        assert_eq!(seed.identity.instance_id, "i");
        let place = Place::read("ds=nocloud;h=c");
        let by_serial = Seed::parse(&[None, Some(b"hostname: a".to_vec())], &place).unwrap();
        assert_eq!(by_serial.hostname.as_deref(), Some("c"));
    }

    #[test]
    fn seed_files_are_kept_until_replaced() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Kept::on_volume(directory.path()).is_none());
        let kept = Kept(directory.path().join("seed"));
        assert_eq!(kept.load().unwrap(), None);
        let both = [Some(b"one".to_vec()), Some(b"two".to_vec())];
        kept.save(&both).unwrap();
        kept.save(&both).unwrap();
        assert_eq!(kept.load().unwrap(), Some(both));
        let one = [None, Some(b"two".to_vec())];
        kept.save(&one).unwrap();
        assert_eq!(kept.load().unwrap(), Some(one));
        kept.save(&[None, None]).unwrap();
        assert_eq!(kept.load().unwrap(), None);
    }
}

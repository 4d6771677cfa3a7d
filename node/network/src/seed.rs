//! A NoCloud seed: what a cloud, or who makes virtual machines, puts beside a machine (cloud-init's
//! documentation: "NoCloud").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corten_base::durable;
use corten_config::platform::{SeedNetwork, identity, network};

use super::lease::is_name;

/// Where a seed is, by the machine's serial number (SMBIOS type 1):
/// `ds=nocloud;h=NAME;s=http://server/directory/`, each but the first left out at will.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The directory's URL, with `/` at its end; absent: a volume CIDATA.
    pub url: Option<String>,
    /// The machine's name, over that in `meta-data`.
    pub hostname: Option<String>,
}

impl Place {
    /// Reads the serial number; one that does not speak of a seed says nothing.
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
                Some(("h" | "local-hostname", name)) if is_name(name) => {
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

/// Names of the files about the network, in the order of [`Files`].
pub const NAMES: [&str; 2] = ["network-config", "meta-data"];

/// What the files hold; absent: there is none.
pub type Files = [Option<Vec<u8>>; 2];

/// What a seed, or a cloud's metadata service, says of the network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seed {
    /// Links, addresses, routes, name servers.
    pub network: SeedNetwork,
    /// The machine's name.
    pub hostname: Option<String>,
    /// Who tells the time.
    pub time_servers: Vec<String>,
}

impl Seed {
    /// Reads the files. Either may be missing.
    ///
    /// # Errors
    /// Everything that is wrong with the first that is, with the file's name.
    pub fn parse(files: &Files, place: &Place) -> Result<Seed, String> {
        let [config, meta] = files;
        let wrong = |file: &str, problems: &dyn std::fmt::Display| {
            format!("{file}: {problems}; correct it on the seed, and start the node again")
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
            ..Seed::default()
        })
    }
}

/// Where the files are kept between boots: who takes the seed away keeps the network.
#[derive(Debug, Clone)]
pub struct Kept(PathBuf);

impl Kept {
    /// On a volume; `None` when none is mounted there.
    #[must_use]
    pub fn on_volume(mount_point: &Path) -> Option<Kept> {
        durable::is_volume(mount_point).then(|| Kept(mount_point.join("seed")))
    }

    /// What was kept; `None`: nothing.
    ///
    /// # Errors
    /// The volume's.
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

    /// Keeps these files, and no others. Once this returns, they are on the disk.
    ///
    /// # Errors
    /// The volume is full or broken; each file is what it was, or new.
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
    fn the_serial_number_says_where_a_seed_is() {
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
    fn what_is_wrong_is_told_with_its_file_and_field() {
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
        let seed = parse("", "hostname: a\nlocal-hostname: b\npublic-keys: {x: y}\n").unwrap();
        assert_eq!(seed.hostname.as_deref(), Some("a"));
        let place = Place::read("ds=nocloud;h=c");
        let by_serial = Seed::parse(&[None, Some(b"hostname: a".to_vec())], &place).unwrap();
        assert_eq!(by_serial.hostname.as_deref(), Some("c"));
    }

    #[test]
    fn files_are_kept_until_others_are() {
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

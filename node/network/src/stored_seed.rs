//! The network settings of a cloud's last answer, stored for a boot at which the cloud does not answer. The machine
//! config, which the same answer may hold, is not part of them.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use corten_base::durable;
use corten_seed::SeedNetwork;
use corten_values::is_host_name;
use serde::{Deserialize, Serialize};

use super::seed::Seed;

/// Name of the file.
const FILE: &str = "platform-network.json";
/// Size limit of the file in bytes, the same as that of a document of a cloud.
const LONGEST: usize = 1024 * 1024;

/// Content of the file. Unknown fields are ignored, so that an older version reads the file of a newer one.
#[derive(Serialize, Deserialize)]
struct Content {
    /// Name of the platform. Another one does not have these addresses.
    platform: String,
    #[serde(default)]
    hostname: Option<String>,
    #[serde(default)]
    time_servers: Vec<String>,
    network: SeedNetwork,
}

impl Content {
    /// The settings, unless they are of another platform, or cannot be those of an answer.
    fn seed_of(mut self, platform: &str) -> Result<Seed, String> {
        if self.platform != platform {
            let other = self.platform;
            return Err(format!("they are those of the platform {other:?}"));
        }
        if let Some(problem) = self.network.problems().first() {
            return Err(format!("the network {problem}"));
        }
        if self
            .hostname
            .as_deref()
            .is_some_and(|name| !is_host_name(name))
        {
            return Err("hostname is not a host name".to_owned());
        }
        // A cloud may say something else. These become lines of files, and the addresses hold without them.
        let is_server = |name: &String| is_host_name(name) || name.parse::<IpAddr>().is_ok();
        self.time_servers.retain(is_server);
        let domains = &mut self.network.search_domains;
        domains.retain(|name| is_host_name(name));
        Ok(Seed {
            network: self.network,
            hostname: self.hostname,
            time_servers: self.time_servers,
            ..Seed::default()
        })
    }
}

/// The stored settings of a platform.
#[derive(Debug, Clone)]
pub struct StoredSeed {
    directory: PathBuf,
    platform: String,
}

impl StoredSeed {
    /// The settings of the platform with this name, in a directory.
    #[must_use]
    pub fn new(directory: &Path, platform: &str) -> StoredSeed {
        StoredSeed {
            directory: directory.to_owned(),
            platform: platform.to_owned(),
        }
    }

    /// The stored settings; `None` when there are none.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is that of another platform; the text names it and says why.
    pub fn load(&self) -> Result<Option<Seed>, String> {
        let found = self.read().map_err(|error| error.to_string());
        let found = found.and_then(|bytes| {
            let Some(bytes) = bytes else {
                return Ok(None);
            };
            let content: Content =
                serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            content.seed_of(&self.platform).map(Some)
        });
        found.map_err(|why| format!("{}: {why}", self.directory.join(FILE).display()))
    }

    /// Replaces the stored settings if they differ. When this returns, they are durable.
    ///
    /// # Errors
    /// The volume is full or broken, or the settings exceed the size limit; the file is unchanged.
    pub fn save(&self, seed: &Seed) -> io::Result<()> {
        let bytes = serde_json::to_vec(&Content {
            platform: self.platform.clone(),
            hostname: seed.hostname.clone(),
            time_servers: seed.time_servers.clone(),
            network: seed.network.clone(),
        })?;
        if bytes.len() > LONGEST {
            return Err(too_long());
        }
        // An unreadable file is replaced.
        if self.read().ok().flatten().as_ref() == Some(&bytes) {
            return Ok(());
        }
        durable::replace(&self.directory, FILE, &bytes)
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.directory.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
        match bytes.len() <= LONGEST {
            true => Ok(Some(bytes)),
            false => Err(too_long()),
        }
    }
}

fn too_long() -> io::Error {
    io::Error::other(format!("larger than {} KiB", LONGEST / 1024))
}

#[cfg(test)]
#[path = "stored_seed_tests.rs"]
mod tests;

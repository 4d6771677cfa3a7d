//! The daemon's configuration: a JSON file that machined replaces by an atomic rename, read again after each rename. A
//! file outlives both daemons, so neither has to remember the other's state.

use anyhow::Context as _;
use rustix::fs::inotify;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

/// Content of the file. Without a file there are no destinations and no disks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Receivers of logs.
    pub destinations: Vec<Destination>,
    /// Directory of the log files; set after its volume is mounted.
    pub files: Option<PathBuf>,
    /// Directory of the tails for the next boot; set after its volume is mounted.
    pub records: Option<PathBuf>,
}

/// A receiver of logs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// Address of the receiver.
    pub endpoint: Endpoint,
    /// Logs to send.
    pub logs: Logs,
    /// Fields to add to every message.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// Selection of logs for a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Logs {
    /// All logs but the kernel's.
    Services,
    /// The kernel's log.
    Kernel,
}

/// Transport of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A line per message.
    Tcp,
    /// A datagram per message.
    Udp,
}

/// `tcp://host:port` or `udp://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Endpoint {
    /// Transport of the messages.
    pub protocol: Protocol,
    /// `host:port`; an IPv6 address has brackets.
    pub address: String,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        write!(f, "{protocol}://{}", self.address)
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Endpoint, String> {
        let wrong = || format!("endpoint {text:?} must be tcp://host:port or udp://host:port");
        let (scheme, address) = text.split_once("://").ok_or_else(wrong)?;
        let protocol = match scheme {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return Err(wrong()),
        };
        let address = address.strip_suffix('/').unwrap_or(address);
        let port = address.rsplit_once(':').map(|(_, port)| port.parse());
        match port {
            Some(Ok(1_u16..)) => Ok(Endpoint {
                protocol,
                address: address.to_owned(),
            }),
            _ => Err(wrong()),
        }
    }
}

/// Reads the file. A missing file is an empty config.
fn load(path: &Path) -> anyhow::Result<Config> {
    match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
        read => serde_json::from_slice(&read?).context("not a valid config of syslogd"),
    }
}

/// Publishes the file's content, now and after every change, for ever. Reports an unreadable file to `complain` and
/// keeps the previous content.
///
/// # Errors
/// If the directory cannot be watched.
pub async fn follow(
    path: PathBuf,
    publish: &watch::Sender<Config>,
    complain: impl Fn(String),
) -> anyhow::Result<()> {
    let directory = path.parent().context("a file in a directory")?;
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let events = inotify::init(flags)?;
    inotify::add_watch(&events, directory, inotify::WatchFlags::MOVED_TO)
        .with_context(|| format!("watch {}", directory.display()))?;
    // Not a pipe, but it can be polled and read without blocking.
    let events = Receiver::from_file_unchecked(events.into())?;
    loop {
        match load(&path) {
            Ok(config) => drop(publish.send_if_modified(|now| {
                let modified = *now != config;
                *now = config;
                modified
            })),
            Err(error) => complain(format!("{}: {error:#}", path.display())),
        }
        // The name of the renamed file does not matter: reading the config again is cheap.
        let mut buffer = [0; 4096];
        loop {
            events.readable().await?;
            match events.try_read(&mut buffer) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, Endpoint, follow, load};
    use tokio::sync::watch;

    #[test]
    fn endpoints_are_read_or_named_in_the_refusal() {
        for good in [
            "tcp://10.0.0.1:514",
            "udp://[fd00::1]:5140",
            "tcp://logs.example:1/",
        ] {
            let endpoint = Endpoint::try_from(good.to_owned()).unwrap();
            assert_eq!(endpoint.to_string(), good.trim_end_matches('/'));
        }
        for bad in [
            "",
            "tcp://",
            "tls://a:1",
            "tcp://a",
            "tcp://a:0",
            "tcp://a:99999",
            "a:1",
        ] {
            let refusal = Endpoint::try_from(bad.to_owned()).unwrap_err();
            assert!(refusal.contains(&format!("{bad:?}")), "{refusal}");
        }
    }

    #[tokio::test]
    async fn new_config_is_loaded_and_a_broken_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        assert_eq!(load(&path).unwrap(), Config::default());
        let (publish, mut config) = watch::channel(Config::default());
        let (complaint, mut complaints) = tokio::sync::mpsc::unbounded_channel();
        let complain = move |text| complaint.send(text).unwrap();
        let watched = path.clone();
        tokio::spawn(async move { follow(watched, &publish, complain).await });
        // Written like machined does; the watch may start before or after.
        let write = |text: &str| {
            let new = directory.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &path).unwrap();
        };
        write(r#"{"files": "/a"}"#);
        config.changed().await.unwrap();
        assert_eq!(config.borrow_and_update().files, Some("/a".into()));
        write(r#"{"files": 7}"#);
        let complaint = complaints.recv().await.unwrap();
        assert!(complaint.contains("config.json"), "{complaint}");
        assert_eq!(config.borrow().files, Some("/a".into()));
        write(r#"{"files": "/b"}"#);
        config.changed().await.unwrap();
        assert_eq!(config.borrow().files, Some("/b".into()));
    }
}

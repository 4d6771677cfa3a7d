//! Fetches the machine config of a node that has none stored: from kernel parameters, servers, volumes and clouds.
//!
//! Owns: the sources, their order, URLs and tokens, the time to wait for a source, and the decoding of an answer.
//! Never: checks a config against the node, applies it or stores it.

mod decode;
mod disc;
mod oauth;
mod patience;
mod server;
#[cfg(test)]
mod testing;
mod url;
mod volume;

use corten_api::parameters;
use corten_base::cmdline::Cmdline;
use corten_base::mode::{CONTAINER, USER_DATA};
use corten_changes::Patch;
use corten_config::Document;
use corten_network::seed::{Files, NAMES, Place};
use corten_yaml::problem::{Notes, Problems};
use corten_yaml::tree;
pub use disc::read_discs;
pub use oauth::OAuth;
pub use patience::look;
pub use server::Server;
pub use url::{Facts, get_with, shown};
pub use volume::{find as read_volume, read_files};

/// Size limit of a config, in bytes.
const LARGEST: u64 = 8 << 20;
/// Labels of a NoCloud seed's volume.
pub const SEED_LABELS: &[&str] = &["cidata", "CIDATA"];

/// A source of a config for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A server; the URL may have placeholders.
    Url(String),
    /// A volume with one of these labels, and the file on it.
    Volume {
        /// Labels as mkfs or the ISO's maker wrote them.
        labels: &'static [&'static str],
        /// File name in the root of the volume.
        file: &'static str,
    },
    /// The runtime of the container that the node runs in.
    Runtime,
    /// The platform of this name. The node follows it for other data, too.
    Platform(&'static str),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Url(template) => f.write_str(&shown(template)),
            Source::Volume { labels, file } => {
                write!(f, "{file} on volume {}", labels.join(" or "))
            }
            Source::Runtime => write!(f, "the variable {USER_DATA}"),
            Source::Platform(name) => write!(f, "the platform {name}"),
        }
    }
}

/// Config sources in the kernel parameters.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Config that the platform's config overrides.
    pub early: Option<Vec<u8>>,
    /// Source to query.
    pub platform: Option<Source>,
    /// Authorization that the server of `corten.config=URL` wants.
    pub oauth: Option<OAuth>,
    /// Config that overrides the platform's config.
    pub inline: Option<Vec<u8>>,
}

impl Sources {
    /// Reads the parameters, and the machine's serial number (SMBIOS type 1) for `nocloud`.
    ///
    /// # Errors
    /// The text names the parameter and the remedy.
    pub fn read(cmdline: &Cmdline, serial: &str) -> Result<Sources, String> {
        let config = cmdline.ours(parameters::CONFIG);
        let oauth = match config.filter(|config| url::is_url(config)) {
            Some(config) => OAuth::read(cmdline, config)?,
            None => None,
        };
        Ok(Sources {
            oauth,
            early: decode::parameter(cmdline, parameters::CONFIG_EARLY)?,
            platform: platform(cmdline, serial)?,
            inline: decode::parameter(cmdline, parameters::CONFIG_INLINE)?,
        })
    }

    /// Whether there is neither a source nor a config.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Sources::default()
    }

    /// Whether the kernel parameters hold a whole or partial config themselves.
    #[must_use]
    pub fn hold_some(&self) -> bool {
        self.early.is_some() || self.inline.is_some()
    }

    /// Whether the kernel parameters hold the document without a kind, which has the secrets of a machine config, or what
    /// may be one. Other documents alone, such as those of the network, belong to nobody.
    #[must_use]
    pub fn hold_machine_config(&self) -> bool {
        let parts = [self.early.as_deref(), self.inline.as_deref()];
        parts.into_iter().flatten().any(|part| {
            let mut notes = Notes::default();
            let trees = tree::read(&String::from_utf8_lossy(part), &mut notes);
            let mut documents = trees.iter().flatten();
            !notes.is_empty() || documents.any(|document| document.get("kind").is_none())
        })
    }

    /// Merges the configs; `platform` is that of the platform.
    ///
    /// # Errors
    /// The problems of the config, with line and column.
    pub fn merge(&self, platform: Option<&[u8]>) -> Result<Document, Problems> {
        let parts: Vec<&[u8]> = [self.early.as_deref(), platform, self.inline.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let (first, later) = match parts.as_slice() {
            // A single config is parsed as it is: it keeps its comments, and its problems keep their line numbers.
            [] => return Document::parse(b""),
            [only] => return Document::parse(only),
            [first, later @ ..] => (first, later),
        };
        let patches = later
            .iter()
            .map(|part| Patch::parse(part))
            .collect::<Result<Vec<_>, _>>()?;
        Document::parse(corten_changes::patch(first, &patches)?.as_bytes())
    }
}

fn platform(cmdline: &Cmdline, serial: &str) -> Result<Option<Source>, String> {
    let volume = |labels, file| Some(Source::Volume { labels, file });
    match cmdline.ours(parameters::CONFIG) {
        Some("" | "none") => return Ok(None),
        // Images for VMware have this value; a separate parameter names the platform.
        Some("guestinfo") if cmdline.platform() == "vmware" => {}
        Some("metal-iso") => return Ok(volume(&["metal-iso"], "config.yaml")),
        Some(url) if url::is_url(url) => return Ok(Some(Source::Url(url.to_owned()))),
        Some(other) => {
            // Every user can read the log, so `hide` must mask the whole value; a blank would end it.
            let other = other.replace(char::is_whitespace, "_");
            let other = parameters::hide(&format!("corten.config={other}"));
            return Err(format!(
                "{other} is not used: give an http:// or https:// URL, metal-iso, or none"
            ));
        }
        None => {}
    }
    if cmdline.platform() == CONTAINER {
        return Ok(Some(Source::Runtime));
    }
    if let Some(platform) = corten_platform::find(cmdline.platform()) {
        return Ok(Some(Source::Platform(platform.name)));
    }
    if cmdline.platform() != "nocloud" {
        return Ok(None);
    }
    Ok(match Place::read(serial).url {
        Some(base) => Some(Source::Url(format!("{base}user-data"))),
        None => volume(SEED_LABELS, "user-data"),
    })
}

/// The config that a container runtime passes in a variable; `None` without one.
///
/// # Errors
/// The text names the variable and the remedy.
pub fn user_data(variable: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    let text = variable.unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    decode::user_data(text).map(Some)
}

/// Requests the network files of a seed from a server, once; blocks. `base` ends in `/`.
///
/// # Errors
/// The text describes the failure of the server or the network.
pub fn fetch_seed(base: &str, facts: &Facts) -> Result<Files, String> {
    let get = |name: &str| {
        let bytes = url::get_if_there(&url::fill(&format!("{base}{name}"), facts))?;
        bytes.map(decode::unpack).transpose()
    };
    let [config, meta] = NAMES;
    Ok([get(config)?, get(meta)?])
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    fn read(cmdline: &str, serial: &str) -> Result<Sources, String> {
        Sources::read(&Cmdline::parse(cmdline), serial)
    }

    fn asks(cmdline: &str, serial: &str) -> String {
        let source = read(cmdline, serial).unwrap().platform;
        source.map_or("no source".to_owned(), |source| source.to_string())
    }

    #[test]
    fn kernel_parameters_select_the_config_source() {
        for (cmdline, serial, expected) in [
            ("corten.platform=metal", "", "no source"),
            ("corten.config=none", "", "no source"),
            (
                "talos.config=https://me:pw@boot.example/c?token=x",
                "",
                "https://boot.example/c",
            ),
            (
                "corten.config=metal-iso",
                "",
                "config.yaml on volume metal-iso",
            ),
            (
                "corten.platform=nocloud",
                "",
                "user-data on volume cidata or CIDATA",
            ),
            ("corten.platform=hcloud", "", "the platform hcloud"),
            ("corten.platform=container", "", "the variable USERDATA"),
            (
                "talos.platform=vmware talos.config=guestinfo",
                "",
                "the platform vmware",
            ),
            (
                "corten.platform=aws corten.config=http://10.0.0.1/c",
                "",
                "http://10.0.0.1/c",
            ),
            ("corten.platform=aws corten.config=none", "", "no source"),
            (
                "corten.platform=nocloud",
                "ds=nocloud;h=a;s=http://10.0.0.1/n/",
                "http://10.0.0.1/n/user-data",
            ),
            (
                "corten.platform=metal",
                "ds=nocloud;s=http://10.0.0.1/",
                "no source",
            ),
        ] {
            assert_eq!(asks(cmdline, serial), expected, "{cmdline} {serial}");
        }
        for (cmdline, expected) in [
            ("corten.config=ftp://x", "corten.config=ftp://x"),
            ("corten.config=guestinfo", "corten.config=guestinfo"),
            (
                "corten.config=ftp://u:secret@x/c",
                "corten.config=ftp://******@x/c",
            ),
            (
                "talos.config=HTTPS://x/c?token=secret",
                "corten.config=HTTPS://x/c?******",
            ),
            (
                "corten.config=\"ftp://u:my secret@x/c\"",
                "corten.config=ftp://******@x/c",
            ),
        ] {
            let remedy = " is not used: give an http:// or https:// URL, metal-iso, or none";
            let told = read(cmdline, "").unwrap_err();
            assert_eq!(told, format!("{expected}{remedy}"));
        }
    }

    #[test]
    fn authorization_is_only_for_the_server_of_the_config() {
        let oauth = "corten.config.oauth.client_id=me";
        for (cmdline, expected) in [
            ("corten.config=https://a/c", true),
            ("corten.config=metal-iso", false),
            ("corten.platform=aws", false),
            ("corten.platform=nocloud", false),
        ] {
            let sources = read(&format!("{cmdline} {oauth}"), "ds=nocloud;s=http://a/").unwrap();
            assert_eq!(sources.oauth.is_some(), expected, "{cmdline}");
        }
    }

    #[test]
    fn later_configs_are_merged_over_earlier_ones() {
        let whole = sample::text("network: {hostname: platform}", "");
        let named =
            |name: &str| Some(format!("machine: {{network: {{hostname: {name}}}}}").into_bytes());
        let hostname = |sources: Sources| {
            let document = sources.merge(Some(whole.as_bytes())).unwrap();
            document.hostname().unwrap().to_owned()
        };
        let early = Sources {
            early: named("early"),
            ..Sources::default()
        };
        assert_eq!(hostname(early), "platform");
        let inline = Sources {
            inline: named("inline"),
            ..Sources::default()
        };
        assert_eq!(hostname(inline), "inline");
        assert_eq!(hostname(Sources::default()), "platform");
        let part = Sources {
            inline: named("alone"),
            ..Sources::default()
        };
        part.merge(None).unwrap_err();
        // Without a platform's config, the parameters may hold the whole config.
        let alone = Sources {
            early: Some(whole.clone().into_bytes()),
            inline: named("inline"),
            ..Sources::default()
        };
        assert!(alone.hold_some() && !Sources::default().hold_some());
        let document = alone.merge(None).unwrap();
        assert_eq!(document.hostname(), Some("inline"));
    }
}

//! The client config file: the clusters, the endpoints of their nodes, and the certificates for them.
//!
//! It has the format of existing clients. A context with fields for a proxy is refused: without the proxy the call
//! would go elsewhere than the user asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::{files, yaml};

/// The largest file read, in bytes; a hundred contexts are about 200 kB.
const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientConfig {
    /// Name of the current context.
    #[serde(default)]
    pub context: String,
    /// The contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
    /// Unknown fields of other clients, written back unchanged.
    #[serde(flatten)]
    pub other: Other,
}

/// Fields that this client does not know.
pub type Other = BTreeMap<String, serde_json::Value>;

/// Endpoints that may forward calls to other nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardThrough {
    /// Endpoints whose certificate marks them as control plane nodes
    #[default]
    ControlPlane,
    /// Any endpoint with a certificate of the cluster; nodes of the reference have no mark
    Any,
}

/// One cluster and one identity. `Debug` shows no credentials.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Nodes that receive calls, tried in order.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// Nodes that answer calls; without any, the endpoint answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// A field of our own; other clients keep it.
    #[serde(
        default,
        rename = "forward-through",
        skip_serializing_if = "Option::is_none"
    )]
    pub forward_through: Option<ForwardThrough>,
    /// The certificate of the machine CA, base64 of PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca: String,
    /// The client's certificate, base64 of PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub crt: String,
    /// The client's key, base64 of PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Credentials of another kind, which this client refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<serde_json::Value>,
    /// A proxy, which this client refuses.
    #[serde(default, rename = "proxy-url", skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    /// See [`ClientConfig::other`].
    #[serde(flatten)]
    pub other: Other,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("endpoints", &self.endpoints)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// The credentials of a cluster, as PEM. `Debug` does not show them.
#[derive(Clone)]
pub struct Identity {
    /// The certificate of the machine CA.
    pub ca: String,
    /// The client's certificate.
    pub crt: String,
    /// The client's key.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Context {
    /// A context made from PEM texts.
    pub fn new(endpoints: Vec<String>, identity: &Identity) -> Context {
        Context {
            endpoints,
            ca: STANDARD.encode(&identity.ca),
            crt: STANDARD.encode(&identity.crt),
            key: STANDARD.encode(&identity.key),
            ..Context::default()
        }
    }

    /// The credentials, decoded.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        if self.auth.is_some() {
            bail!(
                "the context authenticates to a proxy (auth), which is not supported; use a context with ca, crt and key"
            );
        }
        if self.proxy_url.as_ref().is_some_and(|url| !url.is_empty()) {
            bail!(
                "the context asks for a proxy (proxy-url), which is not supported; remove the field to connect directly"
            );
        }
        let decoded = |field: &str, text: &str| {
            let text: String = text.split_whitespace().collect();
            let pem = STANDARD
                .decode(text)
                .ok()
                .and_then(|pem| String::from_utf8(pem).ok());
            pem.filter(|pem| pem.contains("-----BEGIN "))
                .ok_or_else(|| anyhow!("{field} of the context is not base64 of a PEM text"))
        };
        Ok(Identity {
            ca: decoded("ca", &self.ca)?,
            crt: decoded("crt", &self.crt)?,
            key: decoded("key", &self.key)?,
        })
    }
}

impl ClientConfig {
    /// Parses a file's text. No error quotes the text, because it has keys.
    pub fn parse(text: &str) -> anyhow::Result<ClientConfig> {
        serde_saphyr::from_str(text)
            .map_err(|error| anyhow!("not a client config{}", yaml::place(&error)))
    }

    /// The text of the file.
    pub fn render(&self) -> anyhow::Result<String> {
        let value = serde_json::to_value(self).context("cannot write the client config")?;
        yaml::render(&value)
    }

    /// The named context, else the current one.
    pub fn select(&self, name: Option<&str>) -> anyhow::Result<&Context> {
        let wanted = name.unwrap_or(&self.context);
        self.contexts.get(wanted).ok_or_else(|| {
            let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if names.is_empty() {
                "the client config has none".to_owned()
            } else {
                names.join(", ")
            };
            if wanted.is_empty() {
                anyhow!("no current context; choose one with --context: {known}")
            } else {
                anyhow!("no context {wanted:?}; choose one with --context: {known}")
            }
        })
    }
}

/// Directory of a pod's account at the node API, in its containers.
pub const POD_MOUNT: &str = "/var/run/secrets/talos.dev";

/// The possible paths of a client config; the first existing one is used.
#[derive(Debug, Default)]
pub struct Search {
    /// `--cortenconfig`.
    pub(crate) flag: Option<PathBuf>,
    /// `CORTENCONFIG`.
    pub(crate) corten: Option<PathBuf>,
    /// `TALOSCONFIG`.
    pub(crate) talos: Option<PathBuf>,
    /// The user's home directory.
    pub(crate) home: Option<PathBuf>,
    /// The file of an account of a pod.
    pub(crate) pod: Option<PathBuf>,
}

impl Search {
    /// The paths of this user's environment; `flag` is the value of `--cortenconfig`.
    pub fn new(flag: Option<PathBuf>) -> Search {
        let variable = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        Search {
            flag,
            corten: variable("CORTENCONFIG"),
            talos: variable("TALOSCONFIG"),
            home: std::env::home_dir().filter(|home| !home.as_os_str().is_empty()),
            pod: Some(Path::new(POD_MOUNT).join("config")),
        }
    }

    /// The file to read. A path given by flag or environment must exist; the paths under the home
    /// directory and in a pod need not.
    pub fn find(&self) -> anyhow::Result<PathBuf> {
        let at_home = |directory: &str| {
            let path = self.home.as_ref()?.join(directory).join("config");
            path.is_file().then_some(path)
        };
        let environment = self.corten.clone().or_else(|| self.talos.clone());
        let named = self.flag.clone().or(environment);
        let found = named
            .or_else(|| at_home(".corten"))
            .or_else(|| at_home(".talos"))
            .or_else(|| self.pod.clone().filter(|path| path.is_file()));
        found.ok_or_else(|| {
            anyhow!("no client config found: name one with --cortenconfig FILE or CORTENCONFIG, or put it at ~/.corten/config (`cortenctl gen config` makes one)")
        })
    }

    /// Reads the file, which must have a context.
    pub fn load(&self) -> anyhow::Result<ClientConfig> {
        let path = self.find()?;
        let config = read(&path).and_then(|config| {
            anyhow::ensure!(!config.contexts.is_empty(), "it has no contexts");
            Ok(config)
        });
        config.with_context(|| format!("client config {}", path.display()))
    }

    /// The file to change, and its content: the file that would be read, or a new one at the path
    /// where it will be found.
    pub fn open(&self) -> anyhow::Result<(PathBuf, ClientConfig)> {
        let at_home = || Some(self.home.as_ref()?.join(".corten").join("config"));
        let path = match self.find() {
            Ok(path) => path,
            Err(nowhere) => at_home().ok_or(nowhere)?,
        };
        let path = files::real(&path);
        if !path.exists() {
            return Ok((path, ClientConfig::default()));
        }
        let config = read(&path).with_context(|| format!("client config {}", path.display()))?;
        Ok((path, config))
    }
}

/// Reads a client config, which may be without contexts.
pub fn read(path: &Path) -> anyhow::Result<ClientConfig> {
    let size = std::fs::metadata(path)?.len();
    if size > MAX_SIZE {
        bail!(
            "larger than {} MiB, the limit of a client config",
            MAX_SIZE / 1024 / 1024
        );
    }
    let config = ClientConfig::parse(&std::fs::read_to_string(path)?)?;
    if config.contexts.is_empty() && !config.other.is_empty() {
        bail!("not a client config: it has no contexts");
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        let block = |tag: &str| format!("-----BEGIN {tag}-----\nAAAA\n-----END {tag}-----\n");
        Identity {
            ca: block("CERTIFICATE"),
            crt: block("CERTIFICATE"),
            key: block("ED25519 PRIVATE KEY"),
        }
    }

    fn config() -> ClientConfig {
        let context = Context::new(
            vec!["10.0.0.1".into(), "[fd00::1]:50001".into()],
            &identity(),
        );
        let bare = Context {
            nodes: vec!["n1".into()],
            ..Context::default()
        };
        ClientConfig {
            context: "demo".into(),
            contexts: BTreeMap::from([("demo".into(), context), ("other".into(), bare)]),
            other: Other::new(),
        }
    }

    #[test]
    fn client_config_round_trips() {
        let text = config().render().unwrap();
        assert!(
            text.starts_with("context: demo\ncontexts:\n    demo:\n        endpoints:"),
            "{text}"
        );
        let back = ClientConfig::parse(&text).unwrap();
        assert_eq!(back, config());
        assert_eq!(
            back.select(None).unwrap().identity().unwrap().key,
            identity().key
        );
    }

    #[test]
    fn config_of_the_reference_client_is_read() {
        let text = format!(
            "context: c\ncontexts:\n    c:\n        target: 10.0.0.9\n        endpoints: [10.0.0.1]\n        nodes:\n            - 10.0.0.2\n        ca: {0}\n        crt: {0}\n        key: {0}\n        cluster: c\n",
            STANDARD.encode(identity().ca)
        );
        let config = ClientConfig::parse(&text).unwrap();
        let context = config.select(Some("c")).unwrap();
        assert_eq!(context.nodes, ["10.0.0.2"]);
        context.identity().unwrap();
        let again = ClientConfig::parse(&config.render().unwrap()).unwrap();
        assert_eq!(again.contexts["c"].other["cluster"], "c");
        assert_eq!(again, config);
    }

    #[test]
    fn credentials_are_in_no_debug_output_and_in_no_error() {
        let secret = STANDARD.encode(identity().key);
        assert!(!format!("{:?}", config()).contains(&secret));
        let broken = config()
            .render()
            .unwrap()
            .replace("endpoints:", "endpoints: x\n            y:");
        let error = ClientConfig::parse(&broken).unwrap_err().to_string();
        assert!(error.starts_with("not a client config at line "), "{error}");
        assert!(
            !error.contains("AAAA") && !error.contains(&secret[..20]),
            "{error}"
        );
        let broken = format!("contexts:\n    c:\n        nodes: {secret}\n");
        let error = format!("{:#}", ClientConfig::parse(&broken).unwrap_err());
        assert!(!error.contains(&secret[..20]), "{error}");
    }

    #[test]
    fn error_for_an_unknown_context_lists_the_existing_contexts() {
        let config = config();
        let error = config.select(Some("prod")).unwrap_err().to_string();
        assert_eq!(
            error,
            "no context \"prod\"; choose one with --context: demo, other"
        );
        let none = ClientConfig {
            context: String::new(),
            ..config
        };
        let error = none.select(None).unwrap_err().to_string();
        assert_eq!(
            error,
            "no current context; choose one with --context: demo, other"
        );
    }

    #[test]
    fn fields_for_proxies_are_refused() {
        let mut context = config().contexts["demo"].clone();
        context.proxy_url = Some("socks5://x".into());
        assert!(
            context
                .identity()
                .err()
                .unwrap()
                .to_string()
                .contains("proxy-url")
        );
        context.proxy_url = None;
        context.auth = Some(serde_json::json!({"basic": {"username": "u", "password": "pw"}}));
        assert!(!format!("{context:?}").contains("pw"));
        assert!(
            context
                .identity()
                .err()
                .unwrap()
                .to_string()
                .contains("auth")
        );
    }

    #[test]
    fn config_search_goes_from_the_flag_to_the_file_of_the_reference_client() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).join("config");
        let mut search = Search {
            home: Some(home.path().into()),
            ..Search::default()
        };
        assert!(
            search
                .find()
                .unwrap_err()
                .to_string()
                .contains("--cortenconfig")
        );
        search.pod = Some(path("pod"));
        search.find().unwrap_err();
        std::fs::create_dir(home.path().join("pod")).unwrap();
        std::fs::write(path("pod"), "x").unwrap();
        assert_eq!(search.find().unwrap(), path("pod"));
        std::fs::create_dir(home.path().join(".talos")).unwrap();
        std::fs::write(path(".talos"), "x").unwrap();
        assert_eq!(search.find().unwrap(), path(".talos"));
        std::fs::create_dir(home.path().join(".corten")).unwrap();
        std::fs::write(path(".corten"), "x").unwrap();
        assert_eq!(search.find().unwrap(), path(".corten"));
        search.talos = Some("/t".into());
        assert_eq!(search.find().unwrap(), PathBuf::from("/t"));
        search.corten = Some("/c".into());
        assert_eq!(search.find().unwrap(), PathBuf::from("/c"));
        search.flag = Some("/f".into());
        assert_eq!(search.find().unwrap(), PathBuf::from("/f"));
        assert!(format!("{:#}", search.load().unwrap_err()).starts_with("client config /f: "));
    }
}

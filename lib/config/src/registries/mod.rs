//! Access to image registries, merged from two forms: `machine.registries` and documents with a kind. Both follow the
//! same rules.

pub(crate) mod rules;

use std::collections::BTreeMap;

use corten_values::Secret;
use corten_yaml::problem::{Notes, printable};
use corten_yaml::tree::Node;

use crate::document::Document;
use crate::kinds::{Kind as _, RegistryAuthConfig, RegistryMirrorConfig, RegistryTLSConfig};

pub use rules::{ANY, decode_auth};

/// The default registry of image names, and its host (containerd, `core/remotes/docker/registry.go`, `DefaultHost`).
pub const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// The config's settings of image registries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registries {
    /// Mirrors by registry, as in image names; [`ANY`] is the default.
    pub mirrors: BTreeMap<String, RegistryMirrors>,
    /// Credentials by host of a URL.
    pub auths: BTreeMap<String, RegistryAuth>,
    /// Certificates by host of a URL.
    pub tls: BTreeMap<String, RegistryTls>,
}

/// Mirrors of a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryMirrors {
    /// Mirrors in order of use, without duplicates, which patches can add.
    pub endpoints: Vec<Mirror>,
    /// Whether the registry itself is not used as the fallback.
    pub skip_fallback: bool,
}

impl RegistryMirrors {
    fn new(endpoints: impl Iterator<Item = Mirror>, skip_fallback: bool) -> RegistryMirrors {
        let mut mirrors = RegistryMirrors {
            endpoints: Vec::new(),
            skip_fallback,
        };
        for endpoint in endpoints {
            if !mirrors.endpoints.contains(&endpoint) {
                mirrors.endpoints.push(endpoint);
            }
        }
        mirrors
    }
}

/// A mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// URL, `http` or `https`.
    pub url: String,
    /// Whether `/v2` is not appended to the URL's path.
    pub override_path: bool,
}

/// Credentials in one of three forms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryAuth {
    /// User.
    pub username: String,
    /// Password.
    pub password: Secret,
    /// Base64 of `user:password`.
    pub auth: Secret,
    /// Token in place of user and password.
    pub identity_token: Secret,
}

/// Certificates for a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryTls {
    /// Client certificate and its key, PEM.
    pub client_identity: Option<(String, Secret)>,
    /// CAs that may sign the registry's certificate, PEM.
    pub ca: Option<String>,
    /// Whether any certificate is accepted.
    pub insecure_skip_verify: bool,
}

/// The entry of a host, also for the host of Docker's registry.
#[must_use]
pub fn of_host<'a, T>(all: &'a BTreeMap<String, T>, host: &str) -> Option<&'a T> {
    let (registry, served_by) = DOCKER;
    all.get(host)
        .or_else(|| all.get(registry).filter(|_| host == served_by))
}

impl Document {
    /// The settings of image registries from both forms.
    #[must_use]
    pub fn registries(&self) -> Registries {
        let mut all = self.legacy_registries();
        for config in self.all::<RegistryMirrorConfig>() {
            let endpoints = config.endpoints.iter().map(|endpoint| Mirror {
                url: endpoint.url.to_string(),
                override_path: endpoint.override_path,
            });
            let mirrors = RegistryMirrors::new(endpoints, config.skip_fallback);
            all.mirrors.insert(config.name.clone(), mirrors);
        }
        for config in self.all::<RegistryAuthConfig>() {
            let auth = RegistryAuth {
                username: config.username.clone().unwrap_or_default(),
                password: config.password.clone(),
                auth: config.auth.clone(),
                identity_token: config.identity_token.clone(),
            };
            all.auths.insert(config.name.clone(), auth);
        }
        for config in self.all::<RegistryTLSConfig>() {
            let identity = config.client_identity.as_ref();
            let tls = RegistryTls {
                client_identity: identity
                    .map(|identity| ((*identity.cert).to_owned(), (*identity.key).clone())),
                ca: config.ca.as_deref().map(str::to_owned),
                insecure_skip_verify: config.insecure_skip_verify,
            };
            all.tls.insert(config.name.clone(), tls);
        }
        // Empty entries have no effect.
        all.mirrors
            .retain(|_, it| *it != RegistryMirrors::default());
        all.auths.retain(|_, auth| *auth != RegistryAuth::default());
        all.tls.retain(|_, tls| *tls != RegistryTls::default());
        all
    }

    fn legacy_registries(&self) -> Registries {
        let mut all = Registries::default();
        let old = &self.machine.registries;
        for (name, config) in &old.mirrors {
            let endpoints = config.endpoints.iter().map(|url| Mirror {
                url: url.to_string(),
                override_path: config.override_path,
            });
            let mirrors = RegistryMirrors::new(endpoints, config.skip_fallback);
            all.mirrors.insert(name.clone(), mirrors);
        }
        for (name, config) in &old.config {
            let auth = RegistryAuth {
                username: config.auth.username.clone().unwrap_or_default(),
                password: config.auth.password.clone(),
                auth: config.auth.auth.clone(),
                identity_token: config.auth.identity_token.clone(),
            };
            let identity = config.tls.client_identity.as_ref();
            let tls = RegistryTls {
                client_identity: identity
                    .filter(|pair| !pair.crt.is_empty())
                    .map(|pair| (pair.crt.to_string(), (*pair.key).clone())),
                ca: config.tls.ca.as_ref().map(ToString::to_string),
                insecure_skip_verify: config.tls.insecure_skip_verify,
            };
            all.auths.insert(name.clone(), auth);
            all.tls.insert(name.clone(), tls);
        }
        all
    }
}

/// Reports settings in both forms.
pub(crate) fn check(trees: &[Node], notes: &mut Notes) {
    let root = trees.iter().find(|tree| tree.get("kind").is_none());
    let old = root.and_then(|root| root.get("machine")?.get("registries"));
    let Some(old) = old else { return };
    for tree in trees {
        let kind = tree.get("kind").and_then(Node::text).unwrap_or_default();
        let (part, field) = match kind {
            RegistryMirrorConfig::NAME => ("mirrors", ""),
            RegistryAuthConfig::NAME => ("config", "auth"),
            RegistryTLSConfig::NAME => ("config", "tls"),
            _ => continue,
        };
        let name = tree.get("name").and_then(Node::text).unwrap_or_default();
        let same = old.get(part).and_then(|part| part.get(name));
        let same = match field {
            "" => same,
            field => same.and_then(|same| same.get(field)),
        };
        if let Some(same) = same.filter(|same| !same.is_empty()) {
            let dot = if field.is_empty() { "" } else { "." };
            let name = printable(name);
            let path = format!("machine.registries.{part}.{name}{dot}{field}");
            let line = same.mark.line;
            let message = format!("{kind} {name} excludes {path} (line {line})");
            notes.add(tree.mark, kind, message);
        }
    }
}

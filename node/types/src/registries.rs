//! Access of containerd to image registries.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_api::common::PemEncodedCertificateAndKey;
use corten_api::talos::resource::definitions::cri as wire;
use corten_config::registries::Registries;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::open;

/// Mirrors, credentials and certificates; id [`RegistriesConfig::ID`]. Only administrators may read them.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct RegistriesConfig {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    mirrors: BTreeMap<String, Mirrors>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    auths: BTreeMap<String, Auth>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tls: BTreeMap<String, Tls>,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mirrors {
    endpoints: Vec<Endpoint>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    skip_fallback: bool,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    endpoint: String,
    override_path: bool,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Auth {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    password: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    auth: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    identity_token: String,
}

/// PEM texts in base64, as in a machine config.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tls {
    #[serde(skip_serializing_if = "Option::is_none")]
    client_identity: Option<Identity>,
    #[serde(skip_serializing_if = "String::is_empty")]
    ca: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_verify: bool,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
struct Identity {
    crt: String,
    key: String,
}

impl fmt::Debug for RegistriesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mirrors: Vec<&String> = self.mirrors.keys().collect();
        f.debug_struct("RegistriesConfig")
            .field("mirrors", &mirrors)
            .finish_non_exhaustive()
    }
}

impl RegistriesConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "registries";
}

impl From<&Registries> for RegistriesConfig {
    fn from(all: &Registries) -> RegistriesConfig {
        let mirrors = all.mirrors.iter().map(|(name, mirrors)| {
            let endpoints = mirrors.endpoints.iter().map(|mirror| Endpoint {
                endpoint: mirror.url.clone(),
                override_path: mirror.override_path,
            });
            let shown = Mirrors {
                endpoints: endpoints.collect(),
                skip_fallback: mirrors.skip_fallback,
            };
            (name.clone(), shown)
        });
        let auths = all.auths.iter().map(|(name, auth)| {
            let shown = Auth {
                username: auth.username.clone(),
                password: auth.password.expose().to_owned(),
                auth: auth.auth.expose().to_owned(),
                identity_token: auth.identity_token.expose().to_owned(),
            };
            (name.clone(), shown)
        });
        let tls = all.tls.iter().map(|(name, tls)| {
            let identity = tls.client_identity.as_ref();
            let shown = Tls {
                client_identity: identity.map(|(crt, key)| Identity {
                    crt: STANDARD.encode(crt),
                    key: STANDARD.encode(key.expose()),
                }),
                ca: tls
                    .ca
                    .as_ref()
                    .map(|ca| STANDARD.encode(ca))
                    .unwrap_or_default(),
                insecure_skip_verify: tls.insecure_skip_verify,
            };
            (name.clone(), shown)
        });
        RegistriesConfig {
            mirrors: mirrors.collect(),
            auths: auths.collect(),
            tls: tls.collect(),
        }
    }
}

fn decoded(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).unwrap_or_default()
}

impl Spec for RegistriesConfig {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open("RegistryConfigs.cri.talos.dev", "cri", &[], &[])
    };

    type Message = wire::RegistriesConfigSpec;

    fn message(&self) -> wire::RegistriesConfigSpec {
        let mirrors = self.mirrors.iter().map(|(name, mirrors)| {
            let endpoints = mirrors
                .endpoints
                .iter()
                .map(|it| wire::RegistryEndpointConfig {
                    endpoint_endpoint: it.endpoint.clone(),
                    endpoint_override_path: it.override_path,
                });
            let message = wire::RegistryMirrorConfig {
                mirror_endpoints: endpoints.collect(),
                mirror_skip_fallback: mirrors.skip_fallback,
            };
            (name.clone(), message)
        });
        let auths = self.auths.iter().map(|(name, auth)| {
            let message = wire::RegistryAuthConfig {
                registry_username: auth.username.clone(),
                registry_password: auth.password.clone(),
                registry_auth: auth.auth.clone(),
                registry_identity_token: auth.identity_token.clone(),
            };
            (name.clone(), message)
        });
        let tls = self.tls.iter().map(|(name, tls)| {
            let identity = tls.client_identity.as_ref();
            let message = wire::RegistryTlsConfig {
                tls_client_identity: identity.map(|it| PemEncodedCertificateAndKey {
                    crt: decoded(&it.crt),
                    key: decoded(&it.key),
                }),
                tlsca: decoded(&tls.ca),
                tls_insecure_skip_verify: tls.insecure_skip_verify,
            };
            (name.clone(), message)
        });
        wire::RegistriesConfigSpec {
            registry_mirrors: mirrors.collect(),
            registry_auths: auths.collect(),
            registry_tls: tls.collect(),
        }
    }
}

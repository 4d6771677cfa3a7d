//! `machine.registries`: the old form of [`crate::kinds::RegistryMirrorConfig`] and related kinds.

use std::collections::BTreeMap;

use corten_values::{Base64Certificate, KeyPair, Secret, Url};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::{Key, Node};

use crate::registries::rules::{ANY, check_auth, check_endpoints, check_identity, is_registry};

section! {
    /// `machine.registries`.
    pub struct LegacyRegistries [check_registries] {
        Acted "mirrors" mirrors: BTreeMap<String, LegacyMirror> = "Mirrors by registry, such as `docker.io`; `*`: all registries without mirrors of their own";
        Acted "config" config: BTreeMap<String, LegacyRegistry> = "Access settings by host and port of a registry or a mirror";
    }
}

fn check_registries(_: &LegacyRegistries, node: &Node, reader: &mut Reader<'_>) {
    names(node, "mirrors", true, reader);
    names(node, "config", false, reader);
}

/// Checks the keys of a map, which become directories. A null entry is an error.
fn names(node: &Node, field: &str, any: bool, reader: &mut Reader<'_>) {
    let entries = node.get(field).map(Node::entries).unwrap_or_default();
    reader.within(field, |reader| {
        for (Key { mark, name }, value) in entries {
            reader.within(name, |reader| {
                if name == ANY && !any {
                    reader.wrong(*mark, "must name one registry; `*` is for mirrors");
                } else if name != ANY && !is_registry(name) {
                    reader.wrong(*mark, "must be named by a host, optionally with a port");
                }
                if value.is_null() {
                    reader.wrong(*mark, "must not be null");
                }
            });
        }
    });
}

section! {
    /// The mirrors of a registry.
    pub struct LegacyMirror [check_mirror] {
        Acted "endpoints" endpoints: Vec<Url> = "URLs of mirrors in order of use, `http://` or `https://`";
        Acted "overridePath" override_path: bool = "Whether the URLs are complete, so that `/v2` is not appended";
        Acted "skipFallback" skip_fallback: bool = "Whether the registry itself is not used as the fallback";
    }
}

fn check_mirror(mirror: &LegacyMirror, node: &Node, reader: &mut Reader<'_>) {
    let items = node.get("endpoints").map(Node::items).unwrap_or_default();
    let endpoints = items.iter().map(Some);
    check_endpoints(node, endpoints, "", mirror.skip_fallback, reader);
}

section! {
    /// Access to a registry.
    pub struct LegacyRegistry {
        Acted "tls" tls: LegacyRegistryTls = "Certificates of the registry";
        Acted "auth" auth: LegacyRegistryAuth = "Credentials of the registry";
    }
}

section! {
    /// Certificates for a registry.
    pub struct LegacyRegistryTls [check_tls] {
        Acted "clientIdentity" client_identity: Option<KeyPair> = "Client certificate: crt and key";
        Acted "ca" ca: Option<Base64Certificate> = "CAs of the server, in addition to those that the node trusts";
        Acted "insecureSkipVerify" insecure_skip_verify: bool = "Whether any certificate is accepted";
    }
}

fn check_tls(_: &LegacyRegistryTls, node: &Node, reader: &mut Reader<'_>) {
    check_identity(node, "crt", reader);
}

section! {
    /// Credentials for a registry.
    pub struct LegacyRegistryAuth [check_legacy_auth] {
        Acted "username" username: Option<String> = "User name";
        Acted "password" password: Secret = "Password";
        Acted "auth" auth: Secret = "Base64 of `user:password`";
        Acted "identityToken" identity_token: Secret = "Token in place of user and password";
    }
}

fn check_legacy_auth(_: &LegacyRegistryAuth, node: &Node, reader: &mut Reader<'_>) {
    check_auth(node, reader);
}

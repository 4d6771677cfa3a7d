//! `machine.registries`: the old form of [`crate::kinds::RegistryMirrorConfig`] and related kinds.

use std::collections::BTreeMap;

use crate::read::{Reader, section};
use crate::registries::{ANY, check_auth, check_endpoints, check_identity, is_registry};
use crate::secret::Secret;
use crate::tree::{Key, Node};
use crate::values::{Base64Certificate, KeyPair, Url};

section! {
    /// `machine.registries`.
    pub struct LegacyRegistries [check_registries] {
        Acted "mirrors" mirrors: BTreeMap<String, LegacyMirror> = "Mirrors by registry, such as `docker.io`; `*` is all that have none of their own";
        Acted "config" config: BTreeMap<String, LegacyRegistry> = "Access by host and port, of a registry or a mirror";
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
                    reader.wrong(*mark, "must be named by a host, with a port if need be");
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
        Acted "endpoints" endpoints: Vec<Url> = "`http://` or `https://`, tried in order";
        Acted "overridePath" override_path: bool = "Their URLs have the whole path: `/v2` is not added";
        Acted "skipFallback" skip_fallback: bool = "The registry itself is not asked in the end";
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
        Acted "tls" tls: LegacyRegistryTls = "Certificates";
        Acted "auth" auth: LegacyRegistryAuth = "Credentials";
    }
}

section! {
    /// Certificates for a registry.
    pub struct LegacyRegistryTls [check_tls] {
        Acted "clientIdentity" client_identity: Option<KeyPair> = "What is shown to it: crt and key";
        Acted "ca" ca: Option<Base64Certificate> = "Certificate authorities of the server, beside those that the node trusts";
        Acted "insecureSkipVerify" insecure_skip_verify: bool = "Believe any certificate";
    }
}

fn check_tls(_: &LegacyRegistryTls, node: &Node, reader: &mut Reader<'_>) {
    check_identity(node, "crt", reader);
}

section! {
    /// Credentials for a registry.
    pub struct LegacyRegistryAuth [check_legacy_auth] {
        Acted "username" username: Option<String> = "User";
        Acted "password" password: Secret = "Password";
        Acted "auth" auth: Secret = "Base64 of `user:password`";
        Acted "identityToken" identity_token: Secret = "A token in place of user and password";
    }
}

fn check_legacy_auth(_: &LegacyRegistryAuth, node: &Node, reader: &mut Reader<'_>) {
    check_auth(node, reader);
}

//! Access to image registries: mirrors, credentials, certificates.

use std::collections::HashMap;

use corten_values::{PemCertificates, PemKey, Secret, Url};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::registries::rules::{ANY, check_auth, check_endpoints, check_identity, is_registry};

section! {
    /// Mirrors of an image registry.
    pub struct RegistryMirrorConfig [check_mirror] {
        Acted "name" name: String = "Registry, such as `docker.io` or `registry.example.org:5000`; `*`: all registries without mirrors of their own", required;
        Acted "endpoints" endpoints: Vec<RegistryEndpoint> = "Mirrors in order of use";
        Acted "skipFallback" skip_fallback: bool = "Whether the registry itself is not used as the fallback";
    }
}

section! {
    /// A mirror.
    pub struct RegistryEndpoint {
        Acted "url" url: Url = "URL of the mirror, `http://` or `https://`", required;
        Acted "overridePath" override_path: bool = "Whether the URL is complete, so that `/v2` is not appended";
    }
}

fn check_mirror(mirror: &RegistryMirrorConfig, node: &Node, reader: &mut Reader<'_>) {
    if !mirror.name.is_empty() && mirror.name != ANY && !is_registry(&mirror.name) {
        let what = "must be a host, optionally with a port, or `*`";
        reader.wrong_in(node, "name", what);
    }
    let items = node.get("endpoints").map(Node::items).unwrap_or_default();
    let endpoints = items.iter().map(|item| item.get("url"));
    check_endpoints(node, endpoints, "url", mirror.skip_fallback, reader);
    let mut seen = HashMap::new();
    let differs = |endpoint: &RegistryEndpoint| {
        let before = seen.insert(endpoint.url.to_string(), endpoint.override_path);
        before.is_some_and(|before| before != endpoint.override_path)
    };
    if mirror.endpoints.iter().any(differs) {
        let what = "has one url twice, with overridePath and without";
        reader.wrong_in(node, "endpoints", what);
    }
}

/// Reports `*` in a document that needs a single host.
fn check_host(name: &str, node: &Node, reader: &mut Reader<'_>) {
    if name == ANY {
        reader.wrong_in(
            node,
            "name",
            "must name one registry; `*` is for RegistryMirrorConfig",
        );
    } else if !name.is_empty() && !is_registry(name) {
        reader.wrong_in(node, "name", "must be a host, optionally with a port");
    }
}

section! {
    /// Credentials for a registry or a mirror.
    pub struct RegistryAuthConfig [check_registry_auth] {
        Acted "name" name: String = "Host of the registry or mirror, with the port if its URL has one", required;
        Acted "username" username: Option<String> = "User name";
        Acted "password" password: Secret = "Password";
        Acted "auth" auth: Secret = "Base64 of `user:password`";
        Acted "identityToken" identity_token: Secret = "Token in place of user and password";
    }
}

fn check_registry_auth(config: &RegistryAuthConfig, node: &Node, reader: &mut Reader<'_>) {
    check_host(&config.name, node, reader);
    check_auth(node, reader);
    if !["username", "password", "auth", "identityToken"]
        .iter()
        .any(|field| node.given(field))
    {
        reader.wrong(
            node.mark,
            "needs username and password, auth or identityToken",
        );
    }
}

section! {
    /// Certificates for a registry or a mirror.
    pub struct RegistryTLSConfig [check_registry_tls] {
        Acted "name" name: String = "Host of the registry or mirror, with the port if its URL has one", required;
        Acted "clientIdentity" client_identity: Option<RegistryIdentity> = "Client certificate";
        Acted "ca" ca: Option<PemCertificates> = "CAs of the server, in addition to those that the node trusts";
        Acted "insecureSkipVerify" insecure_skip_verify: bool = "Whether any certificate is accepted";
    }
}

section! {
    /// A client certificate.
    pub struct RegistryIdentity {
        Acted "cert" cert: PemCertificates = "Certificate in PEM";
        Acted "key" key: PemKey = "Private key in PEM";
    }
}

fn check_registry_tls(config: &RegistryTLSConfig, node: &Node, reader: &mut Reader<'_>) {
    check_host(&config.name, node, reader);
    check_identity(node, "cert", reader);
}

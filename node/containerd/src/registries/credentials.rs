//! Registry credentials in containerd's forms: its configuration for pod pulls, and answers to its requests for our own
//! pulls.

use std::collections::BTreeMap;

use corten_config::registries::{DOCKER, Registries, RegistryAuth, decode_auth, of_host};
use corten_values::Secret;
use toml::Table;

/// Credentials for a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// User and password.
    Password(String, Secret),
    /// Token that is exchanged for access tokens (OAuth 2.0, RFC 6749, "Refresh Token").
    Token(Secret),
}

/// Credentials for a host; `None` for anonymous access.
#[must_use]
pub fn login(registries: &Registries, host: &str) -> Option<Login> {
    of_host(&registries.auths, host).and_then(normal)
}

/// The one of the three forms of the config that is present.
fn normal(auth: &RegistryAuth) -> Option<Login> {
    if !auth.username.is_empty() {
        let (user, password) = (auth.username.clone(), auth.password.clone());
        return Some(Login::Password(user, password));
    }
    if !auth.identity_token.is_empty() {
        return Some(Login::Token(auth.identity_token.clone()));
    }
    let (user, password) = decode_auth(&auth.auth)?;
    Some(Login::Password(user, password))
}

/// The credentials as a part of containerd's configuration (containerd 2, `docs/cri/registry.md`, "Configure Registry
/// Credentials"); `None` without credentials.
#[must_use]
pub fn text(registries: &Registries) -> Option<String> {
    let said = registries.auths.iter();
    let mut auths: BTreeMap<&str, &RegistryAuth> =
        said.map(|(host, auth)| (host.as_str(), auth)).collect();
    // containerd looks credentials up by the host that it connects to.
    let (registry, served_by) = DOCKER;
    if let Some(auth) = registries.auths.get(registry) {
        auths.entry(served_by).or_insert(auth);
    }
    let logins = auths.into_iter();
    let logins = logins.filter_map(|(host, auth)| Some((host, normal(auth)?)));
    let configs: Table = logins
        .map(|(host, login)| (host.to_owned(), within(&["auth"], auth(login)).into()))
        .collect();
    if configs.is_empty() {
        return None;
    }
    let place = [
        "plugins",
        "io.containerd.cri.v1.images",
        "registry",
        "configs",
    ];
    Some(format!("version = 4\n\n{}", within(&place, configs)))
}

fn auth(login: Login) -> Table {
    let mut auth = Table::new();
    let mut insert = |name: &str, value: &str| auth.insert(name.to_owned(), value.into());
    match login {
        Login::Password(user, password) => {
            insert("username", &user);
            insert("password", password.expose());
        }
        Login::Token(token) => drop(insert("identitytoken", token.expose())),
    }
    auth
}

/// A table at this path of otherwise empty tables.
fn within(place: &[&str], table: Table) -> Table {
    let around = |inner: Table, step: &&str| Table::from_iter([((*step).to_owned(), inner.into())]);
    place.iter().rev().fold(table, around)
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    fn of(config: &str) -> Registries {
        sample::config(&format!("registries: {{config: {config}}}"), "").registries()
    }

    #[test]
    fn every_form_of_credentials_is_converted_for_containerd() {
        let registries = of("{docker.io: {auth: {username: me, password: 'a\"b'}}, \
             'h:5000': {auth: {auth: dTpwOnc=}}, gcr.io: {auth: {identityToken: t}}, \
             quay.io: {tls: {insecureSkipVerify: true}}}");
        let expected = r#"version = 4

[plugins."io.containerd.cri.v1.images".registry.configs."docker.io".auth]
username = "me"
password = 'a"b'

[plugins."io.containerd.cri.v1.images".registry.configs."gcr.io".auth]
identitytoken = "t"

[plugins."io.containerd.cri.v1.images".registry.configs."h:5000".auth]
username = "u"
password = "p:w"

[plugins."io.containerd.cri.v1.images".registry.configs."registry-1.docker.io".auth]
username = "me"
password = 'a"b'
"#;
        assert_eq!(text(&registries).as_deref(), Some(expected));
        let password = |user: &str, password: &str| {
            Some(Login::Password(user.to_owned(), Secret::new(password)))
        };
        for host in ["docker.io", "registry-1.docker.io"] {
            assert_eq!(login(&registries, host), password("me", "a\"b"));
        }
        assert_eq!(login(&registries, "h:5000"), password("u", "p:w"));
        let token = Some(Login::Token(Secret::new("t")));
        assert_eq!(login(&registries, "gcr.io"), token);
        for host in ["h", "quay.io", "evil-docker.io"] {
            assert_eq!(login(&registries, host), None, "{host}");
        }
        assert_eq!(
            text(&of("{quay.io: {tls: {insecureSkipVerify: true}}}")),
            None
        );
    }
}

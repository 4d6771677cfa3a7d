//! Credentials of registries, as containerd takes them: in its configuration for pulls of pods, and as an answer to
//! a question for pulls of ours.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use corten_config::Secret;
use corten_config::registries::{DOCKER, Registries, RegistryAuth, decode_auth, of_host};

use super::{PRIVATE, quoted};
use crate::durable::{remove_if_there, replace_now};

/// How containerd is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// By user and password.
    Password(String, Secret),
    /// By a token that is exchanged for others (OAuth 2.0, RFC 6749, "Refresh Token").
    Token(Secret),
}

/// How containerd is let in at a host; `None`: as anybody is.
#[must_use]
pub fn login(registries: &Registries, host: &str) -> Option<Login> {
    of_host(&registries.auths, host).and_then(normal)
}

/// Of the three forms that a config has, one is there.
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

/// The part of containerd's configuration that holds them (containerd 2, `docs/cri/registry.md`, "Configure Registry
/// Credentials"); `None`: there are none.
pub(super) fn text(registries: &Registries) -> Option<String> {
    let said = registries.auths.iter();
    let mut auths: BTreeMap<&str, &RegistryAuth> =
        said.map(|(host, auth)| (host.as_str(), auth)).collect();
    // containerd asks by the host it calls.
    let (registry, served_by) = DOCKER;
    if let Some(auth) = registries.auths.get(registry) {
        auths.entry(served_by).or_insert(auth);
    }
    let mut text = String::from("version = 4\n");
    let mut is_any = false;
    for (host, auth) in auths {
        let Some(login) = normal(auth) else { continue };
        is_any = true;
        let host = quoted(host);
        let _ = writeln!(
            text,
            "\n[plugins.\"io.containerd.cri.v1.images\".registry.configs.{host}.auth]"
        );
        let _ = match login {
            Login::Password(user, password) => writeln!(
                text,
                "username = {}\npassword = {}",
                quoted(&user),
                quoted(password.expose())
            ),
            Login::Token(token) => writeln!(text, "identitytoken = {}", quoted(token.expose())),
        };
    }
    is_any.then_some(text)
}

/// Makes the file hold them, or goes without one.
pub(super) fn write(path: &Path, text: Option<&str>) -> io::Result<()> {
    let Some(text) = text else {
        return remove_if_there(path);
    };
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    replace_now(path, text, PRIVATE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::sample;

    fn of(config: &str) -> Registries {
        sample::config(&format!("registries: {{config: {config}}}"), "").registries()
    }

    #[test]
    fn every_form_becomes_what_containerd_understands() {
        let registries = of("{docker.io: {auth: {username: me, password: 'a\"b'}}, \
             'h:5000': {auth: {auth: dTpwOnc=}}, gcr.io: {auth: {identityToken: t}}, \
             quay.io: {tls: {insecureSkipVerify: true}}}");
        let expected = r#"version = 4

[plugins."io.containerd.cri.v1.images".registry.configs."docker.io".auth]
username = "me"
password = "a\"b"

[plugins."io.containerd.cri.v1.images".registry.configs."gcr.io".auth]
identitytoken = "t"

[plugins."io.containerd.cri.v1.images".registry.configs."h:5000".auth]
username = "u"
password = "p:w"

[plugins."io.containerd.cri.v1.images".registry.configs."registry-1.docker.io".auth]
username = "me"
password = "a\"b"
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

    #[test]
    fn the_file_is_roots_alone_and_goes_with_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("conf.d/registries.toml");
        write(&path, None).unwrap();
        for content in ["one", "two"] {
            write(&path, Some(content)).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
        write(&path, None).unwrap();
        assert!(!path.exists());
    }
}

//! Registry directories with `hosts.toml` and the certificates that it refers to (containerd, `docs/hosts.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use corten_base::durable::{Access, remove_directory_if_there, remove_others, replace_all};
use corten_config::registries::{ANY, Mirror, Registries, RegistryTls, of_host};
use toml::Table;

/// Directory for registries without their own.
const DEFAULT: &str = "_default";
const HOSTS: &str = "hosts.toml";
/// Directory for files about to be deleted; no registry's name begins with a dot.
const REMOVED: &str = ".removed";

/// File names and contents of a directory.
type Files = BTreeMap<String, String>;

/// The directories by name, with their files.
pub(super) fn directories(registries: &Registries) -> BTreeMap<String, Files> {
    let mirrored = registries.mirrors.keys();
    let names: BTreeSet<&String> = mirrored.chain(registries.tls.keys()).collect();
    let named = names.into_iter();
    named
        .map(|name| (directory(name), files(name, registries)))
        .collect()
}

/// Directory name of a registry. containerd first looks for the port between underscores
/// (`core/remotes/docker/config/hosts.go`, `hostDirectory`).
fn directory(name: &str) -> String {
    match name.rsplit_once(':') {
        _ if name == ANY => DEFAULT.to_owned(),
        Some((host, port)) => format!("{host}_{port}_"),
        None => name.to_owned(),
    }
}

fn files(name: &str, registries: &Registries) -> Files {
    let mut files = Files::new();
    let mut text = Table::new();
    // A registry with a directory for its certificates still uses the mirrors of all registries.
    let mirrors = registries.mirrors.get(name);
    let mirrors = mirrors.or_else(|| registries.mirrors.get(ANY));
    let mut endpoints = mirrors.map(|it| &*it.endpoints).unwrap_or_default();
    // containerd tries the server last; the default server is the registry itself.
    let last = match endpoints.split_last() {
        Some((last, before)) if mirrors.is_some_and(|it| it.skip_fallback) => {
            endpoints = before;
            Some(last)
        }
        _ => None,
    };
    if let Some(last) = last {
        text.insert("server".to_owned(), last.url.clone().into());
        endpoint(last, registries, &mut text, &mut files);
    } else if let Some(own) = of_host(&registries.tls, name) {
        certificates(name, own, &mut text, &mut files);
    }
    // A table keeps its insertion order.
    let mut hosts = Table::new();
    for mirror in endpoints {
        let mut host = Table::new();
        endpoint(mirror, registries, &mut host, &mut files);
        hosts.insert(mirror.url.clone(), host.into());
    }
    if !hosts.is_empty() {
        text.insert("host".to_owned(), hosts.into());
    }
    files.insert(HOSTS.to_owned(), format!("# Written by machined.\n{text}"));
    files
}

fn endpoint(mirror: &Mirror, registries: &Registries, text: &mut Table, files: &mut Files) {
    let capabilities = vec!["pull", "resolve"];
    text.insert("capabilities".to_owned(), capabilities.into());
    if mirror.override_path {
        text.insert("override_path".to_owned(), true.into());
    }
    // With certificates, containerd would try https first for an http URL.
    if let Some(rest) = mirror.url.strip_prefix("https://") {
        let host = rest.split('/').next().unwrap_or_default();
        if let Some(tls) = of_host(&registries.tls, host) {
            certificates(host, tls, text, files);
        }
    }
}

fn certificates(host: &str, tls: &RegistryTls, text: &mut Table, files: &mut Files) {
    if let Some(ca) = &tls.ca {
        let name = format!("{host}-ca.pem");
        text.insert("ca".to_owned(), name.clone().into());
        files.insert(name, ca.clone());
    }
    if let Some((crt, key)) = &tls.client_identity {
        // One file for both, so that certificate and key always match.
        let name = format!("{host}-client.pem");
        text.insert("client".to_owned(), name.clone().into());
        files.insert(
            name,
            format!("{}\n{}\n", crt.trim_end(), key.expose().trim_end()),
        );
    }
    if tls.insecure_skip_verify {
        text.insert("skip_verify".to_owned(), true.into());
    }
}

/// Makes `root` contain exactly these directories. A concurrent reader sees each file in its old or new state. A
/// failure does not affect other registries; the first error is returned.
pub(super) fn write(root: &Path, wanted: &BTreeMap<String, Files>) -> io::Result<()> {
    fs::create_dir_all(root)?;
    let removed = root.join(REMOVED);
    let mut done = remove_directory_if_there(&removed);
    for (name, files) in wanted {
        let files = files.iter().map(|(name, text)| (&**name, &**text));
        // `hosts.toml` last, because it refers to the other files.
        let (hosts, others): (Vec<_>, Vec<_>) = files.partition(|(name, _)| *name == HOSTS);
        let files = others.into_iter().chain(hosts);
        // Only root may read the keys, so all files are private.
        done = done.and(replace_all(&root.join(name), files, Access::PRIVATE));
    }
    let is_wanted = |name: &OsStr| name.to_str().is_some_and(|name| wanted.contains_key(name));
    done.and(remove_others(root, is_wanted, |directory| {
        // A rename removes the directory atomically for readers.
        fs::rename(directory, &removed)?;
        remove_directory_if_there(&removed)
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use corten_base::sample;

    use super::super::with_cache;
    use super::*;

    const CRT: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----";

    fn of(documents: &[&str]) -> Registries {
        let more: String = documents
            .iter()
            .map(|fields| format!("---\napiVersion: v1alpha1\nkind: {fields}\n"))
            .collect();
        sample::config("", &more).registries()
    }

    fn pem(text: &str) -> String {
        text.replace('\n', "\\n")
    }

    fn tls(host: &str, fields: &str) -> String {
        format!("RegistryTLSConfig\nname: '{host}'\n{fields}")
    }

    const MIRROR: &str = "RegistryMirrorConfig\nname: docker.io\nendpoints: \
         [{url: 'https://m.example:5000'}, {url: 'http://h/v2/docker', overridePath: true}]";

    #[test]
    fn mirrors_are_tried_in_order_and_the_registry_last() {
        let found = directories(&of(&[MIRROR]));
        let expected = r#"# Written by machined.
[host."https://m.example:5000"]
capabilities = ["pull", "resolve"]

[host."http://h/v2/docker"]
capabilities = ["pull", "resolve"]
override_path = true
"#;
        assert_eq!(found.len(), 1);
        assert_eq!(found["docker.io"]["hosts.toml"], expected);
    }

    #[test]
    fn without_fallback_the_last_mirror_is_the_server() {
        let only = format!("{MIRROR}\nskipFallback: true");
        let found = directories(&of(&[&only]));
        let expected = r#"# Written by machined.
server = "http://h/v2/docker"
capabilities = ["pull", "resolve"]
override_path = true

[host."https://m.example:5000"]
capabilities = ["pull", "resolve"]
"#;
        assert_eq!(found["docker.io"]["hosts.toml"], expected);
        // The image cache alone is neither a server nor a mirror's replacement.
        let found = directories(&with_cache(of(&[&only]), true));
        assert!(
            found["docker.io"]["hosts.toml"]
                .starts_with("# Written by machined.\nserver = \"http://h/v2/docker\"\n")
        );
        let cache = "[host.\"http://127.0.0.1:3172\"]\ncapabilities = [\"pull\", \"resolve\"]\n";
        let default = format!("# Written by machined.\n{cache}");
        assert_eq!(found["_default"]["hosts.toml"], default);
    }

    #[test]
    fn certificates_go_with_the_host_of_a_url() {
        let identity = format!(
            "clientIdentity: {{cert: \"{}\", key: \"{}\"}}",
            pem(CRT),
            pem(KEY)
        );
        let ca = format!("ca: \"{}\"\n{identity}", pem(CRT));
        let found = directories(&of(&[
            MIRROR,
            &tls("m.example:5000", &ca),
            &tls("h", "insecureSkipVerify: true"),
            &tls("docker.io", "insecureSkipVerify: true"),
            "RegistryMirrorConfig\nname: '*'\nendpoints: [{url: 'https://registry-1.docker.io'}]",
        ]));
        let names: Vec<&str> = found.keys().map(|name| &**name).collect();
        assert_eq!(names, ["_default", "docker.io", "h", "m.example_5000_"]);
        let expected = r#"# Written by machined.
skip_verify = true

[host."https://m.example:5000"]
capabilities = ["pull", "resolve"]
ca = "m.example:5000-ca.pem"
client = "m.example:5000-client.pem"

[host."http://h/v2/docker"]
capabilities = ["pull", "resolve"]
override_path = true
"#;
        let docker = &found["docker.io"];
        assert_eq!(docker["hosts.toml"], expected);
        assert_eq!(docker["m.example:5000-ca.pem"], CRT);
        assert_eq!(
            docker["m.example:5000-client.pem"],
            format!("{CRT}\n{KEY}\n")
        );
        // A registry with only certificates uses the mirrors of all registries.
        let others = "[host.\"https://registry-1.docker.io\"]\n\
                      capabilities = [\"pull\", \"resolve\"]\nskip_verify = true\n";
        assert_eq!(
            found["h"]["hosts.toml"],
            format!("# Written by machined.\nskip_verify = true\n\n{others}")
        );
        assert_eq!(
            found["_default"]["hosts.toml"],
            format!("# Written by machined.\n{others}")
        );
    }

    #[test]
    fn removed_registries_lose_their_files_and_the_others_keep_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("certs.d");
        let ca = format!("ca: \"{}\"", pem(CRT));
        let both = of(&[MIRROR, &tls("m.example:5000", &ca)]);
        // Leftover of an interrupted write.
        fs::create_dir_all(root.join(".removed/x")).unwrap();
        write(&root, &directories(&both)).unwrap();
        let list = |name: &str| -> Vec<String> {
            let entries = fs::read_dir(root.join(name)).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(list(""), ["docker.io", "m.example_5000_"]);
        assert_eq!(list("docker.io"), ["hosts.toml", "m.example:5000-ca.pem"]);
        let mode = fs::metadata(root.join("docker.io/hosts.toml"))
            .unwrap()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        write(&root, &directories(&of(&[MIRROR]))).unwrap();
        assert_eq!(list(""), ["docker.io"]);
        assert_eq!(list("docker.io"), ["hosts.toml"]);
        write(&root, &BTreeMap::new()).unwrap();
        assert_eq!(list(""), [""; 0]);
    }

    #[test]
    fn unwritable_registry_does_not_block_the_others() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(
            root,
            &directories(&of(&[&tls("a.gone", "insecureSkipVerify: true")])),
        )
        .unwrap();
        fs::create_dir_all(root.join("docker.io/hosts.toml")).unwrap();
        let both = of(&[MIRROR, &tls("h", "insecureSkipVerify: true")]);
        write(root, &directories(&both)).unwrap_err();
        assert!(root.join("h/hosts.toml").is_file() && !root.join("a.gone").exists());
    }
}

//! What containerd is told of image registries: whom to ask, by which certificates, and by which credentials.
//!
//! Two kinds of files, all below `/run/containerd`: a directory for each registry, which containerd reads at every
//! pull (`hosts`), and credentials for pulls of pods, which it reads at its start (`credentials`). For pulls of its
//! own machined gives containerd credentials when it asks (`containerd/transfer.rs`).

mod credentials;
mod hosts;

use std::path::Path;

use corten_api::IMAGE_CACHE_PORT;
use corten_config::registries::{ANY, Mirror, Registries};

use crate::containerd::HOSTS;
use crate::durable::Access;

pub use credentials::{Login, login};

/// containerd's, `imports` of the image's `config.toml`.
const CREDENTIALS: &str = "/run/containerd/conf.d/registries.toml";
/// Passwords and keys are root's alone, and all else with them.
const PRIVATE: Access = Access {
    mode: 0o600,
    ..Access::ALL
};

/// What containerd is to be told, with the image cache as the first mirror of every registry, where it is served.
#[must_use]
pub fn with_cache(mut registries: Registries, is_served: bool) -> Registries {
    if !is_served {
        return registries;
    }
    let cache = Mirror {
        url: format!("http://127.0.0.1:{IMAGE_CACHE_PORT}"),
        override_path: false,
    };
    registries.mirrors.entry(ANY.to_owned()).or_default();
    for mirrors in registries.mirrors.values_mut() {
        mirrors.endpoints.retain(|mirror| mirror.url != cache.url);
        mirrors.endpoints.insert(0, cache.clone());
    }
    registries
}

/// Tells containerd whom to ask from its next pull on.
///
/// # Errors
/// A file cannot be written or removed.
pub fn write_hosts(registries: &Registries) -> Result<(), String> {
    let directory = Path::new(HOSTS);
    hosts::write(directory, &hosts::directories(registries))
        .map_err(|error| format!("cannot tell containerd whom to ask for images: {error}"))
}

/// Writes the credentials for pulls of pods, for containerd's next start.
///
/// # Errors
/// The file cannot be written or removed.
pub fn write_credentials(registries: &Registries) -> Result<(), String> {
    let text = credentials::text(registries);
    credentials::write(Path::new(CREDENTIALS), text.as_deref())
        .map_err(|error| format!("cannot write {CREDENTIALS}: {error}"))
}

/// What containerd reads at its start alone; `None`: the config says nothing of it.
#[must_use]
pub fn read_at_start(registries: &Registries) -> Option<String> {
    credentials::text(registries)
}

/// A string of TOML (toml.io, v1.0.0, "String": basic strings).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use corten_config::registries::RegistryMirrors;

    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a.b:1"), "\"a.b:1\"");
        assert_eq!(quoted("\"\\\n\u{7f}ä"), "\"\\\"\\\\\\u000a\\u007fä\"");
    }

    #[test]
    fn the_cache_is_first_once_and_for_every_registry() {
        let own = |url: &str| Mirror {
            url: url.to_owned(),
            override_path: false,
        };
        let mut registries = Registries::default();
        assert_eq!(with_cache(registries.clone(), false), registries);
        let mirrors = RegistryMirrors {
            endpoints: vec![own("https://m"), own("http://127.0.0.1:3172")],
            skip_fallback: true,
        };
        registries.mirrors.insert("docker.io".to_owned(), mirrors);
        let all = with_cache(registries, true).mirrors;
        let urls = |name: &str| -> Vec<&str> {
            let endpoints = all[name].endpoints.iter();
            endpoints.map(|mirror| &*mirror.url).collect()
        };
        assert_eq!(urls("docker.io"), ["http://127.0.0.1:3172", "https://m"]);
        assert_eq!(urls("*"), ["http://127.0.0.1:3172"]);
        assert!(all["docker.io"].skip_fallback && !all["*"].skip_fallback);
    }
}

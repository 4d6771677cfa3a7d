//! containerd's settings for image registries: mirrors, certificates and credentials.
//!
//! `hosts` writes a directory for each registry, which containerd reads at every pull. `credentials` has those of pod
//! pulls, which containerd reads at its start. machined answers for its own pulls (`client/transfer.rs`).

mod credentials;
mod hosts;

use std::path::Path;

use corten_api::IMAGE_CACHE_PORT;
use corten_config::registries::{ANY, Mirror, Registries};

use crate::client::HOSTS;

pub use credentials::{Login, login, text as credentials};

/// The settings with the image cache, where served, as the first mirror of every registry.
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

/// Writes the registry directories; they take effect with the next pull.
///
/// # Errors
/// A file cannot be written or removed.
pub fn write_hosts(registries: &Registries) -> Result<(), String> {
    let directory = Path::new(HOSTS);
    hosts::write(directory, &hosts::directories(registries))
        .map_err(|error| format!("cannot write containerd's registry settings: {error}"))
}

#[cfg(test)]
mod tests {
    use corten_config::registries::RegistryMirrors;

    use super::*;

    #[test]
    fn image_cache_is_the_first_mirror_of_every_registry_once() {
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

//! Applies the config's image settings: the registries and CAs that containerd uses, and the image cache.

use corten_base::console;
use corten_base::trusted_roots;
use corten_config::Document;
use corten_containerd::registries::{with_cache, write_hosts};
use corten_server::node::Node as _;
use corten_supervisor::REGISTRYD;

use super::Machine;
use crate::image_cache;

impl Machine {
    /// Writes the settings of registries, trusted CAs and containerd. This precedes all other effects of the config:
    /// containerd must not contact a registry in between that the config forbids. Without a config, writes those of the
    /// image.
    pub(super) fn write_registries(&self, document: Option<&Document>) {
        let is_cached =
            document.is_some_and(Document::serves_image_cache) && image_cache::is_mounted();
        let roots = document.map(trusted_roots::of).unwrap_or_default();
        let registries = document.map(Document::registries).unwrap_or_default();
        for written in [
            trusted_roots::trust(&roots),
            corten_containerd::settings::write(document),
            write_hosts(&with_cache(registries, is_cached)),
        ] {
            if let Err(why) = written {
                console::warn(&why);
            }
        }
    }

    /// Starts or stops the service of the image cache, by the current config. Pods start without the cache too.
    pub(super) fn serve_images(&self) {
        let config = self.node.config();
        let Some(config) = config.filter(Document::serves_image_cache) else {
            return self.supervisor.stop(REGISTRYD);
        };
        // If the cache is mounted, `write_registries` has written the hosts with it.
        let is_told = image_cache::is_mounted();
        let served = image_cache::mount().and_then(|()| match is_told {
            true => Ok(()),
            false => write_hosts(&with_cache(config.registries(), true)),
        });
        match served {
            Ok(()) => self.supervisor.start(REGISTRYD),
            Err(why) => console::warn(&format!(
                "cannot use the image cache, so images come from the registries: {why}"
            )),
        }
    }
}

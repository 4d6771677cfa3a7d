//! Images in the node's life: whom containerd asks for them, whom it believes, and the image cache.

use corten_config::Document;
use corten_config::registries::Registries;

use super::Machine;
use crate::console;
use crate::image_cache;
use crate::node::Node as _;
use crate::registries::{with_cache, write_credentials, write_hosts};
use crate::services::REGISTRYD;
use crate::trusted_roots;

impl Machine {
    /// Writes what a config says of registries and authorities, before anybody acts on the config: what it forbids
    /// to ask is not asked in between.
    pub(super) fn write_registries(&self, document: &Document) {
        let registries = document.registries();
        let is_cached = is_cache_wanted(document) && image_cache::is_mounted();
        for written in [
            trusted_roots::trust(&trusted_roots::of(document)),
            write_credentials(&registries),
            write_hosts(&with_cache(registries, is_cached)),
        ] {
            if let Err(why) = written {
                console::warn(&why);
            }
        }
    }

    /// Serves the image cache, or stops it, as the config of now says. Pods start without it too.
    pub(super) fn serve_images(&self) {
        let config = self.node.config();
        let wanted = config.as_ref().is_some_and(is_cache_wanted);
        let registries = config
            .as_ref()
            .map_or_else(Registries::default, Document::registries);
        let served = if wanted {
            image_cache::mount().and_then(|()| write_hosts(&with_cache(registries, true)))
        } else {
            write_hosts(&registries)
        };
        match served {
            Ok(()) if wanted => self.supervisor.start(REGISTRYD),
            Ok(()) => self.supervisor.stop(REGISTRYD),
            Err(why) => console::warn(&format!("images are pulled from the network: {why}")),
        }
    }
}

fn is_cache_wanted(document: &Document) -> bool {
    document.machine.features.image_cache.local_enabled
}

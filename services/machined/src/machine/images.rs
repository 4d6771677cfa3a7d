//! The image cache in the node's life.

use super::Machine;
use crate::console;
use crate::image_cache;
use crate::node::Node as _;
use crate::services::REGISTRYD;

impl Machine {
    /// Serves the image cache, or stops it, as the config of now says. Pods start without it too.
    pub(super) fn serve_images(&self) {
        let wanted = self
            .node
            .config()
            .is_some_and(|document| document.machine.features.image_cache.local_enabled);
        let served = if wanted {
            image_cache::mount().and_then(|()| image_cache::point_containerd_to_it(true))
        } else {
            image_cache::point_containerd_to_it(false)
        };
        match served {
            Ok(()) if wanted => self.supervisor.start(REGISTRYD),
            Ok(()) => self.supervisor.stop(REGISTRYD),
            Err(why) => console::warn(&format!("images are pulled from the network: {why}")),
        }
    }
}

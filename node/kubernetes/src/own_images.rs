//! Images in containerd's namespace of the node itself.

use corten_config::Document;

use crate::{ControlPlane, Node, Settings};

/// Images of the services that a node with this config runs: etcd and the kubelet.
#[must_use]
pub fn service_images(document: &Document) -> Vec<String> {
    let Ok(settings) = Settings::of(document) else {
        return Vec::new();
    };
    let kubelet = Node::of(document, &settings).map(|node| node.image);
    let etcd = document
        .machine
        .kind
        .is_control_plane()
        .then(|| ControlPlane::of(document).map(|own| own.images.etcd));
    let etcd = etcd.and_then(Result::ok);
    etcd.into_iter().chain(kubelet).collect()
}

/// Images that this config names for the node itself: those of its services, and its extensions with their digests.
#[must_use]
pub fn own_images(document: &Document) -> Vec<String> {
    let extensions = document.machine.install.extensions.iter();
    let mut images = service_images(document);
    images.extend(extensions.map(|extension| extension.image.to_string()));
    images
}

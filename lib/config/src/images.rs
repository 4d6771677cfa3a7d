//! The container images of Kubernetes that a build of the project makes (`rootfs/kubernetes/images.toml`).
//!
//! Their registry does not exist: a node finds them only in its image cache.

use crate::document::Document;
use crate::kinds::KubeletConfig;

/// Registry of the bundled images.
pub const BUNDLED_REGISTRY: &str = "images.corten.internal";

/// Names and tags of the bundled images. A test of `mkimage` compares them with the built ones.
pub const BUNDLED: [(&str, &str); 9] = [
    (KUBELET, "v1.37.2"),
    ("etcd", "v3.7.3"),
    ("kube-apiserver", "v1.37.2"),
    ("kube-controller-manager", "v1.37.2"),
    ("kube-scheduler", "v1.37.2"),
    ("kube-proxy", "v1.37.2"),
    ("coredns", "v1.14.7"),
    ("flannel", "v0.28.10"),
    ("pause", "3.10.2"),
];

const KUBELET: &str = "kubelet";

/// The full name of a bundled image; `None` for an unknown name.
#[must_use]
pub fn bundled(name: &str) -> Option<String> {
    let (_, tag) = BUNDLED.iter().find(|(known, _)| *known == name)?;
    Some(format!("{BUNDLED_REGISTRY}/{name}:{tag}"))
}

impl Document {
    /// Whether the node's kubelet is the bundled one. Then flannel, whose image has no field, is the bundled one too.
    #[must_use]
    pub fn uses_bundled_images(&self) -> bool {
        let by_kind = self.all::<KubeletConfig>().next();
        let image = by_kind.map(|kubelet| kubelet.image.as_str());
        image
            .or(self.machine.kubelet.image.as_deref())
            .is_some_and(is_bundled)
    }
}

/// Whether the name of an image begins with the bundled registry.
#[must_use]
pub fn is_bundled(image: &str) -> bool {
    let rest = image.strip_prefix(BUNDLED_REGISTRY);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_of_the_bundled_registry_are_bundled() {
        assert!(is_bundled(&bundled(KUBELET).unwrap()));
        assert!(!is_bundled(
            "images.corten.internal.example/kubelet:v1.37.2"
        ));
        assert!(!is_bundled("ghcr.io/siderolabs/kubelet:v1.37.2"));
        assert_eq!(bundled("busybox"), None);
    }
}

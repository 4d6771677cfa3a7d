//! The container images of Kubernetes: those that a build of the project makes (`rootfs/kubernetes/images.toml`), and
//! those of the upstream projects.
//!
//! The registry of the bundled images does not exist: a node finds them only in its image cache.

use std::fmt;
use std::ops::RangeInclusive;

use crate::document::Document;
use crate::kinds::KubeletConfig;

/// Registry of the bundled images.
pub const BUNDLED_REGISTRY: &str = "images.corten.internal";

/// Major and minor versions of Kubernetes that a node runs, from the oldest to the newest.
pub const RELEASES: RangeInclusive<(u64, u64)> = (1, 35)..=(1, 37);

/// Names and tags of the bundled images. A test of `mkimage` compares them with the built ones.
pub const BUNDLED: [(&str, &str); 10] = [
    (KUBELET, "v1.37.2"),
    ("etcd", "v3.7.3"),
    ("kube-apiserver", "v1.37.2"),
    ("kube-controller-manager", "v1.37.2"),
    ("kube-scheduler", "v1.37.2"),
    ("kube-proxy", "v1.37.2"),
    ("coredns", "v1.14.7"),
    ("flannel", "v0.28.10"),
    (POLICIES_NAME, "v1.1.1"),
    ("pause", "3.10.2"),
];

const KUBELET: &str = "kubelet";
/// Name of the bundled image that enforces network policies.
pub const POLICIES_NAME: &str = "kube-network-policies";

/// Repositories of the upstream images that have the version of Kubernetes.
const OF_KUBERNETES: [(&str, &str); 5] = [
    (KUBELET, "ghcr.io/siderolabs/kubelet"),
    ("kube-apiserver", "registry.k8s.io/kube-apiserver"),
    (
        "kube-controller-manager",
        "registry.k8s.io/kube-controller-manager",
    ),
    ("kube-scheduler", "registry.k8s.io/kube-scheduler"),
    ("kube-proxy", "registry.k8s.io/kube-proxy"),
];

/// An upstream image with a version of its own, which a config without an image means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upstream {
    /// The image without its tag.
    pub repository: &'static str,
    /// The tag.
    pub tag: &'static str,
}

/// etcd.
pub const ETCD: Upstream = of("registry.k8s.io/etcd", "3.7.1");
/// CoreDNS.
pub const COREDNS: Upstream = of("registry.k8s.io/coredns/coredns", "v1.14.7");
/// flannel.
pub const FLANNEL: Upstream = of("ghcr.io/siderolabs/flannel", "0.28.9");
/// The enforcement of network policies next to flannel.
pub const POLICIES: Upstream = of("registry.k8s.io/networking/kube-network-policies", "v1.1.1");
/// The sandbox of pods, by containerd's own default.
pub const PAUSE: Upstream = of("registry.k8s.io/pause", "3.10.2");

const fn of(repository: &'static str, tag: &'static str) -> Upstream {
    Upstream { repository, tag }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

/// The upstream image of a component with the version of Kubernetes, such as 1.37.2; `None` for an unknown name.
#[must_use]
pub fn upstream(name: &str, version: &str) -> Option<String> {
    let (_, repository) = OF_KUBERNETES.iter().find(|(known, _)| *known == name)?;
    Some(format!("{repository}:v{version}"))
}

/// The version of Kubernetes that a build of the project has, without the `v`.
#[must_use]
pub fn kubernetes_version() -> &'static str {
    let kubelet = BUNDLED.iter().find(|(name, _)| *name == KUBELET);
    kubelet.map_or("", |(_, tag)| tag.trim_start_matches('v'))
}

/// The full name of a bundled image; `None` for an unknown name.
#[must_use]
pub fn bundled(name: &str) -> Option<String> {
    let (_, tag) = BUNDLED.iter().find(|(known, _)| *known == name)?;
    Some(format!("{BUNDLED_REGISTRY}/{name}:{tag}"))
}

impl Document {
    /// Whether the node's kubelet is the bundled one. Then flannel and the enforcement of policies, whose images
    /// have no field, are the bundled ones too.
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

    #[test]
    fn upstream_images_have_the_version_of_kubernetes_or_their_own() {
        assert_eq!(
            upstream("kube-proxy", "1.36.4").unwrap(),
            "registry.k8s.io/kube-proxy:v1.36.4"
        );
        assert_eq!(upstream("busybox", "1.36.4"), None);
        assert_eq!(ETCD.to_string(), "registry.k8s.io/etcd:3.7.1");
        let (major, newest) = RELEASES.end();
        let bundled = format!("{major}.{newest}.");
        assert!(kubernetes_version().starts_with(&bundled));
    }
}

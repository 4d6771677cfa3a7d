//! `image k8s-bundle`: the upstream images that the nodes of a cluster pull, for a mirror of their registries.

use corten_config::images::{
    COREDNS, ETCD, FLANNEL, PAUSE, POLICIES, Upstream, kubernetes_version, upstream,
};

use crate::args::ImageBundle;

/// The components with the version of Kubernetes.
const COMPONENTS: [&str; 5] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
];

/// The images, one a line, in the order of the reference.
pub(crate) fn lines(args: &ImageBundle) -> String {
    let asked = args.k8s_version.as_deref();
    let version = asked.unwrap_or_else(|| kubernetes_version());
    let components = COMPONENTS.iter().filter_map(|name| upstream(name, version));
    let mut images = vec![
        tagged(FLANNEL, args.flannel_version.as_deref()),
        tagged(COREDNS, args.coredns_version.as_deref()),
        tagged(ETCD, args.etcd_version.as_deref()),
        PAUSE.to_string(),
    ];
    images.extend(components);
    images.push(tagged(
        POLICIES,
        args.kube_network_policies_version.as_deref(),
    ));
    images.iter().map(|image| format!("{image}\n")).collect()
}

/// The image with another version. Some projects write a `v` before it.
fn tagged(image: Upstream, version: Option<&str>) -> String {
    let Some(version) = version else {
        return image.to_string();
    };
    let v = if image.tag.starts_with('v') { "v" } else { "" };
    format!("{}:{v}{version}", image.repository)
}

#[cfg(test)]
mod tests {
    use clap::{Parser as _, error::ErrorKind};

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ImageBundle,
    }

    fn of(line: &str) -> Result<String, clap::Error> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| lines(&line.args))
    }

    #[test]
    fn bundle_lists_the_images_of_a_cluster_in_the_versions_of_the_line() {
        let usual = of("").unwrap();
        let kubelet = format!("ghcr.io/siderolabs/kubelet:v{}\n", kubernetes_version());
        assert!(usual.contains(&kubelet), "{usual}");
        assert!(usual.contains(&format!("{ETCD}\n")), "{usual}");
        let line = "--k8s-version 1.36.4 --etcd-version v3.6.1 --coredns-version 1.14.0 \
                    --flannel-version v0.28.0 --kube-network-policies-version v1.0.0";
        let expected = "\
ghcr.io/siderolabs/flannel:0.28.0
registry.k8s.io/coredns/coredns:v1.14.0
registry.k8s.io/etcd:3.6.1
registry.k8s.io/pause:3.10.2
registry.k8s.io/kube-apiserver:v1.36.4
registry.k8s.io/kube-controller-manager:v1.36.4
registry.k8s.io/kube-scheduler:v1.36.4
registry.k8s.io/kube-proxy:v1.36.4
ghcr.io/siderolabs/kubelet:v1.36.4
registry.k8s.io/networking/kube-network-policies:v1.0.0
";
        assert_eq!(of(line).unwrap(), expected);
        for wrong in ["latest", "1.2/3", "", "v"] {
            let refused = of(&format!("--k8s-version={wrong}")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ValueValidation, "{wrong:?}");
        }
    }
}

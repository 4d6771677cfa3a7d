use std::fs;
use std::path::Path;

use corten_config::images::bundled;
use corten_config::{Document, Mode};

use super::tests::args;
use super::*;

#[test]
fn bundled_images_are_named_and_served_from_the_nodes_own_cache() {
    let directory = tempfile::tempdir().unwrap();
    let read = |target: &Path, name: &str| {
        let document = Document::parse(&fs::read(target.join(name)).unwrap()).unwrap();
        document.validate(Mode::Metal).unwrap();
        document
    };
    let target = directory.path().join("bundled");
    let said = GenConfig {
        kubernetes_images: KubernetesImages::Bundled,
        ..args(&target)
    };
    config(&said).unwrap();
    for name in ["controlplane.yaml", "worker.yaml"] {
        let document = read(&target, name);
        assert!(document.uses_bundled_images() && document.serves_image_cache());
        let parts: Vec<_> = document.containerd_parts().into_values().collect();
        let [part] = parts.as_slice() else {
            panic!("{} parts", parts.len());
        };
        let pause = bundled("pause").unwrap();
        assert!(part.expose().contains(&format!("sandbox = '{pause}'")));
    }
    let cluster = read(&target, "controlplane.yaml").cluster;
    assert_eq!(cluster.api_server.image, bundled("kube-apiserver"));
    assert_eq!(cluster.scheduler.image, bundled("kube-scheduler"));
    assert_eq!(
        cluster.controller_manager.image,
        bundled("kube-controller-manager")
    );
    assert_eq!(cluster.proxy.image, bundled("kube-proxy"));
    assert_eq!(cluster.etcd.unwrap().image, bundled("etcd"));
    assert_eq!(cluster.core_dns.unwrap().image, bundled("coredns"));

    let upstream = directory.path().join("upstream");
    config(&args(&upstream)).unwrap();
    for name in ["controlplane.yaml", "worker.yaml"] {
        let document = read(&upstream, name);
        assert!(!document.uses_bundled_images() && !document.serves_image_cache());
        assert!(document.containerd_parts().is_empty());
    }
}

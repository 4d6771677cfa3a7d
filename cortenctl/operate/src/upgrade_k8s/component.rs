//! The components that follow the version of Kubernetes, and their images in the machine config.

use corten_config::Document;
use corten_config::kinds::{
    KubeAPIServerConfig, KubeControllerManagerConfig, KubeProxyConfig, KubeSchedulerConfig,
    KubeletConfig,
};
use serde_json::{Value, json};

/// Components in the order in which an upgrade changes them (Kubernetes, "Version Skew Policy").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Component {
    ApiServer,
    ControllerManager,
    Scheduler,
    Proxy,
    Kubelet,
}

impl Component {
    pub(super) const ALL: [Component; 5] = [
        Component::ApiServer,
        Component::ControllerManager,
        Component::Scheduler,
        Component::Proxy,
        Component::Kubelet,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Component::ApiServer => "kube-apiserver",
            Component::ControllerManager => "kube-controller-manager",
            Component::Scheduler => "kube-scheduler",
            Component::Proxy => "kube-proxy",
            Component::Kubelet => "kubelet",
        }
    }

    /// Whether it is a static pod of the node.
    pub(super) fn is_static_pod(self) -> bool {
        !matches!(self, Component::Proxy | Component::Kubelet)
    }

    /// The image in the config; `None` if the node or its cluster does not run the component.
    pub(super) fn image(self, document: &Document) -> Option<String> {
        if self != Component::Kubelet && !document.machine.kind.is_control_plane() {
            return None;
        }
        let cluster = &document.cluster;
        let control_plane = &document.machine.control_plane;
        let (runs, image) = match self {
            Component::ApiServer => match document.all::<KubeAPIServerConfig>().next() {
                Some(own) => (true, Some(own.image.clone())),
                None => (true, cluster.api_server.image.clone()),
            },
            Component::ControllerManager => {
                match document.all::<KubeControllerManagerConfig>().next() {
                    Some(own) => (own.enabled != Some(false), own.image.clone()),
                    None => (
                        !control_plane.controller_manager.disabled,
                        cluster.controller_manager.image.clone(),
                    ),
                }
            }
            Component::Scheduler => match document.all::<KubeSchedulerConfig>().next() {
                Some(own) => (own.enabled != Some(false), own.image.clone()),
                None => (
                    !control_plane.scheduler.disabled,
                    cluster.scheduler.image.clone(),
                ),
            },
            Component::Proxy => match document.all::<KubeProxyConfig>().next() {
                Some(own) => (own.enabled != Some(false), own.image.clone()),
                None => (!cluster.proxy.disabled, cluster.proxy.image.clone()),
            },
            Component::Kubelet => match document.all::<KubeletConfig>().next() {
                Some(own) => (true, Some(own.image.clone())),
                None => (true, document.machine.kubelet.image.clone()),
            },
        };
        image.filter(|_| runs)
    }

    /// A patch that sets another image, in the form that the config has.
    pub(super) fn patch(self, document: &Document, image: &str) -> String {
        let kind = |kind: &str| json!({ "apiVersion": "v1alpha1", "kind": kind, "image": image });
        let patch: Value = match self {
            Component::ApiServer if document.all::<KubeAPIServerConfig>().next().is_some() => {
                kind("KubeAPIServerConfig")
            }
            Component::ApiServer => json!({ "cluster": { "apiServer": { "image": image } } }),
            Component::ControllerManager
                if document
                    .all::<KubeControllerManagerConfig>()
                    .next()
                    .is_some() =>
            {
                kind("KubeControllerManagerConfig")
            }
            Component::ControllerManager => {
                json!({ "cluster": { "controllerManager": { "image": image } } })
            }
            Component::Scheduler if document.all::<KubeSchedulerConfig>().next().is_some() => {
                kind("KubeSchedulerConfig")
            }
            Component::Scheduler => json!({ "cluster": { "scheduler": { "image": image } } }),
            Component::Proxy if document.all::<KubeProxyConfig>().next().is_some() => {
                kind("KubeProxyConfig")
            }
            Component::Proxy => json!({ "cluster": { "proxy": { "image": image } } }),
            Component::Kubelet if document.all::<KubeletConfig>().next().is_some() => {
                kind("KubeletConfig")
            }
            Component::Kubelet => json!({ "machine": { "kubelet": { "image": image } } }),
        };
        patch.to_string()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use corten_client::configfile;
    use corten_pki::{Algorithm, Ca};

    use super::*;

    const KINDS: [(&str, &str); 5] = [
        ("KubeAPIServerConfig", "kube-apiserver"),
        ("KubeControllerManagerConfig", "kube-controller-manager"),
        ("KubeSchedulerConfig", "kube-scheduler"),
        ("KubeProxyConfig", "kube-proxy"),
        ("KubeletConfig", "kubelet"),
    ];

    pub(in super::super) fn document(text: &str) -> Document {
        Document::parse(text.as_bytes()).unwrap()
    }

    /// A config with these lines of kubelet and cluster.
    pub(in super::super) fn config(kind: &str, kubelet: &str, cluster: &str) -> String {
        let ca = Ca::generate(Algorithm::EcdsaP256, "x", "", SystemTime::now()).unwrap();
        let [crt, key] = [&ca.pem().crt, &ca.pem().key].map(|pem| STANDARD.encode(pem));
        let ca = match kind {
            "worker" => format!("{{crt: {crt}}}"),
            _ => format!("{{crt: {crt}, key: {key}}}"),
        };
        format!(
            "version: v1alpha1\nmachine:\n  type: {kind}\n  token: abcdef.0123456789abcdef\n  ca: {ca}\n{kubelet}\
             cluster:\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n{cluster}"
        )
    }

    fn old_form(kind: &str) -> String {
        let image = |name: &str| format!("{{image: 'r/{name}:v1.36.4'}}");
        let kubelet = format!("  kubelet: {}\n", image("kubelet"));
        let parts = [
            ("apiServer", "kube-apiserver"),
            ("controllerManager", "kube-controller-manager"),
            ("scheduler", "kube-scheduler"),
            ("proxy", "kube-proxy"),
        ];
        let parts = parts.map(|(field, name)| format!("  {field}: {}\n", image(name)));
        config(kind, &kubelet, &parts.concat())
    }

    /// The same config in the form with one document for each component.
    fn new_form() -> String {
        let one = |(kind, name)| {
            format!("---\napiVersion: v1alpha1\nkind: {kind}\nimage: r/{name}:v1.36.4\n")
        };
        config("controlplane", "", "") + &KINDS.map(one).concat()
    }

    #[test]
    fn patch_changes_only_the_image_of_its_component() {
        for before in [old_form("controlplane"), new_form()] {
            let mut text = before.clone();
            for component in Component::ALL {
                let parsed = document(&text);
                let old = component.image(&parsed).unwrap();
                assert_eq!(old, format!("r/{}:v1.36.4", component.name()));
                let new = format!("m/{}:v1.37.2", component.name());
                let patch = component.patch(&parsed, &new);
                let changed = configfile::patched(text.into_bytes(), &[patch]).unwrap();
                text = String::from_utf8(changed).unwrap();
                assert_eq!(component.image(&document(&text)), Some(new.clone()));
                // The reverse patch restores the config.
                let parsed = document(&text);
                let back = component.patch(&parsed, &old);
                let back = configfile::patched(text.clone().into_bytes(), &[back]).unwrap();
                let back = String::from_utf8(back).unwrap();
                assert_eq!(component.image(&document(&back)), Some(old));
                assert_eq!(
                    text.matches("v1.37.2").count(),
                    back.matches("v1.37.2").count() + 1
                );
            }
            assert_eq!(text.matches("v1.36.4").count(), 0, "{text}");
            assert_eq!(
                text.matches("kind: ").count(),
                before.matches("kind: ").count()
            );
        }
    }

    #[test]
    fn worker_has_only_a_kubelet_and_disabled_components_have_no_image() {
        let worker = document(&old_form("worker"));
        let found = Component::ALL.into_iter();
        let found: Vec<_> = found.filter(|one| one.image(&worker).is_some()).collect();
        assert_eq!(found, [Component::Kubelet]);
        let text = new_form().replace(
            "kind: KubeProxyConfig\n",
            "kind: KubeProxyConfig\nenabled: false\n",
        );
        assert_eq!(Component::Proxy.image(&document(&text)), None);
        let text = old_form("controlplane").replace("  proxy: {", "  proxy: {disabled: true, ");
        assert_eq!(Component::Proxy.image(&document(&text)), None);
    }
}

//! From the machine config to the settings of the bootstrap manifests.

use std::net::IpAddr;

use corten_manifests as manifests;

use crate::{ControlPlane, Node, Settings};

/// flannel's backend and its port, unless the config says others.
const BACKEND: (&str, u16) = ("vxlan", 4789);

/// What a new cluster is given to run.
#[must_use]
pub fn bootstrap_settings(
    settings: &Settings,
    node: &Node,
    control_plane: &ControlPlane,
) -> manifests::Settings {
    let images = &control_plane.images;
    let pods: Vec<String> = settings.pods.iter().map(ToString::to_string).collect();
    let proxy = images.proxy.as_ref().map(|image| manifests::Proxy {
        image: image.clone(),
        args: proxy_args(&pods, control_plane.proxy_mode),
        ..manifests::Proxy::default()
    });
    let mut dns_addresses = (None, None);
    for address in &node.dns {
        match address {
            IpAddr::V4(address) => dns_addresses.0 = dns_addresses.0.or(Some(*address)),
            IpAddr::V6(address) => dns_addresses.1 = dns_addresses.1.or(Some(*address)),
        }
    }
    let dns = images.dns.as_ref().map(|image| manifests::Dns {
        image: image.clone(),
        ipv4: dns_addresses.0,
        ipv6: dns_addresses.1,
    });
    let flannel = images.flannel.as_ref().map(|image| manifests::Flannel {
        image: image.clone(),
        backend: BACKEND.0.to_owned(),
        port: Some(BACKEND.1),
        ..manifests::Flannel::default()
    });
    manifests::Settings {
        server: settings.any_server(),
        domain: settings.domain.clone(),
        pod_subnets: pods,
        proxy,
        dns,
        flannel,
    }
}

fn proxy_args(pods: &[String], mode: &str) -> Vec<String> {
    vec![
        format!("--cluster-cidr={}", pods.join(",")),
        "--conntrack-max-per-core=0".to_owned(),
        "--hostname-override=$(NODE_NAME)".to_owned(),
        "--kubeconfig=/etc/kubernetes/kubeconfig".to_owned(),
        format!("--proxy-mode={mode}"),
    ]
}

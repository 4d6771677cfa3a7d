//! Derives the settings of the bootstrap manifests from the machine config.

use std::net::{IpAddr, Ipv4Addr};

use corten_manifests as manifests;

use crate::addons::proxy_config;
use crate::extra::with;
use crate::{ControlPlane, Settings};

/// Path of kube-proxy's configuration in its container, if it has one.
const PROXY_CONFIG: &str = "/var/lib/kube-proxy/config.conf";

/// Settings of the bootstrap manifests of a new cluster.
#[must_use]
pub fn bootstrap_settings(
    settings: &Settings,
    control_plane: &ControlPlane,
) -> manifests::Settings {
    let images = &control_plane.images;
    let addons = &control_plane.addons;
    let pods: Vec<String> = settings.pods.iter().map(ToString::to_string).collect();
    let proxy = images.proxy.as_ref().map(|image| manifests::Proxy {
        image: image.clone(),
        args: proxy_args(&pods, control_plane),
        config: addons
            .proxy_config
            .as_ref()
            .map(|own| proxy_config(own, &pods, control_plane.proxy_mode)),
        resources: addons.proxy_resources.clone(),
    });
    let mut dns_addresses = (None, None);
    // A kubelet may name another server to pods, such as a cache on each node.
    for address in settings.dns() {
        match address {
            IpAddr::V4(address) => dns_addresses.0 = dns_addresses.0.or(Some(address)),
            IpAddr::V6(address) => dns_addresses.1 = dns_addresses.1.or(Some(address)),
        }
    }
    let dns = images.dns.as_ref().map(|image| manifests::Dns {
        image: image.clone(),
        ipv4: dns_addresses.0,
        ipv6: dns_addresses.1,
    });
    let flannel = images.flannel.as_ref().map(|image| manifests::Flannel {
        image: image.clone(),
        // Flannel starts before kube-proxy has made the way to the service `kubernetes`.
        api: settings
            .prism
            .map(|port| (Ipv4Addr::LOCALHOST.into(), port)),
        ..addons.flannel.clone()
    });
    manifests::Settings {
        server: settings.any_server(),
        domain: settings.domain.clone(),
        pod_subnets: pods,
        proxy,
        dns,
        flannel,
        has_pod_access: addons.has_pod_access,
        shim_group: control_plane
            .shim_groups
            .as_ref()
            .map(|groups| groups.addons.clone()),
    }
}

fn proxy_args(pods: &[String], control_plane: &ControlPlane) -> Vec<String> {
    let mode = control_plane.proxy_mode;
    let name = "--hostname-override=$(NODE_NAME)".to_owned();
    let own = match control_plane.addons.proxy_config {
        // With a configuration file, kube-proxy ignores arguments for the same settings.
        Some(_) => vec![format!("--config={PROXY_CONFIG}"), name],
        None => vec![
            format!("--cluster-cidr={}", pods.join(",")),
            "--conntrack-max-per-core=0".to_owned(),
            name,
            "--kubeconfig=/etc/kubernetes/kubeconfig".to_owned(),
            format!("--proxy-mode={mode}"),
        ],
    };
    let program = ["kube-proxy".to_owned()];
    let own = program.into_iter().chain(own).collect();
    let mut args = with(own, &control_plane.proxy_args);
    args.remove(0);
    args
}

//! Images of a control plane node.

use corten_config::Document;
use corten_config::images::{COREDNS, ETCD, FLANNEL, Upstream, bundled};
use corten_config::kinds::{
    KubeAPIServerConfig, KubeControllerManagerConfig, KubeCoreDNSConfig, KubeFlannelCNIConfig,
    KubeNetworkConfig, KubeProxyConfig, KubeSchedulerConfig,
};
use corten_config::v1alpha1::CniName;

use crate::{Missing, extra};

/// Images of a control plane node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// Image of etcd.
    pub etcd: String,
    /// Image of kube-apiserver.
    pub api_server: String,
    /// Image of kube-controller-manager; empty if the node does not run it and the config has none.
    pub controller_manager: String,
    /// Image of kube-scheduler; empty if the node does not run it and the config has none.
    pub scheduler: String,
    /// Image of kube-proxy; `None` without kube-proxy.
    pub proxy: Option<String>,
    /// Image of CoreDNS; `None` without CoreDNS.
    pub dns: Option<String>,
    /// Image of flannel; `None` without flannel.
    pub flannel: Option<String>,
}

/// Images from the config.
///
/// # Errors
/// [`Missing`] if the config lacks a component's image.
pub(crate) fn images(document: &Document) -> Result<Images, Missing> {
    let cluster = &document.cluster;
    let server = document.all::<KubeAPIServerConfig>().next();
    let manager = document.all::<KubeControllerManagerConfig>().next();
    let scheduler = document.all::<KubeSchedulerConfig>().next();
    let proxy = document.all::<KubeProxyConfig>().next();
    let dns = document.all::<KubeCoreDNSConfig>().next();
    let runs_proxy = match proxy {
        Some(proxy) => proxy.enabled != Some(false),
        None => !cluster.proxy.disabled,
    };
    let proxy = proxy.map_or(cluster.proxy.image.clone(), |proxy| proxy.image.clone());
    let old_dns = cluster.core_dns.as_ref();
    let runs_dns = match dns {
        Some(dns) => dns.enabled != Some(false),
        None => !old_dns.is_some_and(|dns| dns.disabled),
    };
    let dns = match dns {
        Some(dns) => dns.image.clone(),
        None => old_dns.and_then(|dns| dns.image.clone()),
    };
    let runs_flannel = network_plugin(document) == CniName::Flannel;
    let usual = |name, upstream| usual(document, name, upstream);
    let etcd = cluster.etcd.as_ref().and_then(|etcd| etcd.image.clone());
    Ok(Images {
        etcd: etcd.unwrap_or_else(|| usual("etcd", ETCD)),
        api_server: server
            .map(|server| server.image.clone())
            .or_else(|| cluster.api_server.image.clone())
            .ok_or(Missing("cluster.apiServer.image"))?,
        controller_manager: of_component(
            manager
                .and_then(|manager| manager.image.clone())
                .or_else(|| cluster.controller_manager.image.clone()),
            extra::controller_manager(document).is_disabled,
            "cluster.controllerManager.image",
        )?,
        scheduler: of_component(
            scheduler
                .and_then(|scheduler| scheduler.image.clone())
                .or_else(|| cluster.scheduler.image.clone()),
            extra::scheduler(document).is_disabled,
            "cluster.scheduler.image",
        )?,
        proxy: match (runs_proxy, proxy) {
            (false, _) => None,
            (true, None) => return Err(Missing("cluster.proxy.image")),
            (true, image) => image,
        },
        dns: runs_dns.then(|| dns.unwrap_or_else(|| usual("coredns", COREDNS))),
        flannel: runs_flannel.then(|| usual("flannel", FLANNEL)),
    })
}

/// The image of a component without an image in the config: the bundled one beside a bundled kubelet.
pub(crate) fn usual(document: &Document, name: &str, upstream: Upstream) -> String {
    let bundled = bundled(name).filter(|_| document.uses_bundled_images());
    bundled.unwrap_or_else(|| upstream.to_string())
}

/// The network plugin that the config brings.
#[must_use]
pub fn network_plugin(document: &Document) -> CniName {
    if let Some(cni) = &document.cluster.network.cni {
        return cni.name;
    }
    let by_kind = document.all::<KubeFlannelCNIConfig>().next().is_some();
    // A config with `KubeNetworkConfig` also declares its network plug-in by kind, or has none.
    let usual = document.all::<KubeNetworkConfig>().next().is_none();
    match by_kind || usual {
        true => CniName::Flannel,
        false => CniName::None,
    }
}

/// Image of a component, which only a disabled one may lack.
fn of_component(
    image: Option<String>,
    is_disabled: bool,
    field: &'static str,
) -> Result<String, Missing> {
    let usual = is_disabled.then(String::new);
    image.or(usual).ok_or(Missing(field))
}

/// Tag of an image without a leading `v`; empty without a tag.
pub(crate) fn version(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map_or("", |(_, tag)| tag);
    match tag.strip_prefix('v') {
        Some(number) if number.starts_with(|c: char| c.is_ascii_digit()) => number,
        _ => tag,
    }
}

/// Minor version of Kubernetes 1 in an image's tag; `None` for another tag.
pub(crate) fn minor(image: &str) -> Option<u32> {
    let rest = version(image).strip_prefix("1.")?;
    let number = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    number.parse().ok()
}

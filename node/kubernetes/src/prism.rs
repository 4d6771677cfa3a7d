//! KubePrism: the local load balancer through which the node's programs reach the Kubernetes API.

use std::net::IpAddr;

use corten_config::Document;
use corten_config::kinds::KubePrismConfig;

use crate::Settings;

/// Default port.
const PORT: u16 = 7445;

/// A server of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Host name, or address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Port on 127.0.0.1; `None` if KubePrism is disabled.
pub(crate) fn port(document: &Document) -> Option<u16> {
    if let Some(config) = document.all::<KubePrismConfig>().next() {
        return Some(config.port);
    }
    let prism = &document.machine.features.kube_prism;
    prism.enabled.then(|| prism.port.unwrap_or(PORT))
}

/// Name that the kubelet expects in the API's certificate.
pub(crate) fn name(document: &Document) -> Option<String> {
    let config = document.all::<KubePrismConfig>().next()?;
    config.tls_server_name.as_ref().map(ToString::to_string)
}

impl Settings {
    /// API server URL for this node's programs: KubePrism if enabled, or the node's own API server, or the cluster's
    /// endpoint.
    #[must_use]
    pub fn server(&self, is_control_plane: bool) -> String {
        match self.prism {
            Some(port) => format!("https://127.0.0.1:{port}"),
            None if is_control_plane => self.local_endpoint(),
            None => self.endpoint.clone(),
        }
    }

    /// API server URL for a program on any node.
    #[must_use]
    pub fn any_server(&self) -> String {
        self.server(false)
    }

    /// Upstreams of KubePrism: this node's API server, those of the known control plane nodes, and the cluster's
    /// endpoint, without duplicates. `port` is that of the known nodes; the config of a worker may name another one.
    #[must_use]
    pub fn upstreams(
        &self,
        is_control_plane: bool,
        known: &[IpAddr],
        port: Option<u16>,
    ) -> Vec<Upstream> {
        let own = is_control_plane.then(|| Upstream {
            host: "127.0.0.1".to_owned(),
            port: self.api_port,
        });
        let known = known.iter().map(|address| Upstream {
            host: address.to_string(),
            port: port.unwrap_or(self.api_port),
        });
        let mut found: Vec<Upstream> = Vec::new();
        for upstream in own.into_iter().chain(known).chain(endpoint(&self.endpoint)) {
            if !found.contains(&upstream) {
                found.push(upstream);
            }
        }
        found
    }
}

/// Host and port of a URL; the default port is 443.
fn endpoint(url: &str) -> Option<Upstream> {
    let uri: http::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    Some(Upstream {
        host: host.to_owned(),
        port: uri.port_u16().unwrap_or(443),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_control_plane_nodes_keep_the_port_that_they_register() {
        let settings = Settings::of(&crate::tests::document("")).unwrap();
        let known = ["10.0.0.1".parse().unwrap()];
        for (registered, expected) in [(Some(8443), 8443), (None, 6443)] {
            let found = settings.upstreams(false, &known, registered);
            let found: Vec<_> = found.iter().map(|one| (&*one.host, one.port)).collect();
            assert_eq!(found, [("10.0.0.1", expected), ("cp.example.org", 6443)]);
        }
    }

    #[test]
    fn an_endpoint_has_a_host_and_a_port() {
        let cases = [
            (
                "https://cp.example.org:6443",
                Some(("cp.example.org", 6443)),
            ),
            ("https://cp.example.org", Some(("cp.example.org", 443))),
            ("https://[fd00::1]:6443/", Some(("fd00::1", 6443))),
            ("no url", None),
        ];
        for (url, expected) in cases {
            let found = endpoint(url);
            let found = found.as_ref().map(|found| (&*found.host, found.port));
            assert_eq!(found, expected, "{url}");
        }
    }
}

//! KubePrism: the balancer on the loopback by which the node's own programs reach the Kubernetes API.

use std::net::IpAddr;

use corten_config::Document;
use corten_config::kinds::KubePrismConfig;

use crate::Settings;

/// Its port unless the config says another.
const PORT: u16 = 7445;

/// A server of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// A name or an address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// The port on 127.0.0.1; `None`: the config has it off.
pub(crate) fn port(document: &Document) -> Option<u16> {
    if let Some(config) = document.all::<KubePrismConfig>().next() {
        return Some(config.port);
    }
    let prism = &document.machine.features.kube_prism;
    prism.enabled.then(|| prism.port.unwrap_or(PORT))
}

impl Settings {
    /// Where a program of this node calls the Kubernetes API: KubePrism where it runs, else the node's own API server,
    /// else the cluster's endpoint.
    #[must_use]
    pub fn server(&self, is_control_plane: bool) -> String {
        match self.prism {
            Some(port) => format!("https://127.0.0.1:{port}"),
            None if is_control_plane => self.local_endpoint(),
            None => self.endpoint.clone(),
        }
    }

    /// Where a program of any node calls the Kubernetes API.
    #[must_use]
    pub fn any_server(&self) -> String {
        self.server(false)
    }

    /// The servers that KubePrism chooses among: this node's, those of the control plane nodes that are known, and
    /// the cluster's endpoint; each once.
    #[must_use]
    pub fn upstreams(&self, is_control_plane: bool, known: &[IpAddr]) -> Vec<Upstream> {
        let own = is_control_plane.then(|| Upstream {
            host: "127.0.0.1".to_owned(),
            port: self.api_port,
        });
        let known = known.iter().map(|address| Upstream {
            host: address.to_string(),
            port: self.api_port,
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

/// Host and port of a URL; 443 where it names no port.
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

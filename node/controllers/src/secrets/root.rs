//! Shows the trust settings of the config, and the names for the node's certificates.

use std::net::IpAddr;

use corten_config::Document;
use corten_manifests::{SERVICE, service_host};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network::{HostnameStatus, NodeAddress};
use corten_types::network_names::OperatorSpec;
use corten_types::secrets::{CertSans, Endpoint, OsRoot, PemPair, trusted_cas};
use tokio::sync::watch;

/// Shows the trust settings of the config.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for Roots {
    fn name(&self) -> &'static str {
        "secrets.RootOSController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<OsRoot>(), Output::shared::<Endpoint>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            context.start_outputs();
            if let Some(document) = &config {
                // The endpoint is written before the CAs whose appearance triggers requests to it.
                let endpoint = endpoint(document.endpoint());
                context.put(Draft::new(Endpoint::STATIC, endpoint))?;
                context.put(Draft::new(OsRoot::ID, root(document)))?;
            }
            context.remove_others::<OsRoot>()?;
            context.remove_others::<Endpoint>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn root(document: &Document) -> OsRoot {
    let machine = &document.machine;
    let ca = machine.ca.as_ref();
    let issuing_ca = PemPair {
        crt: ca.map(|ca| ca.crt.to_string()).unwrap_or_default(),
        key: ca.map(|ca| (*ca.key).clone()).unwrap_or_default(),
    };
    let is_address = |name: &&String| name.parse::<IpAddr>().is_ok();
    // Pods call the API by the name of its service.
    let service = document
        .pod_access()
        .map(|_| [SERVICE.to_owned(), service_host()]);
    OsRoot {
        issuing_ca,
        accepted_cas: trusted_cas(document),
        cert_san_ips: machine
            .cert_sans
            .iter()
            .filter(is_address)
            .cloned()
            .collect(),
        cert_san_dns_names: machine
            .cert_sans
            .iter()
            .filter(|name| !is_address(name))
            .cloned()
            .chain(service.into_iter().flatten())
            .collect(),
        token: machine.token.clone(),
    }
}

/// The host of a URL.
fn endpoint(url: &str) -> Endpoint {
    let uri: Option<http::Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let (mut addresses, mut hosts) = (Vec::new(), Vec::new());
    if host.parse::<IpAddr>().is_ok() {
        addresses.push(host);
    } else if !host.is_empty() {
        hosts.push(host);
    }
    Endpoint {
        addresses,
        hosts,
        api_port: None,
    }
}

/// Shows the names for the certificates.
#[derive(Debug, Clone)]
pub(crate) struct Names;

impl Controller for Names {
    fn name(&self) -> &'static str {
        "secrets.CertSANsController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<OsRoot>(Dependency::Weak).with_id(OsRoot::ID),
            Input::of::<HostnameStatus>(Dependency::Weak).with_id(HostnameStatus::ID),
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT),
            Input::of::<OperatorSpec>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<CertSans>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let root = context.get::<OsRoot>(OsRoot::ID)?;
            let hostname = context.get::<HostnameStatus>(HostnameStatus::ID)?;
            let addresses = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
            // A shared address counts also while another node has it: the certificate stays when it moves.
            let operators = context.list::<OperatorSpec>()?;
            let shared = operators.iter().filter_map(|operator| operator.shared);
            let own = addresses
                .iter()
                .flat_map(|found| found.ips())
                .chain(shared)
                .map(|ip| ip.to_string());
            let sans = names(
                root.as_deref(),
                hostname.as_deref(),
                &own.collect::<Vec<String>>(),
            );
            context.put(Draft::new(CertSans::ID, sans))?;
        }
    }
}

/// All addresses and names of the node, including loopback.
fn names(root: Option<&OsRoot>, hostname: Option<&HostnameStatus>, own: &[String]) -> CertSans {
    let asked_ips = root
        .map(|root| root.cert_san_ips.as_slice())
        .unwrap_or_default();
    let asked_names = root
        .map(|root| root.cert_san_dns_names.as_slice())
        .unwrap_or_default();
    let fqdn = hostname.map(HostnameStatus::full).unwrap_or_default();
    let short = hostname
        .map(|name| name.hostname.clone())
        .unwrap_or_default();
    let loopback = ["127.0.0.1", "::1"].map(str::to_owned);
    let mut ips: Vec<String> = own.iter().chain(asked_ips).cloned().collect();
    ips.sort();
    ips.retain(|ip| !loopback.contains(ip));
    let mut ips: Vec<String> = loopback.into_iter().chain(ips).collect();
    ips.dedup();
    let mut dns_names = vec!["localhost".to_owned(), short, fqdn.clone()];
    dns_names.extend(asked_names.iter().cloned());
    dns_names.retain(|name| !name.is_empty());
    dns_names.sort();
    dns_names.dedup();
    CertSans {
        ips,
        dns_names,
        fqdn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_complete() {
        let root = OsRoot {
            issuing_ca: PemPair {
                crt: String::new(),
                key: corten_values::Secret::default(),
            },
            accepted_cas: Vec::new(),
            cert_san_ips: vec!["10.0.2.15".into(), "203.0.113.7".into()],
            cert_san_dns_names: vec!["api.example.com".into()],
            token: corten_values::Secret::default(),
        };
        let hostname = HostnameStatus {
            hostname: "node1".into(),
            domainname: "example.com".into(),
        };
        let own = ["10.0.2.15".to_owned()];
        let sans = names(Some(&root), Some(&hostname), &own);
        assert_eq!(sans.ips, ["127.0.0.1", "::1", "10.0.2.15", "203.0.113.7"]);
        assert_eq!(
            sans.dns_names,
            ["api.example.com", "localhost", "node1", "node1.example.com"]
        );
        assert_eq!(
            names(None, None, &[]).names(),
            ["localhost", "127.0.0.1", "::1"]
        );
    }

    #[test]
    fn name_of_the_service_for_pods_is_in_the_certificate_if_pods_have_access() {
        use base64::Engine as _;
        use base64::engine::general_purpose::STANDARD;
        let now = std::time::SystemTime::now();
        let ca = corten_pki::Ca::generate(corten_pki::Algorithm::Ed25519, "a", "", now).unwrap();
        let [crt, key] = [&ca.pem().crt, &ca.pem().key].map(|pem| STANDARD.encode(pem));
        let config = format!(
            "version: v1alpha1\nmachine:\n  type: controlplane\n  ca: {{crt: {crt}, key: {key}}}\n  \
             certSANs: [a.example]\ncluster:\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n"
        );
        let access = "---\napiVersion: v1alpha1\nkind: KubeTalosAPIAccessConfig\n";
        let names = |text: &str| {
            let document = Document::parse(text.as_bytes()).unwrap();
            root(&document).cert_san_dns_names
        };
        assert_eq!(names(&config), ["a.example"]);
        let with_access = names(&format!("{config}{access}"));
        assert_eq!(with_access, ["a.example", "talos", "talos.default"]);
    }

    #[test]
    fn control_plane_endpoint_is_parsed_into_a_host() {
        for (url, address, host) in [
            ("https://10.0.0.1:6443", Some("10.0.0.1"), None),
            ("https://[fd00::1]:6443", Some("fd00::1"), None),
            ("https://cp.example.com", None, Some("cp.example.com")),
        ] {
            let found = endpoint(url);
            assert_eq!(
                found.addresses.first().map(String::as_str),
                address,
                "{url}"
            );
            assert_eq!(found.hosts.first().map(String::as_str), host, "{url}");
        }
    }
}

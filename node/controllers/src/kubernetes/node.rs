//! Shows the node's name and addresses in Kubernetes.

use std::path::PathBuf;

use corten_base::console;
use corten_config::Document;
use corten_credentials::kubelet::registered_name;
use corten_kubernetes::{Facts, Settings, is_alone, kubelet};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::CONTAINERD;
use corten_types::kubernetes::{NodeIp, Nodename};
use corten_types::network::{HostnameStatus, NodeAddress};
use corten_types::network_names::HostnameSpec;
use corten_types::network_spec::Layer;
use corten_types::runtime::Service;
use tokio::sync::watch;

use super::{Complaints, addresses, next};

/// Shows the node's name.
///
/// The host name of a cloud or of a DHCP server arrives late, and is gone when the lease ends: the node then has a
/// generated one. A registered node keeps its name meanwhile, because another name costs its certificate and its pods.
#[derive(Debug, Clone)]
pub(super) struct Nodenames {
    /// Directory of the kubelet's certificates.
    pub(super) certificates: PathBuf,
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Nodenames {
    fn name(&self) -> &'static str {
        "k8s.NodenameController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<HostnameStatus>(Dependency::Weak).with_id(HostnameStatus::ID),
            Input::of::<HostnameSpec>(Dependency::Weak).with_id(HostnameSpec::ID),
            // Its start means that the certificates can be read.
            Input::of::<Service>(Dependency::Weak).with_id(CONTAINERD),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Nodename>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut given = None;
        loop {
            let config = next(&mut self.config, context).await;
            let hostname = context.get::<HostnameStatus>(HostnameStatus::ID)?;
            let spec = context.get::<HostnameSpec>(HostnameSpec::ID)?;
            context.start_outputs();
            if let (Some(config), Some(hostname), Some(spec)) = (config, hostname, spec) {
                // The layer of a new name is known a moment before the name is in use.
                let is_in_use = (&spec.hostname, &spec.domainname)
                    == (&hostname.hostname, &hostname.domainname);
                if !is_in_use {
                    continue;
                }
                let is_generated = spec.layer == Layer::Default;
                let own = host_name(&config, &hostname);
                let name = match kubelet::own_name(&config) {
                    Some(name) => Some(in_kubernetes(name)),
                    None if is_generated => self.kept(context, own, &mut given)?,
                    None => Some(given.insert(own).clone()),
                };
                let Some(name) = name else { continue };
                let nodename = Nodename {
                    nodename: name,
                    hostname_version: hostname.metadata().version.to_string(),
                    skip_node_registration: is_alone(&config),
                };
                context.put(Draft::new(Nodename::ID, nodename))?;
            }
            context.remove_others::<Nodename>()?;
        }
    }
}

impl Nodenames {
    /// The name that the node keeps while its host name is a `generated` one: the last name that was `given` in this
    /// boot, or else the one that it has registered with. `None` until that is known.
    fn kept(
        &self,
        context: &Context,
        generated: String,
        given: &mut Option<String>,
    ) -> Result<Option<String>, Failure> {
        if given.is_none() {
            let containerd = context.get::<Service>(CONTAINERD)?;
            if !containerd.is_some_and(|service| service.healthy) {
                return Ok(None);
            }
            *given = registered_name(&self.certificates);
            if let Some(name) = given.as_ref().filter(|name| **name != generated) {
                console::warn(&format!(
                    "no config, cloud or DHCP server names this node yet: it stays {name} in Kubernetes, although its \
                     host name is {generated}"
                ));
            }
        }
        Ok(Some(given.clone().unwrap_or(generated)))
    }
}

/// The host name as the name in Kubernetes.
fn host_name(config: &Document, hostname: &HostnameStatus) -> String {
    in_kubernetes(&match kubelet::registers_full_name(config) {
        true => hostname.full(),
        false => hostname.hostname.clone(),
    })
}

/// Converts a host name to a Kubernetes name: lower case, without underscores (RFC 1123).
fn in_kubernetes(hostname: &str) -> String {
    let good = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || c == '-' || c == '.' => c,
        _ => '-',
    };
    let name: String = hostname.chars().map(good).collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// Shows the node's addresses.
#[derive(Debug, Clone)]
pub(super) struct NodeIps {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for NodeIps {
    fn name(&self) -> &'static str {
        "k8s.NodeIPController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<NodeAddress>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NodeIp>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut complaints = Complaints::default();
        loop {
            let config = next(&mut self.config, context).await;
            context.start_outputs();
            let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
            if let (Some(config), Some(settings)) = (config, settings) {
                let Some(addresses) = addresses(context, NodeAddress::ROUTED)? else {
                    continue;
                };
                let facts = Facts {
                    addresses,
                    ..Facts::default()
                };
                let addresses = kubelet::addresses(&config, &settings, &facts);
                if addresses.is_empty() {
                    complaints.say(
                        "the node has no address in Kubernetes yet",
                        "none of its addresses is outside the networks of pods and services and of \
                         nodeIP.validSubnets; `cortenctl get nodeaddresses` shows them",
                    );
                } else {
                    complaints.none();
                    context.put(Draft::new(NodeIp::ID, NodeIp { addresses }))?;
                }
            }
            context.remove_others::<NodeIp>()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample::{self, until};
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    #[tokio::test]
    async fn node_is_named_by_its_kubelets_arguments_or_its_host_name() {
        let store = Store::new();
        let config = watch::Sender::new(Some(sample::config("", "")));
        let mut runtime = Runtime::new(store.clone());
        runtime.add(names(&config, "/nowhere")).unwrap();
        named(&store, "a.example.org", Layer::Operator);
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        for (kubelet, name) in [
            ("{}", "a"),
            ("{registerWithFQDN: true}", "a.example.org"),
            (
                "{registerWithFQDN: true, extraArgs: {hostname-override: Rack-7}}",
                "rack-7",
            ),
        ] {
            let text = format!("kubelet: {kubelet}");
            config.send_replace(Some(sample::config(&text, "")));
            let is = |it: Option<&Nodename>| it.is_some_and(|it| it.nodename == name);
            until::<Nodename>(&store, Nodename::ID, is).await;
        }
    }

    fn names(config: &watch::Sender<Option<Document>>, certificates: &str) -> Nodenames {
        Nodenames {
            certificates: certificates.into(),
            config: config.subscribe(),
        }
    }

    /// The node decides on a host name from this layer.
    fn decided(store: &Store, name: &str, layer: Layer) {
        let (hostname, domainname) = parts(name);
        let spec = HostnameSpec {
            hostname,
            domainname,
            layer,
        };
        store.put(Draft::new(HostnameSpec::ID, spec), "").unwrap();
    }

    /// The node gets a host name from this layer.
    fn named(store: &Store, name: &str, layer: Layer) {
        decided(store, name, layer);
        let (hostname, domainname) = parts(name);
        let status = HostnameStatus {
            hostname,
            domainname,
        };
        store
            .put(Draft::new(HostnameStatus::ID, status), "")
            .unwrap();
    }

    fn parts(name: &str) -> (String, String) {
        let (host, domain) = name.split_once('.').unwrap_or((name, ""));
        (host.to_owned(), domain.to_owned())
    }

    async fn is_named(store: &Store, name: &str) {
        let is = |it: Option<&Nodename>| it.is_some_and(|it| it.nodename == name);
        until::<Nodename>(store, Nodename::ID, is).await;
    }

    fn containerd_runs(store: &Store) {
        let service = Service {
            running: true,
            healthy: true,
            unknown: false,
        };
        store.put(Draft::new(CONTAINERD, service), "").unwrap();
    }

    #[tokio::test]
    async fn node_keeps_its_name_when_its_lease_ends() {
        let store = Store::new();
        let config = watch::Sender::new(Some(sample::config("", "")));
        let mut runtime = Runtime::new(store.clone());
        runtime.add(names(&config, "/nowhere")).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        named(&store, "w1", Layer::Operator);
        is_named(&store, "w1").await;
        // The controller has seen the generated name when it shows the other change.
        named(&store, "corten-1", Layer::Default);
        config.send_replace(Some(sample::config(
            "kubelet: {skipNodeRegistration: true}",
            "",
        )));
        let is_seen = |it: Option<&Nodename>| it.is_some_and(|it| it.skip_node_registration);
        until::<Nodename>(&store, Nodename::ID, is_seen).await;
        is_named(&store, "w1").await;
        named(&store, "w2", Layer::Operator);
        is_named(&store, "w2").await;
    }

    #[tokio::test]
    async fn registered_node_keeps_its_name_until_its_cloud_answers() {
        let scratch = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::now();
        let ca = corten_pki::Ca::generate(corten_pki::Algorithm::EcdsaP256, "k", "", now).unwrap();
        let crt = ca.pem().crt.clone();
        corten_credentials::kubelet::ensure(scratch.path(), (&ca, &crt), "w1", now).unwrap();
        for (certificates, name) in [
            (scratch.path(), "w1"),
            (&scratch.path().join("none"), "corten-1"),
        ] {
            let store = Store::new();
            let config = watch::Sender::new(Some(sample::config("", "")));
            let mut runtime = Runtime::new(store.clone());
            let certificates = certificates.to_str().unwrap();
            runtime.add(names(&config, certificates)).unwrap();
            named(&store, "corten-1", Layer::Default);
            containerd_runs(&store);
            tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            is_named(&store, name).await;
            // The controller runs between the decision and the change of the kernel's name.
            decided(&store, "w2", Layer::Platform);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let shown = store.get_as::<Nodename>(Nodename::ID).unwrap();
            assert_eq!(shown.nodename, name);
            named(&store, "w2", Layer::Platform);
            is_named(&store, "w2").await;
        }
    }

    #[test]
    fn host_name_is_converted_to_a_valid_kubernetes_name() {
        for (hostname, expected) in [("Node_1", "node-1"), ("-a.b-", "a.b"), ("n1", "n1")] {
            assert_eq!(in_kubernetes(hostname), expected);
        }
    }
}

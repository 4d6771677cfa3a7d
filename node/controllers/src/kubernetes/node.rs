//! Shows the node's name and addresses in Kubernetes.

use corten_config::Document;
use corten_kubernetes::{Facts, Settings, is_alone, kubelet};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::kubernetes::{NodeIp, Nodename};
use corten_types::network::{HostnameStatus, NodeAddress};
use tokio::sync::watch;

use super::{Complaints, addresses, next};

/// Shows the node's name.
#[derive(Debug, Clone)]
pub(super) struct Nodenames {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Nodenames {
    fn name(&self) -> &'static str {
        "k8s.NodenameController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<HostnameStatus>(Dependency::Weak).with_id(HostnameStatus::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Nodename>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let hostname = context.get::<HostnameStatus>(HostnameStatus::ID)?;
            context.start_outputs();
            if let (Some(config), Some(hostname)) = (config, hostname) {
                let name = match kubelet::own_name(&config) {
                    Some(name) => name.to_owned(),
                    None if kubelet::registers_full_name(&config) => hostname.full(),
                    None => hostname.hostname.clone(),
                };
                let nodename = Nodename {
                    nodename: in_kubernetes(&name),
                    hostname_version: hostname.metadata().version.to_string(),
                    skip_node_registration: is_alone(&config),
                };
                context.put(Draft::new(Nodename::ID, nodename))?;
            }
            context.remove_others::<Nodename>()?;
        }
    }
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
        let names = Nodenames {
            config: config.subscribe(),
        };
        runtime.add(names).unwrap();
        let hostname = HostnameStatus {
            hostname: "a".to_owned(),
            domainname: "example.org".to_owned(),
        };
        let hostname = Draft::new(HostnameStatus::ID, hostname);
        store.put(hostname, "").unwrap();
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

    #[test]
    fn host_name_is_converted_to_a_valid_kubernetes_name() {
        for (hostname, expected) in [("Node_1", "node-1"), ("-a.b-", "a.b"), ("n1", "n1")] {
            assert_eq!(in_kubernetes(hostname), expected);
        }
    }
}

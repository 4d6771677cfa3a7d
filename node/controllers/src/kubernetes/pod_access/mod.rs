//! Access of pods to the node's API, on control plane nodes whose config allows it.
//!
//! `rules` become `KubernetesAccessConfigs`. From them `service` makes a Service with the endpoints of the control
//! plane nodes, and `accounts` the Secrets of the accounts.

mod accounts;
mod grants;
mod service;

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{
    Context, Controller, Failure, GraphError, Input, Output, Runtime,
};
use corten_types::pod_access::PodAccessConfig;
use tokio::sync::watch;

use super::next;

/// Adds the controllers of this module.
pub(super) fn add(
    runtime: &mut Runtime,
    config: &watch::Receiver<Option<Document>>,
) -> Result<(), GraphError> {
    runtime.add(Rules {
        config: config.clone(),
    })?;
    runtime.add(service::Service {
        config: config.clone(),
    })?;
    runtime.add(accounts::Accounts {
        config: config.clone(),
    })
}

/// Shows which pods get access.
#[derive(Debug, Clone)]
struct Rules {
    config: watch::Receiver<Option<Document>>,
}

impl Controller for Rules {
    fn name(&self) -> &'static str {
        "kubeaccess.ConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<PodAccessConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let config = config.filter(|config| config.machine.kind.is_control_plane());
            context.start_outputs();
            if let Some(config) = config {
                context.put(Draft::new(PodAccessConfig::ID, rules(&config)))?;
            }
            context.remove_others::<PodAccessConfig>()?;
        }
    }
}

fn rules(config: &Document) -> PodAccessConfig {
    let access = config.pod_access();
    access.map_or_else(PodAccessConfig::default, |access| PodAccessConfig {
        enabled: true,
        allowed_api_roles: access.roles.to_vec(),
        allowed_kubernetes_namespaces: access.namespaces.to_vec(),
    })
}

/// The rules, if pods get access at all.
fn enabled(context: &Context) -> Result<Option<PodAccessConfig>, Failure> {
    let rules = context.get::<PodAccessConfig>(PodAccessConfig::ID)?;
    Ok(rules
        .filter(|rules| rules.enabled)
        .map(|rules| (*rules).clone()))
}

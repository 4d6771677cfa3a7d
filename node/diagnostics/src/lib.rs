//! Misconfigurations that keep a node from its work, and that no other part of it reports.
//!
//! Owns: the checks of addresses and of the kubelet's serving certificate, and the controller that shows lasting faults.
//! Never: repairs a fault, or asks the cluster about a kubelet that works.

mod certificate;
mod checks;
mod findings;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_base::console;
use corten_config::Document;
use corten_credentials::access::of_node;
use corten_kubernetes::Settings;
use corten_kubernetes::certificates::kubelet_user;
use corten_kubernetes::kubelet::CERTIFICATES;
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{
    Context, Controller, Dependency, Failure, GraphError, Input, Output, Runtime,
};
use corten_supervisor::kubernetes::KUBELET;
use corten_types::diagnostic::Diagnostic;
use corten_types::kubernetes::Nodename;
use corten_types::kubernetes_kubelet::{ID, KubeletSpec};
use corten_types::network::NodeAddress;
use corten_types::network_filter::NodeAddressFilter;
use corten_types::runtime::Service;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use findings::Findings;

/// Timeout of the requests to the cluster (the reference's value).
const PATIENCE: Duration = Duration::from_secs(60);

/// Adds the controller.
///
/// # Errors
/// Another controller writes diagnostics.
pub fn add(
    runtime: &mut Runtime,
    config: watch::Receiver<Option<Document>>,
) -> Result<(), GraphError> {
    let world = Real;
    runtime.add(Diagnostics { config, world })
}

#[derive(Debug, Clone)]
struct Diagnostics<W> {
    config: watch::Receiver<Option<Document>>,
    world: W,
}

/// Sources about the kubelet's serving certificate.
trait World: Clone + Send + Sync + 'static {
    /// Whether the kubelet has one that the cluster has issued.
    fn has_certificate(&self) -> Result<bool, String>;
    /// Names of its requests that nobody has approved.
    fn unapproved(
        &self,
        config: &Document,
        nodename: &str,
    ) -> impl Future<Output = Result<Vec<String>, String>> + Send;
}

/// The kubelet's files, and the cluster.
#[derive(Debug, Clone, Copy)]
struct Real;

impl<W: World> Controller for Diagnostics<W> {
    fn name(&self) -> &'static str {
        "runtime.DiagnosticsController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<NodeAddress>(Dependency::Weak),
            Input::of::<Service>(Dependency::Weak).with_id(KUBELET),
            Input::of::<KubeletSpec>(Dependency::Weak).with_id(ID),
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Diagnostic>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut findings = Findings::default();
        let mut failure = String::new();
        loop {
            let pause = findings.pause(Instant::now());
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                () = sleep(pause) => {}
            }
            let config = self.config.borrow_and_update().clone();
            let overlap = address_overlap(context, config.as_ref())?;
            findings.take(Diagnostic::ADDRESS_OVERLAP, overlap, Instant::now());
            match self.kubelet_csr(context, config.as_ref()).await? {
                Ok(found) => {
                    findings.take(Diagnostic::KUBELET_CSR, found, Instant::now());
                    failure.clear();
                }
                // A failed check proves nothing: the last finding stays.
                Err(why) if why == failure => {}
                Err(why) => {
                    console::warn(&format!("diagnostics: the kubelet's requests: {why}"));
                    failure = why;
                }
            }
            context.start_outputs();
            for (id, diagnostic) in findings.raised() {
                context.put(Draft::new(id, diagnostic.clone()))?;
            }
            context.remove_others::<Diagnostic>()?;
        }
    }
}

fn address_overlap(
    context: &Context,
    config: Option<&Document>,
) -> Result<Option<Diagnostic>, Failure> {
    let outside =
        NodeAddressFilter::filtered(NodeAddress::ROUTED, NodeAddressFilter::NO_KUBERNETES);
    let all = context.get::<NodeAddress>(NodeAddress::ROUTED)?;
    let outside = context.get::<NodeAddress>(&outside)?;
    let settings = config.and_then(|config| Settings::of(config).ok());
    let (Some(all), Some(outside), Some(settings)) = (all, outside, settings) else {
        return Ok(None);
    };
    Ok(checks::address_overlap(&all, &outside, &settings))
}

impl<W: World> Diagnostics<W> {
    /// The fault, or why the check failed.
    async fn kubelet_csr(
        &self,
        context: &Context,
        config: Option<&Document>,
    ) -> Result<Result<Option<Diagnostic>, String>, Failure> {
        let service = context.get::<Service>(KUBELET)?;
        let kubelet = context.get::<KubeletSpec>(ID)?;
        let nodename = context.get::<Nodename>(Nodename::ID)?;
        let works = service.is_some_and(|service| service.running && service.healthy);
        let kubelet = kubelet.filter(|kubelet| works && certificate::is_requested(kubelet));
        let nodename = nodename.filter(|nodename| !nodename.skip_node_registration);
        let (Some(config), Some(_), Some(nodename)) = (config, kubelet, nodename) else {
            return Ok(Ok(None));
        };
        Ok(self.unapproved(config, &nodename.nodename).await)
    }

    async fn unapproved(
        &self,
        config: &Document,
        nodename: &str,
    ) -> Result<Option<Diagnostic>, String> {
        if self.world.has_certificate()? {
            return Ok(None);
        }
        let asked = timeout(PATIENCE, self.world.unapproved(config, nodename)).await;
        let late = |_| format!("no answer within {} s", PATIENCE.as_secs());
        Ok(checks::kubelet_csr(&asked.map_err(late)??))
    }
}

impl World for Real {
    fn has_certificate(&self) -> Result<bool, String> {
        let directory = Path::new(CERTIFICATES);
        certificate::is_issued(directory, SystemTime::now())
            .map_err(|error| format!("{}: {error}", directory.display()))
    }

    async fn unapproved(&self, config: &Document, nodename: &str) -> Result<Vec<String>, String> {
        let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
        let cluster = of_node(config, &settings)?;
        let user = kubelet_user(nodename);
        let requests = cluster.unapproved_serving_requests(&user).await;
        requests.map_err(|error| describe(&error))
    }
}

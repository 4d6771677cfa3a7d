//! Keeps the service through which pods reach the API of the control plane nodes.

use std::net::IpAddr;
use std::time::Duration;

use corten_cluster::{Cluster, ClusterError, Existing};
use corten_config::Document;
use corten_credentials::access::connect;
use corten_kubernetes::Settings;
use corten_manifests::{Identity, SERVICE, SERVICE_NAMESPACE, Slice, service, service_addresses};
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::pod_access::PodAccessConfig;
use corten_types::secrets::Endpoint;
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::Complaints;
use super::super::prism::known;
use super::enabled;

/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval of repairs: a user may delete the objects.
const REPAIR: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Service {
    fn name(&self) -> &'static str {
        "kubeaccess.EndpointController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<PodAccessConfig>(Dependency::Weak).with_id(PodAccessConfig::ID),
            Input::of::<Endpoint>(Dependency::Weak).with_id(Endpoint::CLUSTER),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut complaints = Complaints::default();
        let mut pause = None;
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
            pause = None;
            let config = self.config.borrow_and_update().clone();
            let addresses = known(context)?;
            // The cluster's own list is not empty once it is known.
            let (Some(config), Some(_)) = (config, enabled(context)?) else {
                complaints.none();
                continue;
            };
            if addresses.is_empty() {
                continue;
            }
            pause = Some(REPAIR);
            match keep(&config, &addresses).await {
                Ok(()) => complaints.none(),
                Err(why) => {
                    complaints.say("the service of the API for pods", &why);
                    pause = Some(PAUSE);
                }
            }
        }
    }
}

async fn keep(config: &Document, addresses: &[IpAddr]) -> Result<(), String> {
    let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
    let cluster = connect(config, &settings, &settings.local_endpoint())?;
    write(&cluster, addresses)
        .await
        .map_err(|error| describe(&error))
}

/// The service comes first: Kubernetes removes endpoints without one.
async fn write(cluster: &Cluster, addresses: &[IpAddr]) -> Result<(), ClusterError> {
    cluster.put(service(), Existing::Keep).await?;
    for slice in service_addresses(addresses) {
        match slice {
            Slice::Apply(object) => cluster.put(object, Existing::Update).await?,
            Slice::Remove(name) => {
                cluster
                    .delete(identity("discovery.k8s.io", "EndpointSlice", name))
                    .await?;
            }
        }
    }
    // Older versions of the reference have made it. Kubernetes would copy its addresses, which no controller updates.
    cluster
        .delete(identity("", "Endpoints", SERVICE.to_owned()))
        .await
}

fn identity(group: &str, kind: &str, name: String) -> Identity {
    Identity {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: SERVICE_NAMESPACE.to_owned(),
        name,
    }
}

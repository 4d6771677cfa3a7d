//! Shows the control plane nodes of the cluster: the API servers that register themselves in it.

use std::net::SocketAddr;
use std::time::Duration;

use corten_config::Document;
use corten_credentials::access::of_node;
use corten_kubernetes::Settings;
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use corten_types::secrets::Endpoint;
use tokio::sync::watch;
use tokio::time::sleep;

/// Poll interval until the first answer.
const SOON: Duration = Duration::from_secs(5);
/// Poll interval after that. The polled object is small, and a kubelet may read but not watch it.
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct Endpoints {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Endpoints {
    fn name(&self) -> &'static str {
        "k8s.EndpointController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<Endpoint>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                () = sleep(pause) => {}
            }
            let config = self.config.borrow_and_update().clone();
            let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
            let (Some(config), Some(settings)) = (config, settings) else {
                context.start_outputs();
                context.remove_others::<Endpoint>()?;
                pause = PAUSE;
                continue;
            };
            // A failed request proves nothing about the API servers, so the known ones stay. Users of the endpoints
            // report failures.
            let found = ask(&config, &settings).await.unwrap_or_default();
            pause = if found.is_empty() { SOON } else { PAUSE };
            if !found.is_empty() {
                // All API servers register in one list, whose port is that of the last one to register.
                let endpoint = Endpoint {
                    addresses: found.iter().map(|server| server.ip().to_string()).collect(),
                    hosts: Vec::new(),
                    api_port: found.first().map(SocketAddr::port),
                };
                context.put(Draft::new(Endpoint::CLUSTER, endpoint))?;
            }
        }
    }
}

async fn ask(config: &Document, settings: &Settings) -> Result<Vec<SocketAddr>, String> {
    let servers = of_node(config, settings)?.api_servers().await;
    servers.map_err(|error| describe(&error))
}

//! Runs KubePrism.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use corten_config::Document;
use corten_kubernetes::Settings;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::kube_prism::{KubePrismConfig, KubePrismEndpoints, KubePrismStatus, Upstream};
use corten_types::secrets::Endpoint;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Complaints;
use crate::prism::{Servers, serve};

/// Retry interval if another program uses the port.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Prism {
    pub(super) config: watch::Receiver<Option<Document>>,
}

/// The running load balancer.
#[derive(Debug, Default)]
struct Running {
    port: Option<u16>,
    servers: Servers,
    /// The server task; dropping it ends the task.
    task: JoinSet<()>,
}

impl Controller for Prism {
    fn name(&self) -> &'static str {
        "k8s.KubePrismController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Endpoint>(Dependency::Weak).with_id(Endpoint::CLUSTER)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<KubePrismConfig>(),
            Output::exclusive::<KubePrismEndpoints>(),
            Output::exclusive::<KubePrismStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut running = Running::default();
        let health = watch::Sender::new(false);
        let mut healthy = health.subscribe();
        let mut complaints = Complaints::default();
        loop {
            let is_waiting = complaints.is_some();
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                Ok(()) = healthy.changed() => {}
                () = sleep(PAUSE), if is_waiting => {}
            }
            let config = self.config.borrow_and_update().clone();
            let settings = config.as_ref().and_then(|config| Settings::of(config).ok());
            let is_control_plane =
                config.is_some_and(|config| config.machine.kind.is_control_plane());
            let wanted = settings.and_then(|settings| Some((settings.prism?, settings)));
            context.start_outputs();
            match wanted {
                None => running = Running::default(),
                Some((port, settings)) => {
                    let port_of_others = api_port(context)?;
                    let upstreams =
                        settings.upstreams(is_control_plane, &known(context)?, port_of_others);
                    running.servers.set(upstreams.clone());
                    match running.listen(port, &health).await {
                        Ok(()) => complaints.none(),
                        Err(why) => complaints.say("KubePrism", &why),
                    }
                    let endpoints: Vec<Upstream> = upstreams.into_iter().map(shown).collect();
                    let known = KubePrismEndpoints {
                        endpoints: endpoints.clone(),
                    };
                    context.put(Draft::new(KubePrismEndpoints::ID, known))?;
                    let shown = KubePrismConfig {
                        host: Ipv4Addr::LOCALHOST.to_string(),
                        port,
                        endpoints,
                    };
                    context.put(Draft::new(KubePrismConfig::ID, shown))?;
                    if running.port.is_some() {
                        let status = KubePrismStatus {
                            host: format!("{}:{port}", Ipv4Addr::LOCALHOST),
                            healthy: *healthy.borrow_and_update(),
                        };
                        context.put(Draft::new(KubePrismStatus::ID, status))?;
                    }
                }
            }
            context.remove_others::<KubePrismEndpoints>()?;
            context.remove_others::<KubePrismConfig>()?;
            context.remove_others::<KubePrismStatus>()?;
        }
    }
}

impl Running {
    /// Listens on this port, unless it already does.
    async fn listen(&mut self, port: u16, health: &watch::Sender<bool>) -> Result<(), String> {
        if self.port == Some(port) {
            return Ok(());
        }
        self.task.abort_all();
        self.port = None;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.map_err(|error| {
            format!("cannot listen at 127.0.0.1:{port}: {error}; set another kubePrism.port")
        })?;
        self.task
            .spawn(serve(listener, self.servers.clone(), health.clone()));
        self.port = Some(port);
        Ok(())
    }
}

/// Known addresses of the cluster's API servers.
pub(super) fn known(context: &Context) -> Result<Vec<IpAddr>, Failure> {
    let endpoint = context.get::<Endpoint>(Endpoint::CLUSTER)?;
    let addresses = endpoint.map(|endpoint| endpoint.addresses.clone());
    let parsed = addresses.into_iter().flatten().map(|text| text.parse());
    Ok(parsed.filter_map(Result::ok).collect())
}

/// Port of the cluster's API servers, if they named it.
fn api_port(context: &Context) -> Result<Option<u16>, Failure> {
    let endpoint = context.get::<Endpoint>(Endpoint::CLUSTER)?;
    Ok(endpoint.and_then(|endpoint| endpoint.api_port))
}

fn shown(upstream: corten_kubernetes::Upstream) -> Upstream {
    let corten_kubernetes::Upstream { host, port } = upstream;
    Upstream { host, port }
}

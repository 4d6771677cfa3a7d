//! Probes: connections whose success says that the network works.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_config::Document;
use corten_config::kinds::TCPProbeConfig;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::resources::network_probe::{ProbeSpec, ProbeStatus, TcpProbe};
use crate::resources::network_spec::Layer;

/// Where the config does not say.
const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the config wants.
#[derive(Debug, Clone)]
pub(in crate::controllers) struct ProbeConfig {
    pub(in crate::controllers) config: watch::Receiver<Option<Document>>,
}

impl Controller for ProbeConfig {
    fn name(&self) -> &'static str {
        "network.ProbeConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ProbeSpec>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            context.start_outputs();
            for probe in config
                .iter()
                .flat_map(|config| config.all::<TCPProbeConfig>())
            {
                let spec = wanted(probe);
                let id = format!("tcp:{}", spec.tcp.endpoint);
                context.put(Draft::new(&id, spec))?;
            }
            context.remove_others::<ProbeSpec>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn wanted(config: &TCPProbeConfig) -> ProbeSpec {
    let endpoint = &config.endpoint;
    let host = if endpoint.host.contains(':') {
        format!("[{}]", endpoint.host)
    } else {
        endpoint.host.clone()
    };
    let or =
        |given: Option<Duration>, default| given.filter(|time| !time.is_zero()).unwrap_or(default);
    ProbeSpec {
        interval: or(config.interval, INTERVAL),
        failure_threshold: config.failure_threshold.unwrap_or(0),
        tcp: TcpProbe {
            endpoint: format!("{host}:{}", endpoint.port),
            timeout: or(config.timeout, TIMEOUT),
        },
        layer: Layer::Configuration,
    }
}

/// Tries them, each at its own pace.
#[derive(Debug, Clone)]
pub(in crate::controllers) struct Probes;

impl Controller for Probes {
    fn name(&self) -> &'static str {
        "network.ProbeController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<ProbeSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ProbeStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        let mut running: BTreeMap<String, (ProbeSpec, AbortHandle)> = BTreeMap::new();
        let mut statuses: BTreeMap<String, ProbeStatus> = BTreeMap::new();
        let (found, mut results) = mpsc::channel(16);
        loop {
            tokio::select! {
                () = context.event() => {}
                Some((id, status)) = results.recv() => drop(statuses.insert(id, status)),
            }
            let specs = context.list::<ProbeSpec>()?;
            running.retain(|id, (before, task)| {
                let stays = specs
                    .iter()
                    .any(|spec| spec.id() == id && **spec == *before);
                if !stays {
                    task.abort();
                }
                stays
            });
            for spec in &specs {
                let id = spec.id().to_owned();
                running.entry(id.clone()).or_insert_with(|| {
                    let task = probe(id, (**spec).clone(), found.clone());
                    ((**spec).clone(), tasks.spawn(task))
                });
            }
            while tasks.try_join_next().is_some() {}
            statuses.retain(|id, _| running.contains_key(id));
            context.start_outputs();
            for (id, status) in &statuses {
                context.put(Draft::new(id, status.clone()))?;
            }
            context.remove_others::<ProbeStatus>()?;
        }
    }
}

/// Tries again and again, and tells what changes.
async fn probe(id: String, spec: ProbeSpec, found: mpsc::Sender<(String, ProbeStatus)>) {
    let mut beat = interval(spec.interval);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0_u32;
    let mut status = None;
    loop {
        beat.tick().await;
        let error = attempt(&spec.tcp).await.err();
        failures = error.as_ref().map_or(0, |_| failures.saturating_add(1));
        let worked = status
            .as_ref()
            .is_some_and(|status: &ProbeStatus| status.success);
        let now = ProbeStatus {
            // What worked may fail a few times.
            success: failures == 0 || worked && failures < spec.failure_threshold,
            last_error: error.unwrap_or_default(),
        };
        if status.as_ref() != Some(&now) {
            status = Some(now.clone());
            if found.send((id.clone(), now)).await.is_err() {
                return;
            }
        }
    }
}

async fn attempt(probe: &TcpProbe) -> Result<(), String> {
    match timeout(probe.timeout, TcpStream::connect(&probe.endpoint)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {:?}", probe.timeout)),
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Start, Store};
    use tokio::net::TcpListener;

    use super::*;

    async fn until(store: &Store, id: &str, done: impl Fn(&ProbeStatus) -> bool) {
        let mut watcher = store
            .watch(&Pointer::of::<ProbeStatus>(id), Start::Now)
            .unwrap();
        while !store
            .get_as::<ProbeStatus>(id)
            .is_some_and(|status| done(&status))
        {
            watcher.next().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_port_that_closes_is_noticed_and_one_that_opens_too() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Probes).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let spec = ProbeSpec {
            interval: Duration::from_millis(1),
            failure_threshold: 3,
            tcp: TcpProbe {
                endpoint: address.to_string(),
                timeout: TIMEOUT,
            },
            layer: Layer::Configuration,
        };
        store.put(Draft::new("p", spec), "").unwrap();
        until(&store, "p", |status| {
            status.success && status.last_error.is_empty()
        })
        .await;
        drop(listener);
        until(&store, "p", |status| {
            !status.success && !status.last_error.is_empty()
        })
        .await;
        let _listener = TcpListener::bind(address).await.unwrap();
        until(&store, "p", |status| status.success).await;
    }
}

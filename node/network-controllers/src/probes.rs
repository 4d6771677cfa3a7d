//! Runs probes: connections and requests whose success shows that the network works.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use corten_base::https;
use corten_config::Document;
use corten_config::kinds::{HTTPProbeConfig, TCPProbeConfig};
use corten_dial::authority;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network_probe::{HttpProbe, ProbeSpec, ProbeStatus, Target, TcpProbe};
use corten_types::network_spec::Layer;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use ureq::Agent;

/// Name of the threads of HTTP probes; a panic in one counts as a failed probe.
const HTTP_PROBE: &str = "web server probe";
/// Defaults for values that the config omits.
const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Shows the probes of the config.
#[derive(Debug, Clone)]
pub(crate) struct ProbeConfig {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for ProbeConfig {
    fn name(&self) -> &'static str {
        "network.ProbeConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ProbeSpec>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            context.start_outputs();
            for spec in config.iter().flat_map(wanted) {
                let id = spec.id();
                context.put(Draft::new(&id, spec))?;
            }
            context.remove_others::<ProbeSpec>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn wanted(config: &Document) -> Vec<ProbeSpec> {
    let tcp = config.all::<TCPProbeConfig>().map(|config| {
        let endpoint = &config.endpoint;
        let target = Target::Tcp(TcpProbe {
            endpoint: authority(&endpoint.host, endpoint.port),
            timeout: unless_zero(config.timeout, TIMEOUT),
        });
        (config.interval, config.failure_threshold, target)
    });
    let http = config.all::<HTTPProbeConfig>().map(|config| {
        let target = Target::Http(HttpProbe {
            url: config.url.to_string(),
            timeout: unless_zero(config.timeout, TIMEOUT),
        });
        (config.interval, config.failure_threshold, target)
    });
    let spec = |(interval, threshold, target): (_, Option<u32>, _)| ProbeSpec {
        interval: unless_zero(interval, INTERVAL),
        failure_threshold: threshold.unwrap_or(0),
        target,
        layer: Layer::Configuration,
    };
    tcp.chain(http).map(spec).collect()
}

fn unless_zero(given: Option<Duration>, default: Duration) -> Duration {
    given.filter(|time| !time.is_zero()).unwrap_or(default)
}

/// Runs the probes, each at its own interval.
#[derive(Debug, Clone)]
pub(crate) struct Probes;

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

/// Repeats a probe and reports changes of its result.
async fn probe(id: String, spec: ProbeSpec, found: mpsc::Sender<(String, ProbeStatus)>) {
    let mut beat = interval(spec.interval);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0_u32;
    let mut status = None;
    let target = Attempt::of(&spec.target);
    loop {
        beat.tick().await;
        let error = target.attempt().await.err();
        failures = error.as_ref().map_or(0, |_| failures.saturating_add(1));
        let worked = status
            .as_ref()
            .is_some_and(|status: &ProbeStatus| status.success);
        let now = ProbeStatus {
            // A succeeding probe may fail a few times in a row.
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

/// A prepared attempt that can be repeated.
enum Attempt {
    Tcp(TcpProbe),
    Http(Agent, String),
}

impl Attempt {
    fn of(target: &Target) -> Attempt {
        match target {
            Target::Tcp(probe) => Attempt::Tcp(probe.clone()),
            Target::Http(probe) => {
                // Every request uses a new connection, and a redirect counts as an answer.
                let config = https::config(probe.timeout)
                    .max_redirects(0)
                    .max_idle_connections(0);
                Attempt::Http(config.build().into(), probe.url.clone())
            }
        }
    }

    async fn attempt(&self) -> Result<(), String> {
        match self {
            Attempt::Tcp(probe) => {
                match timeout(probe.timeout, TcpStream::connect(&probe.endpoint)).await {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(format!("no answer within {:?}", probe.timeout)),
                }
            }
            Attempt::Http(agent, url) => {
                let (agent, url) = (agent.clone(), url.clone());
                let (tell, told) = oneshot::channel();
                // A status of 400 or above is an error.
                let ask = move || drop(tell.send(agent.get(&url).call().map(drop)));
                // A separate thread: silent servers would exhaust the runtime's blocking threads.
                let thread = thread::Builder::new().name(HTTP_PROBE.to_owned());
                let thread = thread.spawn(ask);
                thread.map_err(|error| format!("cannot start a thread: {error}"))?;
                let asked = told
                    .await
                    .map_err(|_| "the probe ended without a result".to_owned())?;
                asked.map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn tcp_probe_follows_the_state_of_the_port() {
        // The port stays reserved while any socket is bound to it, even one that does not listen.
        let bound = |address: SocketAddr| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(address).unwrap();
            socket
        };
        let kept = bound(([127, 0, 0, 1], 0).into());
        let address = kept.local_addr().unwrap();
        let listener = bound(address).listen(1024).unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Probes).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let spec = ProbeSpec {
            interval: Duration::from_millis(1),
            failure_threshold: 3,
            target: Target::Tcp(TcpProbe {
                endpoint: address.to_string(),
                timeout: TIMEOUT,
            }),
            layer: Layer::Configuration,
        };
        store.put(Draft::new("p", spec), "").unwrap();
        let until = async |success: bool| {
            sample::until::<ProbeStatus>(&store, "p", |status| {
                status.is_some_and(|status| {
                    status.success == success && status.last_error.is_empty() == success
                })
            })
            .await;
        };
        until(true).await;
        drop(listener);
        until(false).await;
        let _listener = bound(address).listen(1024).unwrap();
        until(true).await;
    }

    /// Answers each request with the next status.
    async fn server(listener: TcpListener, statuses: &[&str]) {
        for status in statuses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 4096];
            let length = stream.read(&mut question).await.unwrap();
            assert!(question[..length].starts_with(b"GET /health HTTP/1.1\r\n"));
            let answer = format!(
                "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn http_probe_succeeds_for_statuses_below_400() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let statuses = [
            "200 OK",
            "302 Found",
            "404 Not Found",
            "503 Busy",
            "204 None",
        ];
        let server = tokio::spawn(async move { server(listener, &statuses).await });
        let target = Attempt::of(&Target::Http(HttpProbe {
            url: format!("http://{address}/health"),
            timeout: TIMEOUT,
        }));
        let mut found = Vec::new();
        for _ in statuses {
            found.push(target.attempt().await);
        }
        server.await.unwrap();
        let good: Vec<bool> = found.iter().map(Result::is_ok).collect();
        assert_eq!(good, [true, true, false, false, true]);
        assert!(found[2].as_ref().unwrap_err().contains("404"), "{found:?}");
        // The server is gone.
        assert!(target.attempt().await.is_err());
    }

    #[test]
    fn silent_probe_target_does_not_block_other_probes() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let target = Attempt::of(&Target::Http(HttpProbe {
                url: format!("http://{}/", listener.local_addr().unwrap()),
                timeout: Duration::from_secs(60),
            }));
            let asking = tokio::spawn(async move { target.attempt().await });
            let question = listener.accept().await.unwrap();
            let other = tokio::task::spawn_blocking(|| ());
            timeout(Duration::from_secs(20), other)
                .await
                .unwrap()
                .unwrap();
            assert!(!asking.is_finished());
            drop(question);
            assert!(asking.await.unwrap().is_err());
        });
    }

    #[test]
    fn tcp_and_http_probes_are_read_from_the_config() {
        let probes = "---\n\
             {apiVersion: v1alpha1, kind: TCPProbeConfig, name: a, endpoint: '[fd00::1]:53'}\n---\n\
             {apiVersion: v1alpha1, kind: HTTPProbeConfig, name: b, url: 'https://example.org/health', interval: 5s, failureThreshold: 3}\n";
        let specs = wanted(&sample::config("", probes));
        let ids: Vec<String> = specs.iter().map(ProbeSpec::id).collect();
        assert_eq!(ids, ["tcp:[fd00::1]:53", "http:https://example.org/health"]);
        assert_eq!(specs[0].interval, INTERVAL);
        assert_eq!(
            (specs[1].interval, specs[1].failure_threshold),
            (Duration::from_secs(5), 3)
        );
    }
}

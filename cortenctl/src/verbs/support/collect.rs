//! The data collected from a node. Sources are independent: a failed one is recorded, and the
//! others are still read.

use std::future::Future;
use std::time::Duration;

use corten_api::common::Data;
use corten_api::cosi::resource::meta::resource_definition_spec::Sensitivity;
use corten_api::machine as api;
use corten_client::clients::{Inspect, Machine};
use corten_client::failure::Failure;
use corten_client::resources;
use corten_client::status::{DEADLINE, explain};
use corten_client::stream::{Node, Trouble, drain};
use corten_client::yaml;
use corten_config::Document;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Response, Status, Streaming};

use super::archive::{Archive, part};
use super::redact::redact;
use super::{Missing, kubernetes};
use crate::verbs::{events, inspect, mounts, processes};

/// Maximum size of one source in bytes; the end is kept, because it is the newest.
const MAX_SOURCE: usize = 32 * 1024 * 1024;
/// Time without an event after which all past events have arrived: the stream stays open.
const QUIET: Duration = Duration::from_secs(1);
/// Time limit for events from a node that sends them continuously.
const EVENTS: Duration = Duration::from_secs(10);
/// How long processes waited for each resource (the kernel's Documentation/accounting/psi.rst).
const PRESSURE: [&str; 3] = ["cpu", "io", "memory"];

/// Collects the data of a node.
///
/// # Errors
/// The node does not even report its version: the other calls would fail too.
pub(super) async fn node(
    node: &Node,
    archive: &mut Archive,
    missing: &mut Missing,
    verbose: bool,
) -> Result<(), Trouble> {
    let mut sources = Sources {
        root: part(&node.name),
        archive,
        missing,
        verbose,
    };
    let version = limited(version(node)).await?;
    sources.put("version.yaml", async { Ok(version) }).await?;
    sources.put("dmesg.log", dmesg(node)).await?;
    sources.put("events.log", event_lines(node)).await?;
    sources.put("processes.txt", process_table(node)).await?;
    sources.put("mounts.txt", mount_table(node)).await?;
    for resource in PRESSURE {
        let name = format!("pressure/{resource}.txt");
        let path = format!("/proc/pressure/{resource}");
        sources.put(&name, file(node, path)).await?;
    }
    sources.put("dependencies.dot", dependencies(node)).await?;
    let config = node.or_itself(config);
    sources.put("machineconfig.yaml", config).await?;
    match limited(logs(node)).await {
        Ok(ids) => {
            for id in ids {
                let name = format!("logs/{}.log", part(&id));
                sources.put(&name, log(node, own_log(&id))).await?;
            }
        }
        Err(trouble) => sources.lacks("logs", trouble)?,
    }
    match limited(kubernetes::containers(node)).await {
        Ok(ids) => {
            for id in ids {
                let name = format!("kubernetes/{}.log", part(&id));
                sources.put(&name, log(node, kubernetes::log(&id))).await?;
            }
        }
        Err(trouble) => sources.lacks("kubernetes", trouble)?,
    }
    match limited(kubernetes::etcd(node)).await {
        Ok(Some(text)) => sources.put("etcd.yaml", async { Ok(text) }).await?,
        Ok(None) => {}
        Err(trouble) => sources.lacks("etcd.yaml", trouble)?,
    }
    match limited(resources::definitions(node)).await {
        Ok(definitions) => {
            for one in definitions {
                if one.sensitivity() == Sensitivity::Sensitive {
                    continue;
                }
                let name = format!("resources/{}.yaml", part(&one.resource_type));
                let (namespace, kind) = (&one.default_namespace, &one.resource_type);
                sources.put(&name, documents(node, namespace, kind)).await?;
            }
        }
        Err(trouble) => sources.lacks("resources", trouble)?,
    }
    Ok(())
}

struct Sources<'a> {
    root: String,
    archive: &'a mut Archive,
    missing: &'a mut Missing,
    /// Whether each source is reported when it is read.
    verbose: bool,
}

impl Sources<'_> {
    async fn put(
        &mut self,
        name: &str,
        source: impl Future<Output = Result<String, Trouble>>,
    ) -> Result<(), Failure> {
        if self.verbose {
            eprintln!("{}/{name}", self.root);
        }
        match limited(source).await {
            Ok(text) => {
                let path = format!("{}/{name}", self.root);
                Ok(self.archive.add(&path, redact(&text).as_bytes())?)
            }
            Err(trouble) => self.lacks(name, trouble),
        }
    }

    fn lacks(&mut self, name: &str, trouble: Trouble) -> Result<(), Failure> {
        let why = match trouble {
            Trouble::Call(status) => explain(&status, &[]),
            Trouble::Said(why) => why,
            Trouble::Here(failure) => return Err(failure),
        };
        self.missing.push((format!("{}/{name}", self.root), why));
        Ok(())
    }
}

/// Limits the time of a source, so that it does not delay the others.
async fn limited<T>(source: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let late = || Trouble::Said(format!("timeout after {} s", DEADLINE.as_secs()));
    timeout(DEADLINE, source).await.map_err(|_| late())?
}

async fn version(node: &Node) -> Result<String, Trouble> {
    let answer = node.client::<Machine>().version(node.brief(())).await?;
    let message = answer.into_inner().messages.into_iter().next();
    let info = message
        .and_then(|message| message.version)
        .unwrap_or_default();
    let document = json!({ "tag": info.tag, "sha": info.sha, "os": info.os, "arch": info.arch });
    Ok(yaml::render(&document).map_err(Failure::from)?)
}

async fn dmesg(node: &Node) -> Result<String, Trouble> {
    let request = node.brief(api::DmesgRequest::default());
    text(node.client::<Machine>().dmesg(request).await).await
}

async fn file(node: &Node, path: String) -> Result<String, Trouble> {
    let request = node.brief(api::ReadRequest { path });
    text(node.client::<Machine>().read(request).await).await
}

/// Inputs and outputs of each controller, in Graphviz' language.
async fn dependencies(node: &Node) -> Result<String, Trouble> {
    let client = &mut node.client::<Inspect>();
    let answer = client.controller_runtime_dependencies(node.brief(()));
    let messages = answer.await?.into_inner().messages.into_iter();
    let none = inspect::Resources::new();
    let graphs = messages.map(|message| inspect::graph(&node.name, &message, &none));
    Ok(graphs.collect())
}

/// The request for the log of a service.
fn own_log(id: &str) -> api::LogsRequest {
    api::LogsRequest {
        namespace: "system".to_owned(),
        id: id.to_owned(),
        tail_lines: -1,
        ..Default::default()
    }
}

async fn log(node: &Node, request: api::LogsRequest) -> Result<String, Trouble> {
    let request = node.brief(request);
    text(node.client::<Machine>().logs(request).await).await
}

/// The end of a text stream.
async fn text(answer: Result<Response<Streaming<Data>>, Status>) -> Result<String, Trouble> {
    let mut end = End::new(MAX_SOURCE);
    drain(&mut answer?.into_inner(), |frame: Data| {
        end.push(&frame.bytes);
        Ok(())
    })
    .await?;
    Ok(end.text())
}

/// The newest bytes of a source.
struct End {
    bytes: Vec<u8>,
    /// Number of bytes to keep.
    most: usize,
}

impl End {
    fn new(most: usize) -> End {
        End {
            bytes: Vec::new(),
            most,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Only at twice the size: moving the bytes for every frame would be slow.
        if self.bytes.len() > 2 * self.most {
            self.bytes.drain(..self.bytes.len() - self.most);
        }
    }

    fn text(self) -> String {
        let first = self.bytes.len().saturating_sub(self.most);
        String::from_utf8_lossy(self.bytes.get(first..).unwrap_or_default()).into_owned()
    }
}

async fn event_lines(node: &Node) -> Result<String, Trouble> {
    let request = node.request(api::EventsRequest {
        tail_events: -1,
        ..Default::default()
    });
    let mut frames = node.client::<Machine>().events(request).await?.into_inner();
    let mut end = End::new(MAX_SOURCE);
    let next = async || frames.message().await;
    until_quiet(QUIET, EVENTS, next, |event| {
        let line = events::text(&node.name, &event).unwrap_or_default();
        end.push(line.as_bytes());
    })
    .await?;
    Ok(end.text())
}

/// Takes messages until none arrives for `quiet`, and at most for `most` in total.
async fn until_quiet<M>(
    quiet: Duration,
    most: Duration,
    mut next: impl AsyncFnMut() -> Result<Option<M>, Status>,
    mut take: impl FnMut(M),
) -> Result<(), Status> {
    let end = Instant::now() + most;
    while Instant::now() < end {
        let silence = Instant::now() + quiet;
        match timeout_at(silence.min(end), next()).await {
            Ok(Ok(Some(message))) => take(message),
            Ok(Err(status)) => return Err(status),
            Ok(Ok(None)) | Err(_) => break,
        }
    }
    Ok(())
}

async fn process_table(node: &Node) -> Result<String, Trouble> {
    let answer = node.client::<Machine>().processes(node.brief(())).await?;
    let messages = answer.into_inner().messages.into_iter();
    let named: Vec<_> = messages
        .map(|message| (node.name.clone(), message))
        .collect();
    Ok(processes::table(&named).render())
}

async fn mount_table(node: &Node) -> Result<String, Trouble> {
    let answer = node.client::<Machine>().mounts(node.brief(())).await?;
    let messages = answer.into_inner().messages.into_iter();
    let named: Vec<_> = messages
        .map(|message| (node.name.clone(), message))
        .collect();
    Ok(mounts::table(&named).render())
}

/// Every log: those of services, and others such as `audit`.
async fn logs(node: &Node) -> Result<Vec<String>, Trouble> {
    let answer = node
        .client::<Machine>()
        .logs_containers(node.brief(()))
        .await?;
    let messages = answer.into_inner().messages.into_iter();
    Ok(messages.flat_map(|message| message.ids).collect())
}

/// The machine config with its secrets hidden; a config that cannot be parsed is left out.
async fn config(node: &Node) -> Result<String, Trouble> {
    let kind = "MachineConfigs.config.talos.dev";
    let resource = resources::one(node, "config", kind, "v1alpha1").await?;
    let text = match resources::spec(&resource)? {
        Value::String(text) => text,
        other => yaml::render(&other).map_err(Failure::from)?,
    };
    let document = Document::parse(text.as_bytes()).map_err(|_| {
        Trouble::Said("it cannot be parsed, so its secrets cannot be redacted".to_owned())
    })?;
    Ok(document.redacted())
}

async fn documents(node: &Node, namespace: &str, kind: &str) -> Result<String, Trouble> {
    let mut text = String::new();
    for resource in resources::list(node, namespace, kind).await? {
        let spec = resources::spec(&resource)?;
        let metadata = resource.metadata.unwrap_or_default();
        let document = resources::document(&node.name, None, &metadata, spec);
        if !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(&yaml::render(&document).map_err(Failure::from)?);
        if text.len() > MAX_SOURCE {
            let most = MAX_SOURCE / 1024 / 1024;
            return Err(Trouble::Said(format!("larger than {most} MiB")));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_source_keeps_its_last_bytes() {
        let mut end = End::new(5);
        for byte in b'a'..=b'z' {
            end.push(&[byte]);
        }
        assert_eq!(end.text(), "vwxyz");
    }

    #[tokio::test(start_paused = true)]
    async fn endless_events_are_collected_up_to_a_time_limit() {
        let mut number = 0;
        let next = async || {
            tokio::time::sleep(Duration::from_millis(1)).await;
            number += 1;
            Ok(Some(number))
        };
        let mut taken = Vec::new();
        let (quiet, most) = (Duration::from_secs(3600), Duration::from_millis(50));
        let take = |number| taken.push(number);
        until_quiet(quiet, most, next, take).await.unwrap();
        assert_eq!(taken.first(), Some(&1));
    }

    #[tokio::test(start_paused = true)]
    async fn event_collection_ends_after_a_quiet_period() {
        let mut left = vec![2, 1];
        let next = async || match left.pop() {
            Some(number) => Ok(Some(number)),
            None => std::future::pending().await,
        };
        let mut taken = Vec::new();
        let (quiet, most) = (Duration::from_millis(1), Duration::from_secs(3600));
        let take = |number| taken.push(number);
        until_quiet(quiet, most, next, take).await.unwrap();
        assert_eq!(taken, [1, 2]);
    }
}

//! The conditions that `cluster create` waits for, one after the other. At the timeout, the error says what was last
//! seen.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use corten_api::machine as api;
use corten_client::clients::Machine;
use corten_client::connect::Target;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::kubeconfig;
use corten_client::stream::{Node, Trouble, each};
use corten_cluster::{Cluster, from_kubeconfig};
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::backend::Backend;
use super::place::Place;
use super::plan::{NodePlan, Plan, Role};

/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(1);
/// Timeout of one call.
const CALL: Duration = Duration::from_secs(60);
/// Interval of the messages about a step that takes long.
const TOLD: Duration = Duration::from_secs(30);

/// Waits until the node's API answers its owner. Returns the node's version.
///
/// # Errors
/// The node has ended, or the timeout has passed.
pub(super) async fn api(
    place: &Place,
    backend: &Backend,
    node: &NodePlan,
    limit: Duration,
) -> Result<String, Failure> {
    let what = match node.role {
        Role::ControlPlane => "its API",
        Role::Worker => "its API, with a certificate of a control plane node",
    };
    until(backend, node, what, limit, async || {
        let mut version = String::new();
        call(place, node, async |node| {
            let answer = node.client::<Machine>().version(node.request(())).await?;
            let message = answer.into_inner().messages.into_iter().next();
            let found = message.and_then(|message| message.version);
            version = found.map(|found| found.tag).unwrap_or_default();
            Ok(())
        })
        .await?;
        Ok(version)
    })
    .await
}

/// Bootstraps etcd on the node.
///
/// # Errors
/// The node refuses or has ended, or the timeout has passed.
pub(super) async fn bootstrap(
    place: &Place,
    backend: &Backend,
    node: &NodePlan,
    limit: Duration,
) -> Result<(), Failure> {
    until(backend, node, "the start of etcd", limit, async || {
        call(place, node, async |node| {
            let body = api::BootstrapRequest::default();
            let begun = node.client::<Machine>().bootstrap(node.request(body)).await;
            match begun {
                // An earlier attempt succeeded, but its answer was lost.
                Err(status) if status.code() == Code::AlreadyExists => Ok(()),
                Err(status) => Err(status.into()),
                Ok(_) => Ok(()),
            }
        })
        .await
    })
    .await
}

/// Waits until Kubernetes reports every node as Ready.
///
/// # Errors
/// A node has ended, or the timeout has passed.
pub(super) async fn ready(
    plan: &Plan,
    place: &Place,
    backend: &Backend,
    limit: Duration,
    say: impl Fn(&str),
) -> Result<(), Failure> {
    let first = plan.first()?;
    let cluster = until(backend, first, "the kubeconfig", limit, async || {
        let mut text = String::new();
        call(place, first, async |node| {
            text = kubeconfig::fetch(node).await?;
            Ok(())
        })
        .await?;
        corten_client::files::write(&place.kubeconfig(), &text, true)?;
        Ok(Cluster::connect(&from_kubeconfig(&text)?)?)
    })
    .await?;
    until(backend, first, "the Kubernetes API", limit, async || {
        Ok(cluster.is_ready().await?)
    })
    .await?;
    say("the Kubernetes API answers");
    for node in &plan.nodes {
        until(
            backend,
            node,
            "Kubernetes to report it as Ready",
            limit,
            async || {
                cluster
                    .node_ready(&node.name)
                    .await?
                    .map_err(|why| anyhow!(why))
            },
        )
        .await?;
        say(&format!("{} is Ready", node.name));
    }
    Ok(())
}

/// Retries until the call succeeds, the node has ended, or the timeout has passed.
async fn until<T>(
    backend: &Backend,
    node: &NodePlan,
    what: &str,
    limit: Duration,
    attempt: impl AsyncFn() -> anyhow::Result<T>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    let mut told = begun;
    loop {
        let why = match timeout(CALL, attempt()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(why)) => format!("{why:#}"),
            Err(_) => format!("no answer within {} s", CALL.as_secs()),
        };
        if backend.has_ended(&node.name) {
            return Err(Failure::call(format!("{} has ended", node.name)));
        }
        let waited = begun.elapsed();
        if waited >= limit {
            return Err(Failure::call(format!(
                "{}: timeout after {} s, waiting for {what}: {why}",
                node.name,
                waited.as_secs()
            )));
        }
        if told.elapsed() >= TOLD {
            told = Instant::now();
            eprintln!("        {}: waiting for {what}: {why}", node.name);
        }
        sleep(LOOK).await;
    }
}

/// Calls a node at its own address, as the cluster's owner.
async fn call(
    place: &Place,
    node: &NodePlan,
    work: impl AsyncFnMut(&Node) -> Result<(), Trouble>,
) -> anyhow::Result<()> {
    let endpoint = node.address.to_string().parse()?;
    let global = Global {
        endpoints: vec![endpoint],
        cortenconfig: Some(place.client_config()),
        ..Global::default()
    };
    let opened = async { each(Target::of(&global)?.open().await?, work).await };
    let failed = opened.await.map_err(text)?;
    match failed.into_iter().next() {
        Some((_, why)) => Err(anyhow!(why)),
        None => Ok(()),
    }
}

fn text(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Call(error) => error,
        Failure::Usage(text) => anyhow!(text),
        other => anyhow!(other.sentence()),
    }
}

//! `health`: the checks that a node makes of itself, and the checks that a control plane node makes
//! of other nodes.

use std::time::{Duration, Instant};

use corten_api::cluster::{ClusterInfo, HealthCheckProgress, HealthCheckRequest};
use corten_client::clients::Cluster;
use corten_client::connect::{Session, Target, Unreached, routes};
use corten_client::failure::{Failure, finish};
use corten_client::flags::Global;
use corten_client::messages::{Message as _, failure_of, node_of};
use corten_client::stream::{Failed, Trouble, drain, sessions, stream};
use corten_client::table::{print, printable};
use tokio::time::sleep;
use tonic::Code;

use crate::cli::Health;

/// Interval between two calls of an unreachable node.
const PAUSE: Duration = Duration::from_secs(2);
/// The check that a node answers, with the text of a node that checks others.
const APID: &str = "apid to be ready";

pub(crate) async fn run(global: &Global, args: &Health) -> Result<(), Failure> {
    let failed = if args.server {
        by_one(global, args).await?
    } else {
        themselves(global, args).await?
    };
    finish(&failed)
}

/// The called node checks the named nodes, or itself.
async fn by_one(global: &Global, args: &Health) -> Result<Failed, Failure> {
    let body = HealthCheckRequest {
        wait_timeout: prost_types::Duration::try_from(args.wait_timeout).ok(),
        cluster_info: Some(ClusterInfo {
            control_plane_nodes: args.control_plane_nodes.clone(),
            worker_nodes: args.worker_nodes.clone(),
            force_endpoint: args.k8s_endpoint.clone(),
        }),
    };
    let call = |mut client: Cluster, request| async move { client.health_check(request).await };
    let take = |_: &str, progress: HealthCheckProgress| Ok(tell("", &progress.message)?);
    stream(routes(global).await?, body, call, take).await
}

/// Each named or called node checks itself; an unreachable node is retried.
async fn themselves(global: &Global, args: &Health) -> Result<Failed, Failure> {
    let mut target = Target::of(global)?;
    let named = [&*args.control_plane_nodes, &*args.worker_nodes].concat();
    if !named.is_empty() {
        target.nodes = named;
    }
    let end = Instant::now().checked_add(args.wait_timeout);
    let end = end.ok_or_else(|| Failure::usage("--wait-timeout is too long"))?;
    let left = || end.saturating_duration_since(Instant::now());
    let mut failed = Failed::new();
    let mut before = Failed::new();
    loop {
        let mut now = round(&target, left()).await?;
        failed.append(&mut now.failed);
        for one in now.away.iter().filter(|one| !before.contains(one)) {
            tell(&one.0, &format!("waiting for {APID}: {}", one.1))?;
        }
        before = now.away;
        if before.is_empty() || left() <= PAUSE {
            break;
        }
        if !target.nodes.is_empty() {
            target.nodes = before.iter().map(|(node, _)| node.clone()).collect();
        }
        sleep(PAUSE).await;
    }
    let late = |why| format!("timeout (--wait-timeout), waiting for {APID}: {why}");
    failed.extend(before.into_iter().map(|(node, why)| (node, late(why))));
    Ok(failed)
}

/// The result of calling all nodes once.
#[derive(Default)]
struct Round {
    /// Nodes that cannot be reached, or whose connection broke.
    away: Failed,
    /// Nodes that fail a check, or refuse to check.
    failed: Failed,
}

/// Lets the nodes of a target check themselves, in parallel.
async fn round(target: &Target, limit: Duration) -> Result<Round, Failure> {
    let mut round = Round::default();
    let opened = match target.open().await {
        Ok(opened) => opened,
        Err(Failure::Call(error)) => {
            let unreached: Unreached = error.downcast()?;
            let endpoint = target.endpoints.first().map(|one| one.host().to_owned());
            round.lose(&target.nodes, endpoint.as_deref(), &unreached.to_string());
            return Ok(round);
        }
        Err(other) => return Err(other),
    };
    let body = HealthCheckRequest {
        wait_timeout: prost_types::Duration::try_from(limit).ok(),
        cluster_info: None,
    };
    let refused = sessions(opened, async |name, session, _| {
        match call(session, name, &body, &mut round).await {
            Err(Trouble::Call(status)) if status.code() == Code::Unavailable => {
                round.lose(&target.nodes, Some(name), status.message());
                Ok(())
            }
            other => other,
        }
    })
    .await?;
    round.failed.extend(refused);
    Ok(round)
}

impl Round {
    /// Marks all nodes that have not failed as unreachable. `itself` is the called node when none
    /// was named.
    fn lose(&mut self, nodes: &[String], itself: Option<&str>, why: &str) {
        let nodes = nodes.iter().map(String::as_str);
        let itself = itself.filter(|_| nodes.len() == 0);
        for node in nodes.chain(itself) {
            let known = self.failed.iter().chain(&self.away);
            if known.into_iter().all(|(other, _)| other != node) {
                self.away.push((node.to_owned(), why.to_owned()));
            }
        }
    }
}

async fn call(
    session: &Session,
    name: &str,
    body: &HealthCheckRequest,
    round: &mut Round,
) -> Result<(), Trouble> {
    let request = session.request(body.clone());
    let mut client: Cluster = session.client();
    let mut frames = client.health_check(request).await?.into_inner();
    drain(&mut frames, |progress: HealthCheckProgress| {
        let node = node_of(&progress, name);
        let status = progress.metadata().and_then(|one| one.status.as_ref());
        match (status, failure_of(&progress)) {
            (Some(status), _) if Code::from(status.code) == Code::Unavailable => {
                round.away.push((node, status.message.clone()));
            }
            (_, Some(why)) => round.failed.push((node, why)),
            (_, None) => tell(&node, &progress.message)?,
        }
        Ok(())
    })
    .await
}

/// Prints a line, with the node's name if it has one. The first message of a stream only reports
/// its begin.
fn tell(node: &str, message: &str) -> std::io::Result<()> {
    let (node, message) = (printable(node), printable(message));
    match (node.as_str(), message.as_str()) {
        (_, "") => Ok(()),
        ("", message) => print(&format!("{message}\n")),
        (node, message) => print(&format!("{node}: {message}\n")),
    }
}

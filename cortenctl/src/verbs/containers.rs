//! `containers`, `stats` and `restart`.

use corten_api::common::ContainerDriver;
use corten_api::machine::{Container, ContainersRequest, RestartRequest, Stats, StatsRequest};
use corten_client::answers::{Answers, ask};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::output::show;
use corten_client::table::Table;
use serde_json::{Value, json};

use crate::cli::{Containers, Kubernetes, Restart};

const HEADER: &[&str] = &["NODE", "NAMESPACE", "ID", "IMAGE", "PID", "STATUS"];
const STATS_HEADER: &[&str] = &["NODE", "NAMESPACE", "ID", "MEMORY(MB)", "CPU"];

/// The containerd namespace, and the driver of its containers.
pub(super) fn namespace(which: Kubernetes) -> (String, ContainerDriver) {
    if which.kubernetes {
        ("k8s.io".to_owned(), ContainerDriver::Cri)
    } else {
        ("system".to_owned(), ContainerDriver::Containerd)
    }
}

/// The containers of nodes.
pub(super) async fn all(
    routes: Vec<Route>,
    which: Kubernetes,
) -> Result<Answers<Container>, Failure> {
    let (namespace, driver) = namespace(which);
    let body = ContainersRequest {
        namespace,
        driver: driver.into(),
    };
    ask(routes, body, |mut client: Machine, request| async move {
        client.containers(request).await
    })
    .await
}

pub(crate) async fn run(routes: Vec<Route>, args: &Containers) -> Result<(), Failure> {
    let answers = all(routes, args.kubernetes).await?;
    let format = &args.output.output;
    show(answers, format, |all| table(all).render(), fields)
}

pub(crate) async fn stats(routes: Vec<Route>, args: &Containers) -> Result<(), Failure> {
    let (namespace, driver) = namespace(args.kubernetes);
    let body = StatsRequest {
        namespace,
        driver: driver.into(),
    };
    let answers = ask(routes, body, |mut client: Machine, request| async move {
        client.stats(request).await
    })
    .await?;
    let format = &args.output.output;
    show(
        answers,
        format,
        |all| stats_table(all).render(),
        stats_fields,
    )
}

pub(crate) async fn restart(routes: Vec<Route>, args: &Restart) -> Result<(), Failure> {
    let (namespace, driver) = namespace(args.kubernetes);
    let body = RestartRequest {
        namespace,
        id: args.id.clone(),
        driver: driver.into(),
    };
    ask(routes, body, |mut client: Machine, request| async move {
        client.restart(request).await
    })
    .await?
    .finish()
}

/// A container is listed below its pod.
fn below(id: &str, pod: &str) -> String {
    if pod.is_empty() || pod == id {
        id.to_owned()
    } else {
        format!("└─ {id}")
    }
}

fn table(messages: &[(String, Container)]) -> Table {
    let mut table = Table::new(HEADER);
    for (node, message) in messages {
        for one in &message.containers {
            table.row([
                node.clone(),
                one.namespace.clone(),
                below(&one.id, &one.pod_id),
                one.image.clone(),
                one.pid.to_string(),
                one.status.clone(),
            ]);
        }
    }
    table
}

fn fields(message: &Container) -> Value {
    let containers = message.containers.iter().map(|one| {
        json!({
            "namespace": one.namespace,
            "id": one.id,
            "name": one.name,
            "podId": one.pod_id,
            "image": one.image,
            "pid": one.pid,
            "status": one.status,
        })
    });
    json!({ "containers": containers.collect::<Vec<_>>() })
}

fn stats_table(messages: &[(String, Stats)]) -> Table {
    let mut table = Table::new(STATS_HEADER);
    for (node, message) in messages {
        for one in &message.stats {
            table.row([
                node.clone(),
                one.namespace.clone(),
                below(&one.id, &one.pod_id),
                format!("{:.2}", one.memory_usage as f64 * 1e-6),
                one.cpu_usage.to_string(),
            ]);
        }
    }
    table
}

/// Memory in bytes, processor time in nanoseconds.
fn stats_fields(message: &Stats) -> Value {
    let stats = message.stats.iter().map(|one| {
        json!({
            "namespace": one.namespace,
            "id": one.id,
            "name": one.name,
            "podId": one.pod_id,
            "memory": one.memory_usage,
            "cpu": one.cpu_usage,
        })
    });
    json!({ "stats": stats.collect::<Vec<_>>() })
}

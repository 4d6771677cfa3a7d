//! Lists containers and terminates them.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::str::FromStr as _;

use containerd_client::services::v1::{
    Container as Record, KillRequest, ListContainersRequest, ListTasksRequest,
};
use containerd_client::types::v1::{Process, Status as TaskStatus};
use nix::sys::signal::Signal;
use serde::Deserialize;
use tonic::{Code, Status};

use super::{Containerd, Session, client};

/// SIGTERM: the container shuts down cleanly, and its owner restarts it if wanted.
const TERM: u32 = 15;
/// The real-time signals of Linux (signal(7)).
const REAL_TIME: RangeInclusive<u32> = 34..=64;
/// What containerd's CRI plug-in keeps with a container (containerd, `internal/cri/labels`).
const METADATA: &str = "io.cri-containerd.container.metadata";

/// Role of a container in Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A container of the node itself.
    Plain,
    /// The container that holds a pod's namespaces.
    Sandbox,
    /// A container of a pod.
    OfPod,
}

/// A container, as shown to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Role in Kubernetes.
    pub kind: Kind,
    /// Display id: the id of a plain container, `namespace/pod` of a sandbox, `namespace/pod:container:id` of a pod's
    /// container.
    pub id: String,
    /// Id in containerd.
    pub internal_id: String,
    /// Name in the pod; the id of a plain container.
    pub name: String,
    /// Pod as `namespace/pod`; the id of a plain container.
    pub pod: String,
    /// UID of the pod; empty for a plain container.
    pub uid: String,
    /// Name of the image.
    pub image: String,
    /// Process id of the first process; 0 without one.
    pub pid: u32,
    /// State of the process.
    pub status: TaskStatus,
    /// Name of the network namespace below `/run/netns`; empty for the node's. Only that of a sandbox counts: the
    /// containers of a pod join the namespace of their sandbox by a path in `/proc`, even if it is the node's.
    pub network_namespace: String,
    /// Number of the signal that asks it to end: that of its pod or image, else SIGTERM.
    pub stop_signal: u32,
}

impl Container {
    /// Whether its first process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.status == TaskStatus::Running
    }
}

impl Containerd {
    /// All containers of a namespace; pods in order, each sandbox before its containers.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn containers(&self, namespace: &'static str) -> Result<Vec<Container>, Status> {
        list(&self.connect(namespace).await?).await
    }

    /// Sends SIGTERM to the container with this id (display or containerd's).
    ///
    /// # Errors
    /// The container does not exist or does not run, or containerd does not answer.
    pub async fn end(&self, namespace: &'static str, id: &str) -> Result<(), Status> {
        let session = self.connect(namespace).await?;
        let containers = list(&session).await?;
        let container = containers
            .iter()
            .find(|container| container.id == id || container.internal_id == id)
            .ok_or_else(|| {
                Status::not_found(format!(
                    "no container {id:?} in the namespace {namespace:?}; the container list names all"
                ))
            })?;
        match kill(&session, container, TERM).await {
            Err(status) if status.code() == Code::NotFound => Err(Status::failed_precondition(
                format!("the container {id:?} does not run; the container list shows its state"),
            )),
            other => other,
        }
    }

    /// Sends the container its stop signal. A container that has ended needs none.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn stop(&self, namespace: &'static str, container: &Container) -> Result<(), Status> {
        let session = self.connect(namespace).await?;
        match kill(&session, container, container.stop_signal).await {
            Err(status) if status.code() == Code::NotFound => Ok(()),
            other => other,
        }
    }
}

async fn kill(session: &Session, container: &Container, signal: u32) -> Result<(), Status> {
    let kill = KillRequest {
        container_id: container.internal_id.clone(),
        signal,
        all: false,
        ..KillRequest::default()
    };
    let mut tasks = client!(session, tasks_client::TasksClient);
    tasks.kill(kill).await.map(|_| ())
}

async fn list(session: &Session) -> Result<Vec<Container>, Status> {
    let tasks = client!(session, tasks_client::TasksClient)
        .list(ListTasksRequest::default())
        .await?
        .into_inner()
        .tasks;
    let tasks: HashMap<&str, &Process> = tasks.iter().map(|t| (t.id.as_str(), t)).collect();
    // One answer with all records may exceed the size that containerd sends: each record has its whole specification.
    let mut records = client!(session, containers_client::ContainersClient)
        .list_stream(ListContainersRequest::default())
        .await?
        .into_inner();
    let mut found = Vec::new();
    while let Some(message) = records.message().await? {
        let record = message.container.unwrap_or_default();
        found.push(view(&record, tasks.get(record.id.as_str()).copied()));
    }
    found.sort_by(|a, b| {
        let place = |c: &Container| (c.pod.clone(), c.kind == Kind::OfPod, c.id.clone());
        place(a).cmp(&place(b))
    });
    Ok(found)
}

/// The relevant part of an OCI runtime spec (config.md, "Namespaces").
#[derive(Deserialize)]
struct Spec {
    linux: Option<Linux>,
}

#[derive(Deserialize)]
struct Linux {
    #[serde(default)]
    namespaces: Vec<LinuxNamespace>,
}

#[derive(Deserialize)]
struct LinuxNamespace {
    r#type: String,
    path: Option<String>,
}

fn network_namespace(record: &Record) -> Option<String> {
    let spec: Spec = serde_json::from_slice(&record.spec.as_ref()?.value).ok()?;
    let namespaces = spec.linux?.namespaces;
    let network = namespaces.into_iter().find(|n| n.r#type == "network")?;
    let path = network.path?;
    Some(path.rsplit('/').next().unwrap_or_default().to_owned())
}

/// The relevant part of [`METADATA`].
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attached {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Metadata {
    #[serde(default)]
    stop_signal: String,
}

fn stop_signal(record: &Record) -> Option<u32> {
    let attached = record.extensions.get(METADATA)?;
    let attached: Attached = serde_json::from_slice(&attached.value).ok()?;
    signal(&attached.metadata.stop_signal)
}

/// Number of a signal, which an image's config gives by name or number (image spec, config.md, `StopSignal`).
fn signal(text: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        return (1..=*REAL_TIME.end()).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let steps = |rest: &str, sign: char| match rest.strip_prefix(sign) {
        Some(steps) => steps.parse::<u32>().ok(),
        None => rest.is_empty().then_some(0),
    };
    let number = if let Some(rest) = name.strip_prefix("RTMIN") {
        REAL_TIME.start().checked_add(steps(rest, '+')?)
    } else if let Some(rest) = name.strip_prefix("RTMAX") {
        REAL_TIME.end().checked_sub(steps(rest, '-')?)
    } else {
        let known = Signal::from_str(&format!("SIG{name}")).ok()?;
        return u32::try_from(known as i32).ok();
    };
    number.filter(|number| REAL_TIME.contains(number))
}

fn view(record: &Record, task: Option<&Process>) -> Container {
    let label = |name: &str| record.labels.get(name).map_or("", String::as_str);
    let pod = format!(
        "{}/{}",
        label("io.kubernetes.pod.namespace"),
        label("io.kubernetes.pod.name")
    );
    let name = label("io.kubernetes.container.name");
    let short: String = record.id.chars().take(12).collect();
    // Labels of containerd's CRI plug-in, the only writer in its namespace.
    let (kind, id, pod) = match label("io.cri-containerd.kind") {
        "sandbox" => (Kind::Sandbox, pod.clone(), pod),
        "container" => (Kind::OfPod, format!("{pod}:{name}:{short}"), pod),
        _ => (Kind::Plain, record.id.clone(), record.id.clone()),
    };
    Container {
        kind,
        name: if name.is_empty() { &id } else { name }.to_owned(),
        id,
        pod,
        internal_id: record.id.clone(),
        uid: label("io.kubernetes.pod.uid").to_owned(),
        image: record.image.clone(),
        pid: task.map_or(0, |task| task.pid),
        status: task.map_or(TaskStatus::Stopped, Process::status),
        network_namespace: network_namespace(record).unwrap_or_default(),
        stop_signal: stop_signal(record).unwrap_or(TERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use containerd_client::types::v1::Status as TaskStatus;
    use prost_types::Any;

    fn record(id: &str, labels: &[(&str, &str)]) -> Record {
        Record {
            id: id.to_owned(),
            image: "image".to_owned(),
            labels: labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Record::default()
        }
    }

    const POD: [(&str, &str); 3] = [
        ("io.kubernetes.pod.namespace", "kube-system"),
        ("io.kubernetes.pod.name", "dns"),
        ("io.kubernetes.pod.uid", "u-1"),
    ];

    #[test]
    fn containers_of_a_pod_are_named_after_the_pod() {
        let with = |more: &[(&'static str, &'static str)]| [&POD[..], more].concat();
        let sandbox = view(
            &record("s1", &with(&[("io.cri-containerd.kind", "sandbox")])),
            None,
        );
        assert_eq!(
            (sandbox.kind, sandbox.id.as_str()),
            (Kind::Sandbox, "kube-system/dns")
        );
        let labels = with(&[
            ("io.cri-containerd.kind", "container"),
            ("io.kubernetes.container.name", "cache"),
        ]);
        let task = Process {
            id: "0123456789abcdef".to_owned(),
            pid: 77,
            status: TaskStatus::Running.into(),
            ..Process::default()
        };
        let container = view(&record("0123456789abcdef", &labels), Some(&task));
        assert_eq!(container.id, "kube-system/dns:cache:0123456789ab");
        assert_eq!(
            (
                container.name.as_str(),
                container.pod.as_str(),
                container.pid
            ),
            ("cache", "kube-system/dns", 77)
        );
        assert_eq!(container.status, TaskStatus::Running);
    }

    #[test]
    fn container_without_a_task_is_not_running() {
        let plain = view(&record("ext-x", &[]), None);
        assert_eq!((plain.id.as_str(), plain.pid), ("ext-x", 0));
        assert_eq!(plain.status, TaskStatus::Stopped);
    }

    #[test]
    fn network_namespace_is_read_from_the_spec_and_is_empty_for_a_broken_spec() {
        let mut with_spec = record("x", &[]);
        let of = |text: &str| {
            Some(Any {
                type_url: String::new(),
                value: text.as_bytes().to_vec(),
            })
        };
        with_spec.spec = of(
            r#"{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/run/netns/cni-1"}]}}"#,
        );
        assert_eq!(view(&with_spec, None).network_namespace, "cni-1");
        for broken in ["", "[]", r#"{"linux":{"namespaces":[{"type":"network"}]}}"#] {
            with_spec.spec = of(broken);
            assert_eq!(view(&with_spec, None).network_namespace, "");
        }
    }

    #[test]
    fn stop_signal_is_that_of_the_pod_or_image_and_sigterm_without_a_known_one() {
        let asked = |metadata: &str| {
            let mut record = record("x", &[]);
            let kept = Any {
                type_url: String::new(),
                value: metadata.as_bytes().to_vec(),
            };
            record.extensions.insert(METADATA.to_owned(), kept);
            view(&record, None).stop_signal
        };
        for (name, number) in [
            ("SIGINT", 2),
            ("quit", 3),
            ("SIGWINCH", 28),
            ("10", 10),
            ("SIGRTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-14", 50),
            // None of these is a signal.
            ("", 15),
            ("0", 15),
            ("65", 15),
            ("SIGRTMIN+31", 15),
            ("SIGRTMAX-31", 15),
            ("SIGRTMIN-1", 15),
            ("SIGHELLO", 15),
        ] {
            let metadata =
                format!(r#"{{"Version":"v1","Metadata":{{"ID":"x","StopSignal":"{name}"}}}}"#);
            assert_eq!(asked(&metadata), number, "{name}");
        }
        for broken in ["", "[]", r#"{"Metadata":{}}"#] {
            assert_eq!(asked(broken), TERM);
        }
        assert_eq!(view(&record("x", &[]), None).stop_signal, TERM);
    }
}

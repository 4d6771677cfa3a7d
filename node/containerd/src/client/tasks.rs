//! Runs the node's own containers, with a directory of the node or an image as root.

use std::collections::HashMap;
use std::path::Path;

use async_trait::async_trait;
use containerd_client::services::v1::container::Runtime as Shim;
use containerd_client::services::v1::{
    Container as Record, CreateContainerRequest, CreateNamespaceRequest, CreateTaskRequest,
    DeleteContainerRequest, DeleteTaskRequest, GetContainerRequest, GetRequest, KillRequest,
    ListContainersRequest, Namespace as NamespaceRecord, StartRequest, WaitRequest,
};
use containerd_client::types::Mount;
use containerd_client::types::v1::Status as TaskStatus;
use corten_supervisor::Root;
use corten_supervisor::supervisor::container::{Bundle, Runtime, Started};
use corten_sys::process::Signal;
use prost_types::Any;
use serde_json::Value;
use tonic::{Code, Status};

use super::snapshots::{SNAPSHOTTER, discard, prepare};
use super::spec::runtime_spec;
use super::{Containerd, SYSTEM, Session, client};

/// The containerd shim for runc.
const SHIM: &str = "io.containerd.runc.v2";
/// Type of a runtime spec in a container record (containerd, `client/oci`).
const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
/// Label on every container created here.
const LABEL: &str = "corten.service";

#[async_trait]
impl Runtime for Containerd {
    async fn start(&self, id: &str, bundle: &Bundle) -> Result<Started, Status> {
        let session = self.connect(SYSTEM).await?;
        let held = rustix::thread::capabilities(None).map_err(std::io::Error::from)?;
        let spec = runtime_spec(bundle, held.permitted);
        if let Some(pid) = running(&session, id, &spec, image(bundle)).await? {
            return Ok(Started {
                pid,
                taken_over: true,
            });
        }
        make_namespace(&session).await?;
        remove(&session, id).await?;
        // The earlier container, which had the directory mounted, is gone now.
        bundle.renew_root().await?;
        let pid = create(&session, id, &spec, bundle).await?;
        let start = StartRequest {
            container_id: id.to_owned(),
            ..StartRequest::default()
        };
        client!(session, tasks_client::TasksClient)
            .start(start)
            .await?;
        Ok(Started {
            pid,
            taken_over: false,
        })
    }

    async fn wait(&self, id: &str) -> Result<i32, Status> {
        let session = self.connect(SYSTEM).await?;
        wait(&session, id).await
    }

    async fn signal(&self, id: &str, signal: Signal) -> Result<(), Status> {
        let session = self.connect(SYSTEM).await?;
        let killed = kill(&session, id, signal).await;
        // A process that has ended already needs no signal; its waiters learn of the end.
        unless(killed, Code::NotFound)
    }

    async fn remove(&self, id: &str) -> Result<(), Status> {
        let session = self.connect(SYSTEM).await?;
        remove(&session, id).await
    }
}

impl Containerd {
    /// Removes containers created here, including those of earlier boots, whose service no longer exists. Returns their
    /// names. `is_wanted` is called right before the removal.
    ///
    /// # Errors
    /// containerd does not answer.
    pub async fn remove_others(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, Status> {
        let session = self.connect(SYSTEM).await?;
        let list = ListContainersRequest {
            filters: vec![format!("labels.\"{LABEL}\"")],
        };
        let records = client!(session, containers_client::ContainersClient)
            .list(list)
            .await?
            .into_inner()
            .containers;
        let mut removed = Vec::new();
        for record in records {
            if !is_wanted(&record.id) {
                remove(&session, &record.id).await?;
                removed.push(record.id);
            }
        }
        Ok(removed)
    }
}

/// Name of the container's image; empty without one.
fn image(bundle: &Bundle) -> &str {
    match &bundle.container.root {
        Root::Directory(_) => "",
        Root::Image(name) => name,
    }
}

/// Process id of the container, if it runs with exactly this spec and image.
async fn running(
    session: &Session,
    id: &str,
    spec: &Value,
    image: &str,
) -> Result<Option<u32>, Status> {
    let get = GetContainerRequest { id: id.to_owned() };
    let record = client!(session, containers_client::ContainersClient)
        .get(get)
        .await;
    let Some(record) = found(record)?.and_then(|answer| answer.container) else {
        return Ok(None);
    };
    if record.image != image {
        return Ok(None);
    }
    let made_by = record.spec.map(|any| serde_json::from_slice(&any.value));
    if !made_by.is_some_and(|made_by| made_by.is_ok_and(|made_by: Value| made_by == *spec)) {
        return Ok(None);
    }
    let get = GetRequest {
        container_id: id.to_owned(),
        ..GetRequest::default()
    };
    let task = client!(session, tasks_client::TasksClient).get(get).await;
    let process = found(task)?.and_then(|answer| answer.process);
    Ok(process
        .filter(|process| process.status() == TaskStatus::Running)
        .map(|process| process.pid))
}

async fn create(session: &Session, id: &str, spec: &Value, bundle: &Bundle) -> Result<u32, Status> {
    let record = Record {
        id: id.to_owned(),
        labels: HashMap::from([(LABEL.to_owned(), id.to_owned())]),
        runtime: Some(Shim {
            name: SHIM.to_owned(),
            options: None,
        }),
        spec: Some(Any {
            type_url: SPEC.to_owned(),
            value: spec.to_string().into_bytes(),
        }),
        ..Record::default()
    };
    let image = image(bundle);
    let record = match image {
        "" => record,
        // The reference to the snapshot protects it from garbage collection from the start.
        _ => Record {
            image: image.to_owned(),
            snapshotter: SNAPSHOTTER.to_owned(),
            snapshot_key: id.to_owned(),
            ..record
        },
    };
    let container = Some(record);
    client!(session, containers_client::ContainersClient)
        .create(CreateContainerRequest { container })
        .await?;
    let rootfs = match &bundle.container.root {
        Root::Directory(directory) => vec![root(directory, bundle)],
        Root::Image(image) => prepare(session, id, image).await?,
    };
    let output = bundle.output.display().to_string();
    let task = CreateTaskRequest {
        container_id: id.to_owned(),
        rootfs,
        stdout: output.clone(),
        stderr: output,
        ..CreateTaskRequest::default()
    };
    let created = client!(session, tasks_client::TasksClient)
        .create(task)
        .await?;
    Ok(created.into_inner().pid)
}

/// An overlay root: runc creates missing mount points and therefore needs a writable root. The shim mounts it, and
/// unmounts it when the container is removed.
fn root(directory: &Path, bundle: &Bundle) -> Mount {
    let option = |name: &str, path: &Path| format!("{name}={}", path.display());
    Mount {
        r#type: "overlay".to_owned(),
        source: "overlay".to_owned(),
        options: vec![
            option("lowerdir", directory),
            option("upperdir", &bundle.upper),
            option("workdir", &bundle.work),
        ],
        ..Mount::default()
    }
}

/// Creates the namespace, because containerd does not create it implicitly.
async fn make_namespace(session: &Session) -> Result<(), Status> {
    let record = NamespaceRecord {
        name: SYSTEM.to_owned(),
        ..NamespaceRecord::default()
    };
    let namespace = Some(record);
    let made = client!(session, namespaces_client::NamespacesClient)
        .create(CreateNamespaceRequest { namespace })
        .await;
    unless(made, Code::AlreadyExists)
}

async fn kill(session: &Session, id: &str, signal: Signal) -> Result<(), Status> {
    let kill = KillRequest {
        container_id: id.to_owned(),
        signal: signal.as_raw().unsigned_abs(),
        all: signal == Signal::KILL,
        ..KillRequest::default()
    };
    let mut tasks = client!(session, tasks_client::TasksClient);
    tasks.kill(kill).await.map(|_| ())
}

async fn wait(session: &Session, id: &str) -> Result<i32, Status> {
    let wait = WaitRequest {
        container_id: id.to_owned(),
        ..WaitRequest::default()
    };
    let ended = client!(session, tasks_client::TasksClient)
        .wait(wait)
        .await?;
    // Exit codes of the kernel are 0..=255.
    Ok(i32::try_from(ended.into_inner().exit_status).unwrap_or(255))
}

async fn remove(session: &Session, id: &str) -> Result<(), Status> {
    match kill(session, id, Signal::KILL).await {
        Ok(()) => unless(wait(session, id).await, Code::NotFound)?,
        // The process has ended, or never existed.
        Err(status) if status.code() == Code::NotFound => {}
        Err(status) => return Err(status),
    }
    let task = DeleteTaskRequest {
        container_id: id.to_owned(),
    };
    let deleted = client!(session, tasks_client::TasksClient)
        .delete(task)
        .await;
    unless(deleted, Code::NotFound)?;
    let container = DeleteContainerRequest { id: id.to_owned() };
    let deleted = client!(session, containers_client::ContainersClient)
        .delete(container)
        .await;
    unless(deleted, Code::NotFound)?;
    unless(discard(session, id).await, Code::NotFound)
}

/// The answer, or `None` if the object does not exist.
fn found<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

/// Treats this error code as success.
fn unless<T>(answer: Result<T, Status>, code: Code) -> Result<(), Status> {
    match answer {
        Err(status) if status.code() == code => Ok(()),
        other => other.map(|_| ()),
    }
}

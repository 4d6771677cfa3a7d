//! Lists containers and their resource usage, and restarts them: `Containers`, `Stats`, `Restart`.

use containerd_client::types::v1::Status as TaskStatus;
use corten_api::common::{ContainerDriver, ContainerdInstance, ContainerdNamespace};
use corten_api::machine as api;
use corten_containerd::client::{Container, Containerd, Kind, PODS, SYSTEM};
use corten_observe::cgroup;
use tonic::Status;

use super::Paths;

/// The reference's name of the namespace in which it runs services separately; an alias of `system` here.
const IN_MEMORY: &str = "inmemory";

pub(super) async fn containers(
    paths: &Paths,
    request: api::ContainersRequest,
) -> Result<api::ContainersResponse, Status> {
    let driver = request.driver();
    let namespace = namespace(&request.namespace, driver)?;
    let found = Containerd::new(&paths.containerd)
        .containers(namespace)
        .await?;
    let containers = found
        .into_iter()
        .map(|container| info(namespace, driver, container))
        .collect();
    Ok(api::ContainersResponse {
        messages: vec![api::Container {
            metadata: None,
            containers,
        }],
    })
}

/// The containers to measure, and their containerd namespace.
pub(super) async fn running(
    paths: &Paths,
    request: api::StatsRequest,
) -> Result<(&'static str, Vec<Container>), Status> {
    let namespace = namespace(&request.namespace, request.driver())?;
    let mut found = Containerd::new(&paths.containerd)
        .containers(namespace)
        .await?;
    found.retain(|container| container.pid > 0);
    Ok((namespace, found))
}

/// Resource usage of each container.
pub(super) fn stats(
    paths: &corten_observe::Paths,
    namespace: &str,
    running: Vec<Container>,
) -> api::StatsResponse {
    let stat = |container: Container| {
        // A container that ended meanwhile reports zero.
        let used = cgroup::usage(paths, container.pid).unwrap_or_default();
        api::Stat {
            namespace: namespace.to_owned(),
            id: container.id,
            memory_usage: used.memory,
            cpu_usage: used.cpu,
            pod_id: container.pod,
            name: container.name,
        }
    };
    api::StatsResponse {
        messages: vec![api::Stats {
            metadata: None,
            stats: running.into_iter().map(stat).collect(),
        }],
    }
}

pub(super) async fn restart(
    paths: &Paths,
    request: api::RestartRequest,
) -> Result<api::RestartResponse, Status> {
    let namespace = namespace(&request.namespace, request.driver())?;
    Containerd::new(&paths.containerd)
        .end(namespace, &request.id)
        .await?;
    Ok(api::RestartResponse {
        messages: vec![api::Restart { metadata: None }],
    })
}

/// containerd's namespace of a request; if it is empty, the driver's default.
fn namespace(asked: &str, driver: ContainerDriver) -> Result<&'static str, Status> {
    match (asked, driver) {
        (SYSTEM | IN_MEMORY, _) | ("", ContainerDriver::Containerd) => Ok(SYSTEM),
        (PODS, _) | ("", ContainerDriver::Cri) => Ok(PODS),
        _ => Err(Status::invalid_argument(format!(
            "namespace: this node has no namespace {asked:?}; use {SYSTEM:?} or {PODS:?}"
        ))),
    }
}

/// containerd's namespace of a request that gives a number.
pub(super) fn instance(asked: Option<ContainerdInstance>) -> Result<&'static str, Status> {
    match asked.unwrap_or_default().namespace() {
        ContainerdNamespace::NsSystem => Ok(SYSTEM),
        ContainerdNamespace::NsCri => Ok(PODS),
        ContainerdNamespace::NsUnknown => Err(Status::invalid_argument(
            "containerd.namespace: name one, NS_SYSTEM or NS_CRI",
        )),
    }
}

fn info(namespace: &str, driver: ContainerDriver, container: Container) -> api::ContainerInfo {
    api::ContainerInfo {
        namespace: namespace.to_owned(),
        status: status(driver, container.kind, container.status).to_owned(),
        id: container.id,
        uid: container.uid,
        internal_id: container.internal_id,
        image: container.image,
        pid: container.pid,
        pod_id: container.pod,
        name: container.name,
        network_namespace: container.network_namespace,
    }
}

/// The state in the terms of CRI (`ContainerState`, `PodSandboxState`) or of containerd.
fn status(driver: ContainerDriver, kind: Kind, status: TaskStatus) -> &'static str {
    match (driver, kind, status) {
        (ContainerDriver::Cri, Kind::Sandbox, TaskStatus::Running) => "SANDBOX_READY",
        (ContainerDriver::Cri, Kind::Sandbox, _) => "SANDBOX_NOTREADY",
        (ContainerDriver::Cri, _, TaskStatus::Running) => "CONTAINER_RUNNING",
        (ContainerDriver::Cri, _, TaskStatus::Created) => "CONTAINER_CREATED",
        (ContainerDriver::Cri, _, TaskStatus::Stopped) => "CONTAINER_EXITED",
        (ContainerDriver::Cri, _, _) => "CONTAINER_UNKNOWN",
        (_, _, status) => status.as_str_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_namespace_is_validated_or_derived_from_the_driver() {
        use ContainerDriver::{Containerd as Own, Cri};
        assert_eq!(namespace("", Own).unwrap(), SYSTEM);
        assert_eq!(namespace("", Cri).unwrap(), PODS);
        assert_eq!(namespace("inmemory", Own).unwrap(), SYSTEM);
        assert_eq!(namespace("k8s.io", Own).unwrap(), PODS);
        let refusal = namespace("moby", Own).unwrap_err();
        assert!(refusal.message().contains("namespace"), "{refusal}");
        instance(None).unwrap_err();
    }

    #[test]
    fn container_status_names_depend_on_the_driver() {
        let word = |driver, kind| status(driver, kind, TaskStatus::Running);
        assert_eq!(word(ContainerDriver::Cri, Kind::Sandbox), "SANDBOX_READY");
        assert_eq!(word(ContainerDriver::Cri, Kind::OfPod), "CONTAINER_RUNNING");
        assert_eq!(word(ContainerDriver::Containerd, Kind::Plain), "RUNNING");
    }
}

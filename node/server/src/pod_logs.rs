//! Finds the logs of pods' containers, which containerd writes (Kubernetes, "CRI logging": each line has time, stream,
//! tag, text).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corten_containerd::client::{Container, Kind};
use tonic::Status;

/// Directory of the logs: `<namespace>_<pod>_<uid>/<container>/<attempt>.log`.
pub(super) const DIRECTORY: &str = "/var/log/pods";

/// Path of the log of container `id`, in the form of the container list, with or without its last part.
///
/// # Errors
/// If there is no such container, or it has no log yet.
pub(super) fn path_of(
    directory: &Path,
    containers: &[Container],
    id: &str,
) -> Result<PathBuf, Status> {
    let is_it = |container: &&Container| {
        let unnumbered = format!("{}:{}", container.pod, container.name);
        container.kind == Kind::OfPod
            && (container.id == id || container.internal_id == id || unnumbered == id)
    };
    let container = containers.iter().find(is_it).ok_or_else(|| {
        Status::not_found(format!(
            "no container of a pod has the name {id:?}; the container list of the namespace k8s.io shows all names"
        ))
    })?;
    let (pod, name) = (container.pod.replace('/', "_"), &container.name);
    // The parts come from labels, which any creator of containers can choose.
    if [&*pod, name, &container.uid]
        .iter()
        .any(|part| part.contains('/') || part.contains(".."))
    {
        return Err(Status::failed_precondition(format!(
            "{id:?} has no log: its labels are not valid names"
        )));
    }
    let directory = directory
        .join(format!("{pod}_{}", container.uid))
        .join(name);
    newest(&directory)
        .map_err(|error| Status::not_found(format!("{}: {error}", directory.display())))
}

/// The log of the last attempt.
fn newest(directory: &Path) -> io::Result<PathBuf> {
    let attempt = |path: &PathBuf| {
        let stem = path.file_stem().and_then(OsStr::to_str)?;
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        is_log.then(|| stem.parse::<u32>().ok()).flatten()
    };
    let mut newest = None;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        newest = newest.max(attempt(&path).map(|attempt| (attempt, path)));
    }
    newest
        .map(|(_, path)| path)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no log yet"))
}

#[cfg(test)]
mod tests {
    use containerd_client::types::v1::Status as TaskStatus;

    use super::*;

    fn container(pod: &str, name: &str) -> Container {
        Container {
            kind: Kind::OfPod,
            id: format!("{pod}:{name}:0123456789ab"),
            internal_id: "0123456789abcdef".to_owned(),
            name: name.to_owned(),
            pod: pod.to_owned(),
            uid: "u".to_owned(),
            image: String::new(),
            pid: 1,
            status: TaskStatus::Running,
            network_namespace: String::new(),
            stop_signal: 15,
        }
    }

    #[test]
    fn container_log_is_found_by_every_name_and_of_the_last_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let logs = directory.path().join("kube-system_dns_u/cache");
        fs::create_dir_all(&logs).unwrap();
        let all = [container("kube-system/dns", "cache")];
        let id = "kube-system/dns:cache";
        let missing = path_of(directory.path(), &all, id).unwrap_err();
        assert_eq!(missing.code(), tonic::Code::NotFound);
        for name in ["9.log", "10.log", "10.log.20261123", "x.log"] {
            fs::write(logs.join(name), "").unwrap();
        }
        for id in [id, "kube-system/dns:cache:0123456789ab", "0123456789abcdef"] {
            let found = path_of(directory.path(), &all, id).unwrap();
            assert_eq!(found, logs.join("10.log"));
        }
        path_of(directory.path(), &all, "kube-system/dns").unwrap_err();
    }

    #[test]
    fn hostile_names_do_not_escape_the_log_directory() {
        let directory = tempfile::tempdir().unwrap();
        for (pod, name) in [("a/b", "../../x"), ("../b", "c"), ("a/b", "/etc")] {
            let all = [container(pod, name)];
            let refused = path_of(directory.path(), &all, &all[0].id).unwrap_err();
            assert_eq!(
                refused.code(),
                tonic::Code::FailedPrecondition,
                "{pod} {name}"
            );
        }
    }
}

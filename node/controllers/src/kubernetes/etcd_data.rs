//! The data of this node's etcd member: checked, restored from a snapshot, removed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use corten_base::durable::{remove_others, remove_whole, rename};
use corten_etcd::{SnapshotError, verify_snapshot};
use corten_kubernetes::etcd::{DATA, RESTORING, SNAPSHOT, has_data};
use corten_resources::controller::with_causes as describe;
use corten_supervisor::kubernetes::{ETCD_RESTORE, restore_service};
use corten_supervisor::supervisor::Supervisor;
use corten_supervisor::view::{ServiceState, ServiceView};
use tokio::sync::watch;
use tokio::time::timeout;

/// Timeout for etcd to end: longer than its grace period before SIGKILL.
pub(super) const END: Duration = Duration::from_secs(60);

/// Checks that the snapshot is whole: etcdutl makes a database before it compares the hash.
pub(super) fn verify(snapshot: &Path) -> Result<(), String> {
    let checked = fs::File::open(snapshot)
        .map_err(SnapshotError::Read)
        .and_then(verify_snapshot);
    checked.map_err(|error| {
        format!(
            "{} cannot be restored: {}; send another snapshot, and call bootstrap again",
            snapshot.display(),
            describe(&error)
        )
    })
}

/// Removes what an unfinished restoration left, or a start that never reached its cluster. A new member must not start
/// on it.
pub(super) fn empty(directory: &Path) -> Result<(), String> {
    for part in ["member", RESTORING] {
        match fs::remove_dir_all(directory.join(part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => {
                removed
                    .map_err(|error| format!("cannot empty {}: {error}", directory.display()))?;
            }
        }
    }
    Ok(())
}

/// Restores a new member's data from the snapshot, then removes the snapshot, so that no later bootstrap uses it by
/// accident. Ends early when the node `changed`: a restoration may wait for an image that does not exist.
pub(super) async fn restore(
    supervisor: &Supervisor,
    image: &str,
    args: Vec<String>,
    changed: impl Future<Output = ()>,
) -> Result<(), String> {
    supervisor.declare(restore_service(image, args));
    let mut views = supervisor.watch();
    let Some(is_restored) = finished(&mut views, changed).await else {
        supervisor.forget(ETCD_RESTORE);
        // The next restoration must not meet the program of this one.
        let _elapsed = timeout(END, gone(&mut views)).await;
        return Err(format!(
            "the restoration of {SNAPSHOT} has not ended, and begins anew with the changed config"
        ));
    };
    supervisor.forget(ETCD_RESTORE);
    let data = Path::new(DATA);
    if !is_restored || !has_data(&data.join(RESTORING)) {
        empty(data)?;
        return Err(format!(
            "the snapshot cannot be restored: `cortenctl logs {ETCD_RESTORE}` says why; send another one, and call \
             bootstrap again"
        ));
    }
    finish(data)?;
    fs::remove_file(SNAPSHOT).map_err(|error| format!("cannot remove {SNAPSHOT}: {error}"))
}

/// Waits until the restoration has ended. Returns whether it succeeded; `None` if the node has `changed` before.
async fn finished(
    views: &mut watch::Receiver<Vec<ServiceView>>,
    changed: impl Future<Output = ()>,
) -> Option<bool> {
    let state = |views: &[ServiceView]| {
        let view = views.iter().find(|view| view.id == ETCD_RESTORE);
        view.map(|view| view.state)
    };
    let ends = [Some(ServiceState::Finished), Some(ServiceState::Failed)];
    let end = async {
        // The supervisor ends only with machined.
        let ended = views.wait_for(|views| ends.contains(&state(views))).await;
        ended.is_ok_and(|views| state(&views) == Some(ServiceState::Finished))
    };
    tokio::select! {
        is_restored = end => Some(is_restored),
        () = changed => None,
    }
}

async fn gone(views: &mut watch::Receiver<Vec<ServiceView>>) {
    let is_gone = |views: &Vec<ServiceView>| views.iter().all(|view| view.id != ETCD_RESTORE);
    // The supervisor ends only with machined.
    let _ended = views.wait_for(is_gone).await;
}

/// Makes the restored data those of the member. A power cut leaves all of them or none.
fn finish(data: &Path) -> Result<(), String> {
    let finished = fs::File::open(data)
        .and_then(|volume| Ok(rustix::fs::syncfs(volume)?))
        .and_then(|()| rename(data, &format!("{RESTORING}/member"), "member"))
        .and_then(|()| fs::remove_dir_all(data.join(RESTORING)));
    finished.map_err(|error| {
        format!(
            "cannot move the restored data of etcd from {} to {}: {error}; call bootstrap again",
            data.join(RESTORING).display(),
            data.display()
        )
    })
}

/// Removes everything in the directory, which may be the root of a volume.
pub(super) fn clear(directory: &Path) -> Result<(), String> {
    match remove_others(directory, |_| false, remove_whole) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed.map_err(|error| format!("cannot empty {}: {error}", directory.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::SystemTime;

    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn damaged_snapshot_is_refused_before_a_restoration() {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = directory.path().join("snapshot");
        let database = [7; 1024];
        let whole = [&database[..], &Sha256::digest(database)].concat();
        fs::write(&snapshot, &whole).unwrap();
        verify(&snapshot).unwrap();
        fs::write(&snapshot, [&[0][..], &whole[1..]].concat()).unwrap();
        let why = verify(&snapshot).unwrap_err();
        assert!(
            why.contains("cannot be restored") && why.contains("call bootstrap again"),
            "{why}"
        );
    }

    #[tokio::test]
    async fn wait_for_a_restoration_ends_with_it_or_with_a_change_of_the_node() {
        let view = |state| ServiceView {
            id: ETCD_RESTORE.to_owned(),
            state,
            pid: None,
            healthy: None,
            health_message: String::new(),
            health_changed: SystemTime::now(),
            events: Vec::new(),
        };
        // An image that does not exist keeps the service waiting.
        let (sender, mut views) = watch::channel(vec![view(ServiceState::Waiting)]);
        assert_eq!(finished(&mut views, ready(())).await, None);
        for (end, is_restored) in [
            (ServiceState::Finished, true),
            (ServiceState::Failed, false),
        ] {
            sender.send(vec![view(end)]).unwrap();
            let found = finished(&mut views, pending()).await;
            assert_eq!(found, Some(is_restored));
        }
        sender.send(Vec::new()).unwrap();
        gone(&mut views).await;
    }

    #[test]
    fn directory_is_empty_after_a_failed_restoration() {
        let directory = tempfile::tempdir().unwrap();
        for part in ["member/snap", "restoring/member/snap"] {
            let part = directory.path().join(part);
            fs::create_dir_all(&part).unwrap();
            fs::write(part.join("db"), "").unwrap();
        }
        for _ in 0..2 {
            empty(directory.path()).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn restored_data_count_only_when_they_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let member = data.join(RESTORING).join("member");
        fs::create_dir_all(member.join("snap")).unwrap();
        fs::create_dir_all(member.join("wal")).unwrap();
        fs::write(member.join("snap/db"), vec![7; 2 << 20]).unwrap();
        fs::write(member.join("wal/0.wal"), "").unwrap();
        // A power cut here leaves a node that can be bootstrapped again.
        assert!(!has_data(data));
        finish(data).unwrap();
        assert!(has_data(data));
        assert!(data.join("member/snap/db").is_file());
        assert!(!data.join(RESTORING).exists());
    }

    #[test]
    fn nothing_is_left_of_a_member_that_has_left() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        fs::create_dir_all(data.join("member/wal")).unwrap();
        fs::create_dir_all(data.join("log")).unwrap();
        for file in ["member/wal/0.wal", "log/0.wal", "file"] {
            fs::write(data.join(file), "").unwrap();
        }
        for _ in 0..2 {
            clear(data).unwrap();
            assert_eq!(fs::read_dir(data).unwrap().count(), 0);
        }
        clear(&data.join("gone")).unwrap();
    }
}

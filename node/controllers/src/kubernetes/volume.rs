//! Whether the volume with the data of Kubernetes is there.

use corten_base::mode::{Ability, Mode};
use corten_volumes::{EPHEMERAL, Progress, STATE, is_mounted};

/// The reason why etcd and the kubelet may not run: EPHEMERAL, which has their data, is not mounted. In memory, etcd would
/// remove its own member to join its cluster anew, and pods would lose their data at the next restart. A node without
/// a disk, or in a container, keeps all data where it can.
pub(super) fn lacks_volume(progress: &Progress) -> Option<String> {
    if !Mode::now().can(Ability::Disks) || is_mounted(&EPHEMERAL) {
        return None;
    }
    missing(progress, || is_mounted(&STATE))
}

fn missing(progress: &Progress, has_state: impl FnOnce() -> bool) -> Option<String> {
    let absent = "EPHEMERAL, which has the data of Kubernetes, is not mounted";
    match progress {
        Progress::Awaited => Some("waiting: the disks of the node are not known yet".to_owned()),
        Progress::Failed(failure) => Some(format!("waiting: {absent}: {failure}")),
        Progress::Settled => has_state().then(|| format!("waiting: {absent}")),
    }
}

#[cfg(test)]
mod tests {
    use corten_volumes::Failure;

    use super::*;

    #[test]
    fn kubernetes_waits_for_its_volume_unless_the_node_has_no_disk() {
        let failed = Progress::Failed(Failure::new("EPHEMERAL", "it has an unknown file system"));
        for progress in [&Progress::Awaited, &Progress::Settled, &failed] {
            assert!(missing(progress, || true).is_some(), "{progress:?}");
        }
        let why = missing(&failed, || true).unwrap();
        assert!(why.ends_with("it has an unknown file system"), "{why}");
        assert!(missing(&Progress::Awaited, || false).is_some());
        assert_eq!(missing(&Progress::Settled, || false), None);
    }
}

//! Shows the node's own volumes: their partitions and phases.

use corten_base::mount_table::Mount;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Typed};
use corten_supervisor::IMAGE_CACHE;
use corten_sys::mount::MountFlags;
use corten_types::block::{DiscoveredVolume, SystemDisk};
use corten_types::volume::{MountSpec, VolumeStatus};
use corten_volumes::{EPHEMERAL, Progress, STATE, Volume};
use tokio::sync::watch;

/// Label key of the node's own volumes; clients test for the key alone.
pub(super) const SYSTEM_VOLUME: &str = "talos.dev/system-volume";
pub(super) const SECURE: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

#[derive(Debug, Clone)]
pub(crate) struct Volumes {
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) mounts: watch::Receiver<Vec<Mount>>,
}

impl Controller for Volumes {
    fn name(&self) -> &'static str {
        "block.VolumeStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<DiscoveredVolume>(Dependency::Weak),
            Input::of::<SystemDisk>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<VolumeStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.progress.changed() => {}
                Ok(()) = self.mounts.changed() => {}
            }
            let disk = context.get::<SystemDisk>(SystemDisk::ID)?;
            let partitions = context.list::<DiscoveredVolume>()?;
            let progress = self.progress.borrow_and_update().clone();
            let mounts = self.mounts.borrow_and_update().clone();
            let view = View {
                disk: disk.as_deref(),
                partitions: &partitions,
                progress: &progress,
                mounts: &mounts,
            };
            context.start_outputs();
            for (name, status) in view.volumes() {
                context.put(Draft::new(name, status).label(SYSTEM_VOLUME, ""))?;
            }
            context.remove_others::<VolumeStatus>()?;
        }
    }
}

/// A snapshot of everything known about the volumes.
struct View<'a> {
    disk: Option<&'a SystemDisk>,
    partitions: &'a [Typed<DiscoveredVolume>],
    progress: &'a Progress,
    mounts: &'a [Mount],
}

impl View<'_> {
    fn volumes(&self) -> Vec<(&'static str, VolumeStatus)> {
        let made = |volume: &Volume<'_>| self.status(volume.name, Some(spec(volume)));
        let mut all = vec![
            ("META", self.status("META", None)),
            (STATE.name, made(&STATE)),
            (EPHEMERAL.name, made(&EPHEMERAL)),
        ];
        // The image cache is the only optional volume.
        if self.partition(corten_volumes::IMAGE_CACHE).is_some() {
            let spec = MountSpec {
                target_path: IMAGE_CACHE.to_owned(),
                secure: true,
                no_exec: true,
                ..MountSpec::default()
            };
            all.push((
                corten_volumes::IMAGE_CACHE,
                self.status(corten_volumes::IMAGE_CACHE, Some(spec)),
            ));
        }
        all
    }

    fn partition(&self, name: &str) -> Option<&DiscoveredVolume> {
        let disk = self.disk?;
        let mut partitions = self.partitions.iter().map(|partition| &**partition);
        partitions.find(|one| one.parent == disk.disk_id && one.partition_label == name)
    }

    /// Status of a volume; a volume without `mount_spec` is used without a mount.
    fn status(&self, name: &str, mount_spec: Option<MountSpec>) -> VolumeStatus {
        let partition = self.partition(name);
        let opened = corten_volumes::opened_device(name);
        let mounted = |device: &str| {
            let spec = mount_spec.as_ref()?;
            self.mounted(device, &spec.target_path)
        };
        let in_it = mounted(&opened);
        let is_used = partition.is_some_and(|partition| {
            mount_spec.is_none() || in_it.or_else(|| mounted(&partition.dev_path)).is_some()
        });
        let found = match (partition, self.progress) {
            (Some(_), _) if is_used => "ready",
            (Some(_), _) => "located",
            (None, Progress::Awaited) => "waiting",
            (None, _) => "missing",
        };
        let why = self.failure_of(name).filter(|_| !is_used);
        let partition = partition.cloned().unwrap_or_default();
        VolumeStatus {
            phase: why.map_or(found, |_| "failed"),
            pre_fail_phase: why.map_or("", |_| found),
            kind: "partition",
            location: partition.dev_path.clone(),
            encryption_provider: in_it.map_or("", |_| "luks2"),
            mount_location: in_it.map_or(partition.dev_path, |mount| mount.source.clone()),
            partition_index: partition.partition_index,
            parent_location: match self.disk {
                Some(disk) if partition.partition_index > 0 => disk.dev_path.clone(),
                _ => String::new(),
            },
            uuid: partition.uuid,
            partition_uuid: partition.partition_uuid,
            size: partition.size,
            pretty_size: partition.pretty_size,
            filesystem: in_it.map_or(partition.name, |mount| mount.kind.clone()),
            mount_spec,
            error_message: why.unwrap_or_default().to_owned(),
        }
    }

    /// The mount of this device at the target, if it is the topmost one there.
    fn mounted(&self, device: &str, target: &str) -> Option<&Mount> {
        let last = self.mounts.iter().rfind(|mount| mount.target == target);
        last.filter(|mount| mount.source == device)
    }

    /// A failure of the disk affects every volume on it.
    fn failure_of(&self, name: &str) -> Option<&str> {
        let Progress::Failed(failure) = self.progress else {
            return None;
        };
        let kept = [STATE.name, EPHEMERAL.name];
        let of_one = kept.contains(&failure.what.as_str());
        let concerns = failure.what == name || !of_one && kept.contains(&name);
        concerns.then_some(failure.why.as_str())
    }
}

/// Mount options of one of the node's own volumes.
pub(super) fn spec(volume: &Volume<'_>) -> MountSpec {
    MountSpec {
        target_path: volume.target.to_owned(),
        selinux_label: "",
        project_quota_support: volume.options.contains("prjquota"),
        secure: volume.flags.contains(SECURE),
        no_exec: volume.flags.contains(MountFlags::NOEXEC),
    }
}

#[cfg(test)]
mod tests {
    use corten_base::mount_table;
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Spec as _, Store};
    use corten_types::volume::{MountStatus, PartitionMount, VolumeMountStatus};

    use super::super::mounts::Mounts;
    use super::*;

    struct Node {
        store: Store,
        progress: watch::Sender<Progress>,
        mounts: watch::Sender<Vec<Mount>>,
    }

    impl Node {
        fn start() -> Node {
            let store = Store::new();
            let (progress, mounts) = (watch::Sender::default(), watch::Sender::default());
            let mut runtime = Runtime::new(store.clone());
            let statuses = Volumes {
                progress: progress.subscribe(),
                mounts: mounts.subscribe(),
            };
            runtime.add(statuses).unwrap();
            let mounted = Mounts {
                mounts: mounts.subscribe(),
            };
            runtime.add(mounted).unwrap();
            tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            Node {
                store,
                progress,
                mounts,
            }
        }

        fn partition(&self, disk: &str, number: u64, label: &str, file_system: &str) {
            let name = format!("{disk}{number}");
            let volume = DiscoveredVolume {
                dev_path: format!("/dev/{name}"),
                kind: "partition",
                parent: disk.to_owned(),
                size: 1 << 30,
                pretty_size: "1.1 GB".to_owned(),
                name: file_system.to_owned(),
                partition_label: label.to_owned(),
                partition_index: number,
                ..DiscoveredVolume::default()
            };
            self.store.put(Draft::new(&name, volume), "").unwrap();
        }

        fn system_disk(&self, disk: &str) {
            let disk = SystemDisk {
                disk_id: disk.to_owned(),
                dev_path: format!("/dev/{disk}"),
            };
            self.store
                .put(Draft::new(SystemDisk::ID, disk), "")
                .unwrap();
        }

        async fn until(&self, volume: &str, done: impl Fn(&VolumeStatus) -> bool) {
            sample::until::<VolumeStatus>(&self.store, volume, |status| status.is_some_and(&done))
                .await;
        }

        async fn until_mounted(&self, volume: &str, is: bool) {
            sample::until::<MountStatus>(&self.store, volume, |mount| mount.is_some() == is).await;
        }
    }

    #[tokio::test]
    async fn system_volume_goes_from_waiting_over_located_to_ready() {
        let node = Node::start();
        node.until("EPHEMERAL", |status| status.phase == "waiting")
            .await;
        // A foreign disk is ignored.
        node.partition("sdb", 4, "STATE", "xfs");
        node.system_disk("vda");
        node.partition("vda", 3, "META", "");
        node.partition("vda", 4, "STATE", "xfs");
        node.partition("vda", 5, "EPHEMERAL", "xfs");
        node.until("META", |status| status.phase == "ready").await;
        node.until("STATE", |status| {
            status.phase == "located" && status.location == "/dev/vda4"
        })
        .await;
        let table = "tmpfs /var tmpfs rw 0 0\n\
             /dev/vda4 /system/state xfs rw,nosuid,nodev,noexec,relatime 0 0\n\
             /dev/vda5 /var xfs rw,nosuid,nodev,relatime,prjquota 0 0\n";
        node.mounts.send_replace(mount_table::parse(table));
        node.until("EPHEMERAL", |status| {
            let spec = status.mount_spec.as_ref().unwrap();
            assert!(spec.project_quota_support && spec.secure && !spec.no_exec);
            status.phase == "ready" && status.parent_location == "/dev/vda"
        })
        .await;
        node.until_mounted("EPHEMERAL", true).await;
        node.until_mounted("STATE", true).await;
        let state = node.store.get_as::<MountStatus>("STATE").unwrap();
        assert_eq!(
            (&*state.source, &*state.target, state.filesystem),
            ("/dev/vda4", "/system/state", "xfs")
        );
        assert!(state.spec.secure && state.spec.no_exec && !state.read_only);
        let requested = node.store.get_as::<VolumeMountStatus>("STATE").unwrap();
        assert_eq!(
            (&*requested.requester, requested.no_exec),
            ("machined", true)
        );
        let mounts = node.store.get_as::<PartitionMount>("EPHEMERAL").unwrap();
        assert!(mounts.options.contains(&"prjquota".to_owned()));
        assert!(node.store.get_as::<MountStatus>("META").is_none());
        // Another mount hides it.
        node.mounts
            .send_modify(|mounts| mounts.push(mounts[0].clone()));
        node.until("EPHEMERAL", |status| status.phase == "located")
            .await;
        node.until_mounted("EPHEMERAL", false).await;
        assert!(node.store.get_as::<PartitionMount>("EPHEMERAL").is_none());
    }

    #[tokio::test]
    async fn encrypted_volume_is_mounted_from_its_mapped_device() {
        let node = Node::start();
        node.system_disk("vda");
        node.partition("vda", 4, "STATE", "luks");
        node.until("STATE", |status| status.phase == "located")
            .await;
        let table = "/dev/mapper/luks2-STATE /system/state xfs rw,nosuid,nodev,noexec 0 0\n";
        node.mounts.send_replace(mount_table::parse(table));
        node.until("STATE", |status| {
            status.phase == "ready"
                && status.location == "/dev/vda4"
                && status.mount_location == "/dev/mapper/luks2-STATE"
                && (status.encryption_provider, &*status.filesystem) == ("luks2", "xfs")
        })
        .await;
        node.until_mounted("STATE", true).await;
        let mount = node.store.get_as::<PartitionMount>("STATE").unwrap();
        let message = mount.message();
        assert!(message.encrypted && message.encryption_providers == ["luks2"]);
        let mount = node.store.get_as::<MountStatus>("STATE").unwrap();
        let message = mount.message();
        assert_eq!((message.encryption_provider, message.filesystem), (1, 1));
    }

    #[tokio::test]
    async fn failure_is_shown_on_the_affected_volumes() {
        let node = Node::start();
        let fail = |what: &str| {
            let failure = corten_volumes::Failure {
                what: what.to_owned(),
                why: "no XFS file system".to_owned(),
            };
            node.progress.send_replace(Progress::Failed(failure));
        };
        node.system_disk("vda");
        node.partition("vda", 4, "STATE", "ext4");
        fail("STATE");
        node.until("STATE", |status| {
            status.phase == "failed"
                && status.pre_fail_phase == "located"
                && status.error_message == "no XFS file system"
        })
        .await;
        node.until("EPHEMERAL", |status| status.phase == "missing")
            .await;
        fail("vda");
        node.until("EPHEMERAL", |status| status.pre_fail_phase == "missing")
            .await;
        node.progress.send_replace(Progress::Settled);
        node.until("STATE", |status| status.phase == "located")
            .await;
    }
}

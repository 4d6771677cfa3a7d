//! Shows the mounts of the node's volumes.

use corten_base::mount_table::Mount;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::REGISTRYD;
use corten_types::names::FILE_SYSTEMS;
use corten_types::volume::{
    MountRequest, MountStatus, PartitionMount, VolumeMountStatus, VolumeStatus,
};
use corten_volumes::IMAGE_CACHE;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(crate) struct Mounts {
    pub(crate) mounts: watch::Receiver<Vec<Mount>>,
}

impl Controller for Mounts {
    fn name(&self) -> &'static str {
        "block.MountStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<VolumeStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<MountStatus>(),
            Output::exclusive::<VolumeMountStatus>(),
            Output::exclusive::<PartitionMount>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.mounts.changed() => {}
            }
            let mounts = self.mounts.borrow_and_update().clone();
            let volumes = context.list::<VolumeStatus>()?;
            context.start_outputs();
            for volume in volumes.iter().filter(|volume| volume.phase == "ready") {
                let Some(mount) = mount_of(volume, &mounts) else {
                    continue;
                };
                let provider = volume.encryption_provider;
                let status = status(volume.id(), mount, provider);
                context.put(Draft::new(volume.id(), of_requester(&status)))?;
                context.put(Draft::new(volume.id(), status))?;
                context.put(Draft::new(volume.id(), partition(mount, provider)))?;
            }
            context.remove_others::<MountStatus>()?;
            context.remove_others::<VolumeMountStatus>()?;
            context.remove_others::<PartitionMount>()?;
        }
    }
}

fn mount_of<'a>(volume: &VolumeStatus, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let spec = volume.mount_spec.as_ref()?;
    mounts
        .iter()
        .rfind(|mount| mount.target == spec.target_path && mount.source == volume.mount_location)
}

fn status(volume: &str, mount: &Mount, encryption_provider: &'static str) -> MountStatus {
    let known = FILE_SYSTEMS.iter().find(|(_, name)| *name == mount.kind);
    let requester = if volume == IMAGE_CACHE {
        REGISTRYD
    } else {
        "machined"
    };
    MountStatus {
        spec: MountRequest {
            volume_id: volume.to_owned(),
            read_only: mount.has("ro"),
            disable_access_time: mount.has("noatime"),
            secure: mount.has("nosuid") && mount.has("nodev"),
            no_exec: mount.has("noexec"),
            requesters: vec![requester.to_owned()],
        },
        source: mount.source.clone(),
        target: mount.target.clone(),
        filesystem: known.map_or("none", |(_, name)| name),
        read_only: mount.has("ro"),
        project_quota_support: mount.has("prjquota"),
        encryption_provider,
        detached: false,
    }
}

fn of_requester(status: &MountStatus) -> VolumeMountStatus {
    let spec = &status.spec;
    VolumeMountStatus {
        volume_id: spec.volume_id.clone(),
        requester: spec.requesters.concat(),
        target: status.target.clone(),
        read_only: status.read_only,
        disable_access_time: spec.disable_access_time,
        secure: spec.secure,
        no_exec: spec.no_exec,
    }
}

fn partition(mount: &Mount, encryption_provider: &'static str) -> PartitionMount {
    PartitionMount {
        source: mount.source.clone(),
        target: mount.target.clone(),
        filesystem_type: mount.kind.clone(),
        options: mount.options.clone(),
        encrypted: !encryption_provider.is_empty(),
        encryption_providers: Vec::from_iter(
            Some(encryption_provider).filter(|provider| !provider.is_empty()),
        ),
    }
}

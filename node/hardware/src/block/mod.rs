//! Disks and their content, from sysfs and udevd's database; and the node's volumes on them.

mod attempt;
mod config;
mod device;
pub(super) mod kept;
pub(super) mod mounts;
mod outside;
mod record;
pub(super) mod swap;
mod trim;
mod users;
mod volumes;

use std::sync::Arc;

use corten_resources::Draft;
use corten_resources::controller::{
    Context, Controller, Dependency, Failure, GraphError, Input, Output, Runtime,
};
use corten_types::block::{
    BlockDevice, BlockSymlinks, DiscoveredVolume, DiscoveredVolumesStatus, Disk, SystemDisk,
};
use corten_types::runtime::DevicesStatus;
use corten_volumes::likely_system_disk;
use corten_volumes::user::World;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::Sources;
use crate::uevents::Told;
use device::{Found, System};

/// Adds the controllers that inspect disks and make volumes on them.
///
/// # Errors
/// Two controllers write the same resource type.
pub(super) fn add(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    runtime.add(BlockDevices {
        told: sources.uevents.follow("block"),
    })?;
    runtime.add(config::VolumeConfigs {
        config: sources.config.clone(),
    })?;
    runtime.add(users::UserVolumes {
        config: sources.config.clone(),
        mounts: sources.mounts.clone(),
        outside: World {
            supervisor: sources.supervisor.clone(),
            opened: sources.user_volumes.clone(),
        },
        kept: Arc::default(),
    })?;
    runtime.add(volumes::Volumes {
        progress: sources.volumes.clone(),
        mounts: sources.mounts.clone(),
    })?;
    runtime.add(trim::Trims {
        config: sources.config.clone(),
        trimmer: trim::Kernel,
    })
}

#[derive(Debug, Clone)]
pub(super) struct BlockDevices {
    /// Device events from udevd.
    pub(super) told: watch::Receiver<Told>,
}

impl Controller for BlockDevices {
    fn name(&self) -> &'static str {
        "block.DevicesController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<DevicesStatus>(Dependency::Weak).with_id(DevicesStatus::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<BlockDevice>(),
            Output::exclusive::<BlockSymlinks>(),
            Output::exclusive::<Disk>(),
            Output::exclusive::<SystemDisk>(),
            Output::exclusive::<DiscoveredVolume>(),
            Output::exclusive::<DiscoveredVolumesStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let told = self.told.borrow_and_update().clone();
            look(context, told).await?;
            tokio::select! {
                () = context.event() => {}
                changed = self.told.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

async fn look(context: &mut Context, told: Told) -> Result<(), Failure> {
    // Read before the devices: then every device that udevd has reported by now is seen.
    let status = context.get::<DevicesStatus>(DevicesStatus::ID)?;
    let ready = status.is_some_and(|status| status.ready);
    // A disk may answer slowly.
    let look = move || {
        let devices = System::of_this_machine().devices(&told);
        (devices, likely_system_disk())
    };
    let (devices, carrier) = spawn_blocking(look).await?;
    write(context, devices, carrier)?;
    let status = DiscoveredVolumesStatus { ready };
    context.put(Draft::new(DiscoveredVolumesStatus::ID, status))?;
    Ok(())
}

fn write(
    context: &mut Context,
    devices: Vec<Found>,
    carrier: Option<String>,
) -> Result<(), Failure> {
    context.start_outputs();
    if let Some(disk_id) = carrier {
        let dev_path = format!("/dev/{disk_id}");
        let disk = SystemDisk { dev_path, disk_id };
        context.put(Draft::new(SystemDisk::ID, disk))?;
    }
    for device in devices {
        let name = &device.name;
        context.put(Draft::new(name, device.block_device))?;
        if !device.symlinks.paths.is_empty() {
            context.put(Draft::new(name, device.symlinks))?;
        }
        if let Some(volume) = device.volume {
            context.put(Draft::new(name, volume))?;
        }
        if let Some(disk) = device.disk {
            context.put(Draft::new(name, disk))?;
        }
    }
    context.remove_others::<BlockDevice>()?;
    context.remove_others::<BlockSymlinks>()?;
    context.remove_others::<Disk>()?;
    context.remove_others::<SystemDisk>()?;
    context.remove_others::<DiscoveredVolume>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    #[tokio::test]
    async fn volume_discovery_waits_for_udevd_to_settle() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let told = watch::Sender::new(Told::default());
        let devices = BlockDevices {
            told: told.subscribe(),
        };
        runtime.add(devices).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let discovered = async |ready: bool| {
            let id = DiscoveredVolumesStatus::ID;
            sample::until::<DiscoveredVolumesStatus>(&store, id, |status| {
                status.is_some_and(|status| status.ready == ready)
            })
            .await
        };
        discovered(false).await;
        let devices = DevicesStatus { ready: true };
        store
            .put(Draft::new(DevicesStatus::ID, devices), "")
            .unwrap();
        discovered(true).await;
    }
}

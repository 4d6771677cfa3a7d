//! Disks and what is on them: sysfs, and udevd's database beside it; and the node's volumes among them.

pub(super) mod config;
mod device;
pub(super) mod kept;
pub(super) mod mounts;
mod record;
pub(super) mod swap;
pub(super) mod trim;
pub(super) mod users;
pub(super) mod volumes;

use std::collections::BTreeSet;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::resources::block::{
    BlockDevice, BlockSymlinks, DiscoveredVolume, DiscoveredVolumesStatus, Disk, SystemDisk,
};
use crate::resources::runtime::DevicesStatus;
use crate::uevents::Told;
use device::{Found, System};

#[derive(Debug, Clone)]
pub(super) struct BlockDevices {
    /// What udevd says of them.
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
    // Asked before the look: what udevd has told of by now is seen.
    let status = context.get::<DevicesStatus>(DevicesStatus::ID)?;
    let ready = status.is_some_and(|status| status.ready);
    // A disk may take its time to answer.
    let devices = spawn_blocking(move || System::of_this_machine().devices(&told)).await?;
    write(context, devices)?;
    let status = DiscoveredVolumesStatus { ready };
    context.put(Draft::new(DiscoveredVolumesStatus::ID, status))?;
    Ok(())
}

fn write(context: &mut Context, devices: Vec<Found>) -> Result<(), Failure> {
    context.start_outputs();
    if let Some(disk) = system_disk(&devices) {
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

/// The disk that carries the node; of two that could, the node uses neither.
fn system_disk(devices: &[Found]) -> Option<SystemDisk> {
    let is_meta =
        |volume: &&DiscoveredVolume| volume.partition_label == "META" && volume.partition_index > 0;
    let volumes = devices.iter().filter_map(|device| device.volume.as_ref());
    let disks: BTreeSet<&str> = volumes
        .filter(is_meta)
        .map(|volume| &*volume.parent)
        .collect();
    let mut disks = disks.into_iter();
    let (Some(only), None) = (disks.next(), disks.next()) else {
        return None;
    };
    Some(SystemDisk {
        dev_path: format!("/dev/{only}"),
        disk_id: only.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;
    use crate::sample;

    #[tokio::test]
    async fn volumes_are_discovered_once_udevd_has_told_of_every_device() {
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

    #[test]
    fn of_two_disks_that_could_be_the_systems_none_is() {
        let partition = |name: &str, parent: &str, label: &str| Found {
            name: name.to_owned(),
            volume: Some(DiscoveredVolume {
                parent: parent.to_owned(),
                partition_label: label.to_owned(),
                partition_index: 3,
                ..DiscoveredVolume::default()
            }),
            ..Found::default()
        };
        let [one, other] = ["vda", "vdb"].map(|disk| partition(&format!("{disk}3"), disk, "META"));
        let state = partition("vdb4", "vdb", "STATE");
        assert_eq!(system_disk(std::slice::from_ref(&state)), None);
        let found = system_disk(&[state.clone(), one.clone()]).unwrap();
        assert_eq!((&*found.disk_id, &*found.dev_path), ("vda", "/dev/vda"));
        assert_eq!(system_disk(&[one, state, other]), None);
    }
}

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

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::task::spawn_blocking;

use crate::resources::block::{
    BlockDevice, BlockSymlinks, DiscoveredVolume, DiscoveredVolumesStatus, Disk, SystemDisk,
};
use crate::resources::runtime::DevicesStatus;
use crate::uevents::{Message, Uevents};
use device::{Found, System};

#[derive(Debug, Clone)]
pub(super) struct BlockDevices;

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

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut messages = Uevents::listen()?;
        context.event().await;
        let mut generations = Generations::default();
        loop {
            look(context, &generations).await?;
            let mut bunch = pin!(messages.bunch("block"));
            let told = loop {
                tokio::select! {
                    told = &mut bunch => break told?,
                    () = context.event() => look(context, &generations).await?,
                }
            };
            for message in told {
                generations.count(&message);
            }
        }
    }
}

async fn look(context: &mut Context, generations: &Generations) -> Result<(), Failure> {
    // Asked before the look: what udevd has told of by now is seen.
    let status = context.get::<DevicesStatus>(DevicesStatus::ID)?;
    let ready = status.is_some_and(|status| status.ready);
    let generations = generations.clone();
    // A disk may take its time to answer.
    let devices = spawn_blocking(move || System::of_this_machine().devices(&generations)).await?;
    write(context, devices)?;
    let status = DiscoveredVolumesStatus { ready };
    context.put(Draft::new(DiscoveredVolumesStatus::ID, status))?;
    Ok(())
}

/// How often udevd told of each device.
#[derive(Debug, Clone, Default)]
struct Generations(BTreeMap<String, u32>);

impl Generations {
    fn count(&mut self, message: &Message) {
        let device = message.get("DEVNAME");
        let Some(device) = device.and_then(|path| path.strip_prefix("/dev/")) else {
            return;
        };
        if message.get("ACTION") == Some("remove") {
            self.0.remove(device);
            return;
        }
        let told = self.0.entry(device.to_owned()).or_default();
        *told = told.saturating_add(1);
    }

    /// The first look counts, too.
    fn of(&self, device: &str) -> u32 {
        let told = self.0.get(device).copied().unwrap_or_default();
        told.saturating_add(1)
    }
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
        runtime.add(BlockDevices).unwrap();
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

    #[test]
    fn what_is_told_of_a_device_is_counted() {
        let mut generations = Generations::default();
        assert_eq!(generations.of("vda1"), 1);
        let told = Message::of("ACTION=change\0DEVNAME=/dev/vda1\0");
        generations.count(&told);
        generations.count(&told);
        assert_eq!((generations.of("vda1"), generations.of("vda")), (3, 1));
        for nonsense in ["", "DEVNAME=", "DEVNAME=vdb\0", "\0\0DEVNAME"] {
            generations.count(&Message::of(nonsense));
        }
        assert_eq!(generations.0.len(), 1);
        generations.count(&Message::of("ACTION=remove\0DEVNAME=/dev/vda1\0"));
        assert!(generations.0.is_empty());
    }
}
